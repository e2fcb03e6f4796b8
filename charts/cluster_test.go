// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/test/support/testenv"
)

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if _, ok := object.(*corev1.Namespace); ok && c.Get(t.Context(), client.ObjectKeyFromObject(object), &corev1.Namespace{}) == nil {
		return // the namespace was already created above, because other objects need it
	}
	assert.NoErrorf(t, c.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)), "%T %s", object, client.ObjectKeyFromObject(object))
}

// TestClusterAcceptsEveryObject checks that a real API server accepts the CRDs of the chart and every object that the
// chart renders in the test cases. Validation is strict, and pods must comply with the restricted security standard.
func TestClusterAcceptsEveryObject(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{
		CRDPaths:    []string{filepath.Join(chartDir, "crds")},
		NoScheduler: true,
		// Objects are not stored, so pods refer to service accounts that do not exist.
		ExtraAPIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"},
	})[0]
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme(t)})
	require.NoError(t, err)
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	for _, name := range []string{releaseNamespace, "liqo-tenant-milan", "liqo-tenant-rome", "turin"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: restricted}}
		require.NoError(t, c.Create(t.Context(), namespace))
	}
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			for _, object := range deployed(t, values(t, name)) {
				create(t, c, object)
				if deployment, ok := object.(*appsv1.Deployment); ok {
					template := deployment.Spec.Template
					template.Name, template.Namespace = deployment.Name, deployment.Namespace
					create(t, c, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
				}
			}
		})
	}
}
