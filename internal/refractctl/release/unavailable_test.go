// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// TestUnavailableReadsTheSelector checks that the selector of a Deployment may be missing or have operators.
func TestUnavailableReadsTheSelector(t *testing.T) {
	t.Parallel()
	rome := peeringtest.New(t, "rome")
	key := client.ObjectKey{Namespace: "liqo", Name: "manager"}
	for want, selector := range map[string]*metav1.LabelSelector{
		"has no selector":         nil,
		"reading spec.selector":   {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}},
		"0 of 1 replicas are up ": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
	} {
		rome.Put(t, &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 2}, Spec: appsv1.DeploymentSpec{Selector: selector}})
		missing, err := release.Unavailable(t.Context(), rome.Client, key)
		if err != nil {
			missing += err.Error()
		}
		assert.Contains(t, missing, want)
	}
}
