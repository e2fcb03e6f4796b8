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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/objectcounts"
)

func counts(of map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range of {
		list[corev1.ResourceName(name)] = resource.MustParse(count)
	}
	return list
}

// TestObjectsOfAConsumerAreCounted checks that the number of a consumer's objects is limited. The quota is restored
// after deletions and changes, and follows changes of the flag.
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

// TestObjectsThatAreNotCountedAreNotRefused checks that objects are not denied only because kube-controller-manager
// does not count them yet, if their CRD was installed recently.
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
	// Later, the controller tries to apply the limit again.
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3", unknown: "7"})
	awaitCounts(t, remote, map[string]string{"count/configmaps": "3"})
}

// TestTheCountOfPoliciesKeepsNoEgressPolicyAway checks that a consumer that has reached its maximum number of
// NetworkPolicies cannot prevent the NetworkPolicies of this cluster, and cannot create more policies, even if it has
// used the number that is reserved for this cluster.
func TestTheCountOfPoliciesKeepsNoEgressPolicyAway(t *testing.T) {
	const remote, policies = "policies-lima", "count/networkpolicies.networking.k8s.io"
	limited := func(o *controllers.Options) { o.ObjectCounts = counts(map[string]string{policies: "3"}) }
	m := provider.StartManager(t, limited)
	nm := replicated(tenant(t, "lima3"), "lima3", map[string]string{"policies": remote})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"policies": "Accepted"})
	awaitCounts(t, remote, map[string]string{policies: "12"})
	policy := awaitEgress(t, remote, "169.254.0.0/16", true)
	m.Stop(t)

	provider.Delete(t, policy)
	mine := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: remote, GenerateName: "mine-"}}
	fill := func() error {
		for range 20 {
			if err := provider.Client.Create(t.Context(), mine.DeepCopy()); apierrors.IsForbidden(err) && strings.Contains(err.Error(), "used: "+policies+"=12") {
				return nil
			}
		}
		return fmt.Errorf("the count has not reached the limit")
	}
	controllertest.Eventually(t, "no room for another one", fill)

	provider.StartManager(t, limited)
	awaitEgress(t, remote, "169.254.0.0/16", true)
	quota := awaitCounts(t, remote, map[string]string{policies: "12"})
	controllertest.Eventually(t, "no room for another one", func() error {
		err := provider.Client.Create(t.Context(), mine.DeepCopy())
		if !apierrors.IsForbidden(err) { // the API server applies the limit after a delay
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
	provider.Get(t, quota, remote, quota.Name)
	require.Equal(t, "12", ptr.To(quota.Spec.Hard[policies]).String())
}

// TestTheLimitIsRaisedAndNeverRemoved checks that the limit is raised by exactly the needed number each time this
// cluster needs another object, and that it is never removed.
func TestTheLimitIsRaisedAndNeverRemoved(t *testing.T) {
	const policies = "count/networkpolicies.networking.k8s.io"
	namespace := provider.Namespace(t)
	restoring := brake.Client(provider.Client, provider.Client, events.NewFakeRecorder(100), nil, corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
	counted := objectcounts.New(restoring, objectcounts.Options{Limits: counts(map[string]string{policies: "3"})})
	require.NoError(t, counted.Ensure(t.Context(), namespace, nil, metav1.ObjectMeta{}))
	for range 20 {
		require.NoError(t, counted.Raise(t.Context(), namespace, policies, 2))
		require.NoError(t, counted.Raise(t.Context(), namespace, policies, 2))
		awaitCounts(t, namespace, map[string]string{policies: "5"})
		require.NoError(t, counted.Ensure(t.Context(), namespace, nil, metav1.ObjectMeta{}))
		awaitCounts(t, namespace, map[string]string{policies: "3"})
	}
	for i := range 3 {
		provider.Create(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("mine-%d", i)}})
	}
	quota := awaitCounts(t, namespace, map[string]string{policies: "3"})
	provider.Patch(t, quota, `{"spec":{"hard":{"`+policies+`":"2"}}}`)
	lower := objectcounts.New(restoring, objectcounts.Options{Limits: counts(map[string]string{policies: "2"})})
	controllertest.Eventually(t, "the number of policies", func() error {
		provider.Get(t, quota, namespace, quota.Name)
		if used := ptr.To(quota.Status.Used[policies]).Value(); used != 3 {
			return fmt.Errorf("%d are counted", used)
		}
		return nil
	})
	require.NoError(t, lower.Raise(t.Context(), namespace, policies, 1))
	awaitCounts(t, namespace, map[string]string{policies: "4"})
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
