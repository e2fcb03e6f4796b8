// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/ipmap"
)

// awaitEgress waits for a NetworkPolicy that allows all addresses. If excepted is true, the range in the argument
// except must be one of its exceptions. Otherwise, it must not be an exception.
func awaitEgress(t *testing.T, namespace, except string, excepted bool) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	controllertest.Eventually(t, fmt.Sprintf("egress to %s: %t", except, !excepted), func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "refract-egress"}, policy); err != nil {
			return err
		}
		for _, peer := range policy.Spec.Egress[1].To {
			if peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0" && slices.Contains(peer.IPBlock.Except, except) == excepted {
				return nil
			}
		}
		return fmt.Errorf("the peers are %v", policy.Spec.Egress[1].To)
	})
	return policy
}

// TestEgressPolicy checks that the default egress of a remote namespace excludes the ranges of the provider, including
// nodes that are added later. The policy is restored after changes and deletions. It is deleted if the annotation of
// the tenant namespace disables it.
func TestEgressPolicy(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	policy := awaitEgress(t, home+"-shop", "169.254.0.0/16", true)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, wire.TenantNamespaceLabel))
	for namespace, reached := range map[string]bool{home: false, home + "-shop": true} {
		object := &corev1.Namespace{}
		provider.Get(t, object, "", namespace)
		selector, err := metav1.LabelSelectorAsSelector(policy.Spec.Egress[1].To[0].NamespaceSelector)
		require.NoError(t, err)
		require.Equal(t, reached, selector.Matches(labels.Set(object.Labels)), namespace)
	}
	provider.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: home}, Spec: corev1.NodeSpec{PodCIDR: "10.77.0.0/24", PodCIDRs: []string{"10.77.0.0/24"}}})
	awaitEgress(t, home+"-shop", "10.77.0.0/24", true)

	provider.Delete(t, policy)
	awaitEgress(t, home+"-shop", "10.77.0.0/24", true)
	provider.Patch(t, policy, `{"spec":{"egress":[{},{}]}}`)
	awaitEgress(t, home+"-shop", "10.77.0.0/24", true)

	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, `{"metadata":{"annotations":{"tenants.refract.io/egress-policy":"false"}}}`)
	controllertest.Eventually(t, "no NetworkPolicy", func() error {
		list := &networkingv1.NetworkPolicyList{}
		if err := provider.Client.List(t.Context(), list); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Namespace == home+"-shop" {
				return fmt.Errorf("there is one")
			}
		}
		return nil
	})
}

// awaitBlock waits until the default egress allows a range explicitly, or does not.
func awaitBlock(t *testing.T, namespace, cidr string, allowed bool) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("block %s: %t", cidr, allowed), func() error {
		policy := &networkingv1.NetworkPolicy{}
		key := types.NamespacedName{Namespace: namespace, Name: wire.EgressNetworkPolicy}
		if err := provider.Client.Get(t.Context(), key, policy); err != nil {
			return err
		}
		isBlock := func(peer networkingv1.NetworkPolicyPeer) bool {
			return peer.IPBlock != nil && peer.IPBlock.CIDR == cidr
		}
		if slices.ContainsFunc(policy.Spec.Egress[1].To, isBlock) != allowed {
			return fmt.Errorf("the peers are %v", policy.Spec.Egress[1].To)
		}
		return nil
	})
}

// remap creates the Configuration of a peer in its tenant namespace, or replaces its published ranges.
func remap(t *testing.T, tenant, peer, pods, external string) *networking.Configuration {
	t.Helper()
	c := &networking.Configuration{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant, Name: peer, Labels: map[string]string{wire.RemoteClusterIDLabel: peer},
	}}
	c.Spec.Remote.CIDR = networking.ClusterConfigCIDR{Pod: []networking.CIDR{"10.244.0.0/16"}, External: []networking.CIDR{"10.70.0.0/16"}}
	if err := provider.Client.Create(t.Context(), c); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	if pods != "" {
		provider.PatchStatus(t, c, fmt.Sprintf(`{"status":{"remote":{"cidr":{"pod":[%q],"external":[%q]}}}}`, pods, external))
	}
	return c
}

