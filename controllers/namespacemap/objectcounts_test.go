// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

func counts(of map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range of {
		list[corev1.ResourceName(name)] = resource.MustParse(count)
	}
	return list
}

// A consumer has so many objects and no more. The quota is there again if somebody deletes or changes it, and follows the flag.
func TestObjectsOfAConsumerAreCounted(t *testing.T) {
	const remote = "counted-lima"
	limited := func(o *controllers.Options) { o.ObjectCounts = counts(map[string]string{"count/configmaps": "3"}) }
	m := provider.StartManager(t, limited)
	nm := replicated(tenant(t, "lima"), "lima", map[string]string{"counted": remote})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"counted": "Accepted"})
	quota := awaitCounts(t, remote, map[string]string{"count/configmaps": "3"})
	controllertest.Eventually(t, "the fourth ConfigMap to be refused", func() error {
		provider.Get(t, quota, remote, quota.Name)
		if len(quota.Status.Used) == 0 {
			return fmt.Errorf("nothing is counted yet")
		}
		err := provider.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: remote, GenerateName: "c-"}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: "+wire.ObjectCountsQuota) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})

	provider.Patch(t, quota, `{"spec":{"hard":{"count/configmaps":"1000","count/secrets":"0"}}}`)
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3"})
	provider.Delete(t, quota)
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3"})
	m.Stop(t)

	provider.StartManager(t)
	awaitCounts(t, remote, map[string]string{})
}

// What kube-controller-manager does not count, which it learns of some time after its CRD was installed, is not refused for that.
func TestObjectsThatAreNotCountedAreNotRefused(t *testing.T) {
	const unknown = "count/unknowns.example.org"
	const remote = "uncounted-lima"
	provider.StartManager(t, func(o *controllers.Options) {
		o.ObjectCounts, o.RecountDelay = counts(map[string]string{"count/configmaps": "3", unknown: "7"}), 3*time.Second
	})
	nm := replicated(tenant(t, "lima2"), "lima2", map[string]string{"uncounted": remote})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"uncounted": "Accepted"})
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3"})
	// It is tried again.
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3", unknown: "7"})
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3"})
}

// A consumer with as many NetworkPolicies as allowed does not prevent the NetworkPolicy of this cluster, and gets no more for it.
func TestTheCountOfPoliciesKeepsNoEgressPolicyAway(t *testing.T) {
	const remote, policies = "policies-lima", "count/networkpolicies.networking.k8s.io"
	limited := func(o *controllers.Options) { o.ObjectCounts = counts(map[string]string{policies: "3"}) }
	m := provider.StartManager(t, limited)
	nm := replicated(tenant(t, "lima3"), "lima3", map[string]string{"policies": remote})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"policies": "Accepted"})
	awaitCounts(t, remote, map[string]string{policies: "3"})
	policy := awaitEgress(t, remote, "169.254.0.0/16", true)
	m.Stop(t)

	provider.Delete(t, policy)
	mine := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: remote}}
	create := func() error { return provider.Client.Create(t.Context(), mine.DeepCopy()) }
	for _, mine.Name = range []string{"first", "second"} {
		controllertest.Eventually(t, "room for NetworkPolicy "+mine.Name, create)
	}
	mine.Name = "another"
	controllertest.Eventually(t, "no room for another one", func() error {
		if err := create(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})

	provider.StartManager(t, limited)
	awaitEgress(t, remote, "169.254.0.0/16", true)
	awaitCounts(t, remote, map[string]string{policies: "3"})
	controllertest.Eventually(t, "no room for another one", func() error {
		err := create()
		if err == nil { // until the API server knows the limit again
			provider.Delete(t, mine.DeepCopy())
		}
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

func awaitCounts(t *testing.T, namespace string, want map[string]string) *corev1.ResourceQuota {
	t.Helper()
	quota := &corev1.ResourceQuota{}
	controllertest.Eventually(t, fmt.Sprintf("the counts %v of %s", want, namespace), func() error {
		quota = &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ObjectCountsQuota}}
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: wire.ObjectCountsQuota}, quota); err != nil {
			return err
		}
		got := map[string]string{}
		for name, count := range quota.Spec.Hard {
			got[string(name)] = count.String()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	require.NotEmpty(t, quota.UID)
	return quota
}