// TestPodsOfAConsumerDoNotReachOtherPeers checks that the default egress excludes the ranges by which this cluster
// reaches other peers, and follows them. The ranges of the consumer's own cluster are included, as are those that
// egress-cidrs allows. A peer without published ranges changes nothing, whatever range it asks for.
func TestPodsOfAConsumerDoNotReachOtherPeers(t *testing.T) {
	homes, shops := map[string]string{}, map[string]string{}
	for _, consumer := range []string{"rome", "turin"} {
		homes[consumer] = tenant(t, consumer)
		shops[consumer] = homes[consumer] + "-shop"
	}
	remap(t, homes["rome"], "rome", "10.61.0.0/16", "10.71.0.0/16")
	provider.StartManager(t)
	for consumer, home := range homes {
		nm := replicated(home, consumer, map[string]string{"shop": shops[consumer]})
		provider.Create(t, nm)
		awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	}
	// The ranges of a peer that has joined before are excluded from the start, before the consumer has access.
	for consumer, excepted := range map[string]bool{"rome": false, "turin": true} {
		for _, cidr := range []string{"10.61.0.0/16", "10.71.0.0/16"} {
			awaitEgress(t, shops[consumer], cidr, excepted)
		}
	}

	remap(t, homes["turin"], "turin", "", "")
	milan := remap(t, tenant(t, "milan"), "milan", "10.65.0.0/16", "10.75.0.0/16")
	for _, shop := range shops {
		awaitEgress(t, shop, "10.65.0.0/16", true)
		awaitEgress(t, shop, "10.75.0.0/16", true)
		awaitEgress(t, shop, "10.244.0.0/16", false)
	}
	remap(t, homes["turin"], "turin", "10.63.0.0/16", "10.73.0.0/16")
	awaitEgress(t, shops["rome"], "10.63.0.0/16", true)
	awaitEgress(t, shops["turin"], "10.63.0.0/16", false)
	remap(t, homes["rome"], "rome", "10.67.0.0/16", "10.71.0.0/16")
	awaitEgress(t, shops["turin"], "10.67.0.0/16", true)
	awaitEgress(t, shops["turin"], "10.61.0.0/16", false)
	awaitEgress(t, shops["rome"], "10.67.0.0/16", false)

	annotate := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"tenants.refract.io/egress-cidrs":%s}}}`, value)
		provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: homes["turin"]}}, patch)
	}
	annotate(`"10.67.0.0/16"`)
	awaitBlock(t, shops["turin"], "10.67.0.0/16", true)
	awaitBlock(t, shops["rome"], "10.67.0.0/16", false)
	annotate("null")
	awaitBlock(t, shops["turin"], "10.67.0.0/16", false)

	provider.Delete(t, milan)
	awaitEgress(t, shops["turin"], "10.65.0.0/16", false)
	awaitEgress(t, shops["turin"], "10.71.0.0/16", true)
}

// TestNoEgressIfAllAddressesAreOurs checks that the default egress has no block of an IP family whose addresses all
// belong to this cluster. An exception of all addresses is not valid, and without it the block would allow everything.
func TestNoEgressIfAllAddressesAreOurs(t *testing.T) {
	home := tenant(t, "rome")
	all, err := ipmap.ParseRanges("--own-cidrs", []string{"0.0.0.0/0"})
	require.NoError(t, err)
	provider.StartManager(t, func(o *controllers.Options) { o.OwnCIDRs = all })
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	awaitBlock(t, home+"-shop", "::/0", true)
	awaitBlock(t, home+"-shop", "0.0.0.0/0", false)
}

// awaitAllowed waits until all pods are isolated, and exactly the given pods have the default egress. A pod is
// identified by the values of its labels app and tier.
func awaitAllowed(t *testing.T, namespace string, allowed ...string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("egress of pods %v", allowed), func() error {
		list := &networkingv1.NetworkPolicyList{}
		if err := provider.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			return err
		}
		isolated := map[string]bool{}
		var actual []string
		for i := range list.Items {
			policy := &list.Items[i]
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			if err != nil {
				return err
			}
			for _, pod := range []string{"web/", "web/internal", "db/", "db/internal"} {
				app, tier, _ := strings.Cut(pod, "/")
				set := labels.Set{"app": app}
				if tier != "" {
					set["tier"] = tier
				}
				if !selector.Matches(set) {
					continue
				}
				isolated[pod] = isolated[pod] || policy.Name == wire.EgressIsolationPolicy
				if strings.HasPrefix(policy.Name, wire.EgressNetworkPolicy) && len(policy.Spec.Egress) > 0 && !slices.Contains(actual, pod) {
					actual = append(actual, pod)
				}
			}
		}
		slices.Sort(actual)
		if len(isolated) != 4 || !slices.Equal(actual, allowed) {
			return fmt.Errorf("%v are isolated, and default egress is allowed to %v", isolated, actual)
		}
		return nil
	})
}

// TestDefaultEgressAddsNothingToOtherPolicies checks that, if a policy of the consumer or of an administrator selects a
// pod, the default egress does not extend the rules of this policy.
func TestDefaultEgressAddsNothingToOtherPolicies(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	namespace := home + "-shop"
	awaitAllowed(t, namespace, "db/", "db/internal", "web/", "web/internal")

	policy := func(name string, selector metav1.LabelSelector, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
		created := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: networkingv1.NetworkPolicySpec{PodSelector: selector, PolicyTypes: types}}
		provider.Create(t, created)
		return created
	}
	policy("ingress-only", metav1.LabelSelector{}, networkingv1.PolicyTypeIngress)
	both := policy("both", metav1.LabelSelector{MatchLabels: map[string]string{"app": "db", "tier": "internal"}}, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	awaitAllowed(t, namespace, "db/", "web/", "web/internal")
	web := policy("web", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, networkingv1.PolicyTypeEgress)
	awaitAllowed(t, namespace, "db/")
	all := policy("all", metav1.LabelSelector{}, networkingv1.PolicyTypeEgress)
	awaitAllowed(t, namespace)

	provider.Delete(t, all)
	awaitAllowed(t, namespace, "db/")
	provider.Patch(t, web, `{"spec":{"podSelector":{"matchLabels":{"app":"db"}}}}`)
	awaitAllowed(t, namespace, "web/", "web/internal")
	provider.Delete(t, web)
	provider.Delete(t, both)
	awaitAllowed(t, namespace, "db/", "db/internal", "web/", "web/internal")
}

// TestOneEgressPolicyInTroubleDoesNotStopTheOthers checks that a policy that cannot be written does not prevent the
// writes of the other policies.
func TestOneEgressPolicyInTroubleDoesNotStopTheOthers(t *testing.T) {
	home := tenant(t, "rome")
	m := provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	namespace := home + "-shop"
	awaitAllowed(t, namespace, "db/", "db/internal", "web/", "web/internal")
	m.Stop(t)

	policy := &networkingv1.NetworkPolicy{}
	provider.Get(t, policy, namespace, wire.EgressNetworkPolicy)
	provider.Patch(t, policy, `{"spec":{"egress":[{},{}]}}`)
	provider.Get(t, policy, namespace, wire.EgressIsolationPolicy)
	provider.Delete(t, policy)
	mend := provider.Forbid(t, "create", "networkpolicies")
	provider.StartManager(t)
	awaitEgress(t, namespace, "169.254.0.0/16", true)
	mend()
	awaitAllowed(t, namespace, "db/", "db/internal", "web/", "web/internal")
}

// TestWhatRemainsIsReportedOnce checks that two persistent problems are reported once, whatever the number of
// reconciliations: pods without egress in a namespace, and invalid limits.
func TestWhatRemainsIsReportedOnce(t *testing.T) {
	for reason, spoil := range map[string]func(t *testing.T, home, remote string){
		"EgressPolicyIncomplete": func(t *testing.T, _, remote string) {
			for i := range 4 { // the complement of 4 selectors with 2 labels each has 16 combinations
				selector := metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprintf("a%d", i): "x", fmt.Sprintf("b%d", i): "x"}}
				provider.Create(t, &networkingv1.NetworkPolicy{
					ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: fmt.Sprintf("p%d", i)},
					Spec:       networkingv1.NetworkPolicySpec{PodSelector: selector, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}},
				})
			}
		},
		"InvalidLimits": func(t *testing.T, home, _ string) {
			provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, `{"metadata":{"annotations":{"tenants.refract.io/egress-policy":"perhaps"}}}`)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			home := tenant(t, "rome")
			provider.StartManager(t)
			nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
			provider.Create(t, nm)
			awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
			spoil(t, home, home+"-shop")
			provider.AwaitEvent(t, home, "NamespaceMap", nm.Name, reason)
			for i := range 3 { // each change causes a successful reconciliation
				local := fmt.Sprintf("more%d", i)
				provider.Patch(t, nm, fmt.Sprintf(`{"spec":{"desiredMapping":{%q:%q}}}`, local, home+"-"+local))
				controllertest.Eventually(t, "another namespace", func() error {
					provider.Get(t, nm, home, nm.Name)
					if nm.Status.CurrentMapping[local].Phase != offloading.MappingAccepted {
						return fmt.Errorf("the mappings are %v", nm.Status.CurrentMapping)
					}
					return nil
				})
			}
			told := int32(0)
			for _, event := range provider.Events(t, home, "NamespaceMap", nm.Name) {
				if event.Reason == reason {
					told++
					if event.Series != nil {
						told += event.Series.Count - 1
					}
				}
			}
			require.EqualValues(t, 1, told)
		})
	}
}

// TestLimitsComeBeforeAccess checks that a consumer has no permissions in a namespace while one of its limits is
// missing.
func TestLimitsComeBeforeAccess(t *testing.T) {
	for name, limit := range map[string]func(*controllers.Options){
		"networkpolicies": func(*controllers.Options) {},
		"limitranges": func(o *controllers.Options) {
			o.LimitRange = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}
		},
		"resourcequotas": func(o *controllers.Options) { o.ObjectCounts = counts(map[string]string{"count/configmaps": "3"}) },
		"resourcequotas of consumers": func(o *controllers.Options) {
			o.ConsumerDefaults = counts(map[string]string{"services.nodeports": "3"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(name, " ")
			provider.StartManager(t, limit)
			home := tenant(t, "rome")
			remote := home + "-shop"
			mend := provider.Forbid(t, "create", kind)
			nm := replicated(home, "rome", map[string]string{"shop": remote})
			provider.Create(t, nm)
			controllertest.Eventually(t, "the reason", func() error {
				provider.Get(t, nm, home, nm.Name)
				if message := nm.Status.CurrentMapping["shop"].Message; !strings.Contains(message, kind) {
					return fmt.Errorf("the message is %q", message)
				}
				return nil
			})
			bindings := &rbacv1.RoleBindingList{}
			require.NoError(t, provider.Client.List(t.Context(), bindings, client.InNamespace(remote)))
			require.Empty(t, bindings.Items)
			mend()
			awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
			require.NoError(t, provider.Client.List(t.Context(), bindings, client.InNamespace(remote)))
			require.NotEmpty(t, bindings.Items)
		})
	}
}

// TestEgressPoliciesOfOthersStay checks that an administrator's NetworkPolicy that has a reserved name is neither
// overwritten nor deleted, and that an Event contains the remedy.
func TestEgressPoliciesOfOthersStay(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	theirs := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: home + "-shop", Name: wire.EgressNetworkPolicy + "-2"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db", "tier": "internal"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}}
	provider.Create(t, theirs)
	provider.AwaitEvent(t, home, offloading.NamespaceMapKind, nm.Name, "EgressPolicyNameTaken")
	controllertest.Eventually(t, "the default egress to leave out their pods", func() error {
		policy := &networkingv1.NetworkPolicy{}
		return provider.Client.Get(t.Context(), types.NamespacedName{Namespace: theirs.Namespace, Name: wire.EgressNetworkPolicy + "-3"}, policy)
	})
	kept := &networkingv1.NetworkPolicy{}
	provider.Get(t, kept, theirs.Namespace, theirs.Name)
	require.Equal(t, theirs.UID, kept.UID)
	require.Equal(t, theirs.Spec, kept.Spec)
}

// TestLimitRange checks that each remote namespace has the LimitRange of the provider, which is restored after changes.
func TestLimitRange(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t, func(o *controllers.Options) {
		o.LimitRange = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}
	})
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	await := func() *corev1.LimitRange {
		limits := &corev1.LimitRange{}
		controllertest.Eventually(t, "the LimitRange", func() error {
			if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: home + "-shop", Name: "refract-limits"}, limits); err != nil {
				return err
			}
			if request := limits.Spec.Limits[0].DefaultRequest.Cpu().String(); request != "100m" {
				return fmt.Errorf("the default request is %s", request)
			}
			return nil
		})
		return limits
	}
	limits := await()
	provider.Patch(t, limits, `{"spec":{"limits":[{"type":"Container","defaultRequest":{"cpu":"2"}}]}}`)
	provider.Delete(t, await())
	await()
}

// TestAnOpenedEgressPolicyIsAlwaysRestored checks the case in which a client of this cluster opens the NetworkPolicy of
// a remote namespace whenever it is restored. The policy is still restored every few seconds, and an Event names the
// client.
func TestAnOpenedEgressPolicyIsAlwaysRestored(t *testing.T) {
	home := tenant(t, "rome")
	m := provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	policy := awaitEgress(t, home+"-shop", "169.254.0.0/16", true)
	open := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"egress":[{},{}]}}`))
	told := func() bool {
		for _, event := range provider.Events(t, home+"-shop", "NetworkPolicy", policy.Name) {
			if event.Reason == wire.ReflectionQuarantinedReason && strings.Contains(event.Note, `"opener" (Update)`) {
				return true
			}
		}
		return false
	}
	for start := time.Now(); !told(); time.Sleep(100 * time.Millisecond) {
		require.NoError(t, provider.Client.Patch(t.Context(), policy.DeepCopy(), open, client.FieldOwner("opener")))
		if time.Since(start) > time.Minute {
			t.Fatalf("there is no Event after %d writes, but %v", len(m.Writes.About("PATCH", policy.Name)), provider.Events(t, home+"-shop", "NetworkPolicy", policy.Name))
		}
	}
	before := len(m.Writes.About("PATCH", policy.Name))
	for range 60 {
		require.NoError(t, provider.Client.Patch(t.Context(), policy.DeepCopy(), open, client.FieldOwner("opener")))
		time.Sleep(100 * time.Millisecond)
	}
	if writes := len(m.Writes.About("PATCH", policy.Name)) - before; writes > 5 {
		t.Errorf("the policy was restored %d times within six seconds", writes)
	}
	awaitEgress(t, home+"-shop", "169.254.0.0/16", true)
}
