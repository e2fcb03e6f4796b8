// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

func withPolicies(o *reflection.Options) {
	o.Kinds = reflectiontest.Kinds(reflection.ConfigMapKind, reflection.NetworkPolicyKind)
}

func networkPolicy(name, spec string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s}, spec: %s}", name, spec)
}

// is returns a check that a field has exactly the given value.
func is(field, want string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(field, ".")...)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		var wanted, got any // both values are decoded from JSON, so that numbers have the same types
		if err := errors.Join(yaml.Unmarshal([]byte(want), &wanted), yaml.Unmarshal(text, &got)); err != nil {
			return err
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			return fmt.Errorf("%s (-want +got): %s", field, diff)
		}
		return nil
	}
}

// TestNetworkPoliciesCross checks that the copy of a policy isolates the same pods. A peer in another namespace is
// allowed as soon as the other namespace is offloaded. If the peers of a rule cannot be translated, the rule must not
// be reflected without peers, because it would allow all traffic.
func TestNetworkPoliciesCross(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), withPolicies)
	second := l.Namespace + "-second"
	l.Local.CreateNamespace(t, second)
	l.Admit(second)
	secondRemote := l.AnotherNamespace()
	l.Local.Create(t, l.Namespace, networkPolicy("closed", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
	l.Local.Create(t, l.Namespace, networkPolicy("open", fmt.Sprintf(`{podSelector: {matchLabels: {app: db}}, ingress: [{from: [
		{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}]}], policyTypes: [Ingress]}`, second)))
	l.Local.Create(t, l.Namespace, networkPolicy("team", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: payments}}}]}], policyTypes: [Ingress]}`))
	l.Start()
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "closed", is("spec", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "team", is("spec", `{podSelector: {}, policyTypes: [Ingress]}`))
	l.Event(l.Namespace, "NetworkPolicy", "team", "Warning", "PluginWarning", "spec.ingress[0].from[0].namespaceSelector", "team", "kubernetes.io/metadata.name")
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "open", is("spec.podSelector", `{matchLabels: {app: db}}`), is("spec.ingress", `null`))
	l.Event(l.Namespace, "NetworkPolicy", "open", "Warning", "PluginWarning", "no namespace that is offloaded there")

	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS, second: secondRemote})
	let := fmt.Sprintf(`[{from: [{namespaceSelector: {matchLabels: {liqo.io/remote-cluster-id: rome}, matchExpressions: [
		{key: liqo.io/tenant-namespace, operator: DoesNotExist}, {key: kubernetes.io/metadata.name, operator: In, values: [%s]}]}}]}]`, secondRemote)
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "open", is("spec.ingress", let))
	l.Settled()
	l.Stop()
	written := l.Remote.Writes(t)
	l.Start()
	l.Settled()
	require.Equal(t, written, l.Remote.Writes(t), "a restart, during which the namespaces become known one by one, changes nothing")

	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "open", is("spec.ingress", `null`))
	l.Local.PatchYAML(t, "NetworkPolicy", l.Namespace, "open", `{spec: {ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}}`)
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "open", is("spec.ingress", `[{from: [{podSelector: {matchLabels: {app: web}}}]}]`))
	l.Local.Delete(t, "NetworkPolicy", l.Namespace, "open")
	l.Absent(l.Remote, "NetworkPolicy", l.RemoteNS, "open")
}

// TestNetworkPoliciesThatAreRefusedIsolate checks that a NetworkPolicy that the provider's admission rejects still
// isolates its pods. A new policy is created without its rules. A changed policy keeps the rules that it also had
// before; if these are rejected as well, it has no rules.
func TestNetworkPoliciesThatAreRefusedIsolate(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), withPolicies)
	name := "peers-" + l.RemoteNS
	l.Remote.Create(t, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [networkpolicies]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  validations: [{expression: "!has(object.spec.ingress) || size(object.spec.ingress) <= 1 && object.spec.ingress.all(r, size(r.from) <= 2)", reason: Forbidden, message: too many peers}]`, name, l.RemoteNS))
	l.Remote.Create(t, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s, validationActions: [Deny]}}`, name, name))
	peers := func(apps ...string) string {
		rule := "{from: ["
		for _, app := range apps {
			rule += "{podSelector: {matchLabels: {app: " + app + "}}}, "
		}
		return rule + "]}"
	}
	probe := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(networkPolicy("probe", `{podSelector: {}, ingress: [`+peers("a", "b", "c")+`]}`)), &probe.Object))
	l.Eventually(func() error {
		_, err := l.Remote.Of("NetworkPolicy", l.RemoteNS).Create(l.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy does not deny: %w", err)
		}
		return nil
	})
	l.Local.Create(t, l.Namespace, networkPolicy("new", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ingress: [`+peers("a", "b", "c")+`], egress: [{}]}`))
	l.Local.Create(t, l.Namespace, networkPolicy("changed", `{podSelector: {}, policyTypes: [Ingress], ingress: [`+peers("a", "b")+`]}`))
	l.Start()
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "new", is("spec", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress]}`))
	l.Event(l.Namespace, "NetworkPolicy", "new", "Warning", "part of the object was rejected", "less than the rules allow", "too many peers")
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "changed", is("spec.ingress", "["+peers("a", "b")+"]"))

	change := func(rules ...string) {
		l.Local.PatchYAML(t, "NetworkPolicy", l.Namespace, "changed", `{spec: {ingress: [`+strings.Join(rules, ", ")+`]}}`)
	}
	change(peers("a", "b"), peers("c"))
	l.Event(l.Namespace, "NetworkPolicy", "changed", "Warning", "part of the update was rejected", "too many peers")
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "changed", is("spec.ingress", "["+peers("a", "b")+"]"))
	change(peers("a", "b", "c"))
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "changed", is("spec", `{podSelector: {}, policyTypes: [Ingress]}`))
	l.Settled()
	l.Stop()
	l.Start()
	l.Settled()
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "changed", is("spec", `{podSelector: {}, policyTypes: [Ingress]}`))
	change(peers("c"))
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "changed", is("spec.ingress", "["+peers("c")+"]"))
}

// TestAddressBlocksOfNetworkPolicies checks that an address block that contains remapped addresses is translated as a
// whole, or removed.
func TestAddressBlocksOfNetworkPolicies(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), withPolicies, func(o *reflection.Options) {
		o.FollowIPs = true
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.1.0.0/16"})
		o.RemoteIPs, _ = ipmap.New(ipmap.Config{PodCIDRs: []string{"10.245.0.0/16"}, PodCIDRRemaps: []string{"10.71.0.0/16"}})
	})
	l.defineIPs()
	blocks := func(list string) string {
		return networkPolicy("blocks", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [`+list+`]}]}`)
	}
	l.Local.Create(t, l.Namespace, blocks(`{ipBlock: {cidr: 10.71.4.0/24}}, {ipBlock: {cidr: 10.1.7.0/24}}, {ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 192.0.2.0/24}},
		{ipBlock: {cidr: 0.0.0.0/0, except: [192.168.0.0/16]}}, {ipBlock: {cidr: 0.0.0.0/0, except: [10.1.0.0/16]}}`))
	l.Start()
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS, "blocks", is("spec.ingress", `[{from: [
		{ipBlock: {cidr: 10.245.4.0/24}}, {ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: 0.0.0.0/0, except: [192.168.0.0/16]}}]}]`))
	for _, words := range []string{"from[1].ipBlock.cidr 10.1.7.0/24", "from[2].ipBlock.cidr 10.0.0.0/8", "from[5].ipBlock.except 10.1.0.0/16"} {
		l.Event(l.Namespace, "NetworkPolicy", "blocks", "Warning", "PluginWarning", words)
	}
}

// withhold removes resources from a role of the manager, and returns a function that restores the role.
func (l *lab) withhold(s *reflectiontest.Side, suffix string, resources ...string) (restore func()) {
	l.Helper()
	roles := s.Core.RbacV1().ClusterRoles()
	all := reflectiontest.Must(roles.List(l.Context(), metav1.ListOptions{}))(l.T)
	at := slices.IndexFunc(all.Items, func(role rbacv1.ClusterRole) bool {
		return strings.HasPrefix(role.Name, l.Node+"-") && strings.HasSuffix(role.Name, suffix)
	})
	require.GreaterOrEqual(l, at, 0, "the role %s", suffix)
	role := &all.Items[at]
	granted := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(resources, func(r string) bool { return slices.Contains(rule.Resources, r) })
	})
	role = reflectiontest.Must(roles.Update(l.Context(), role, metav1.UpdateOptions{}))(l.T)
	return func() {
		role.Rules = granted.Rules
		_ = reflectiontest.Must(roles.Update(l.Context(), role, metav1.UpdateOptions{}))(l.T)
	}
}

// TestProviderThatDoesNotGrantAKind checks that if a provider, such as Liqo or an older version, does not grant
// access to a kind, all other kinds are reflected. An Event on each object of the kind reports the consequence. The
// objects are reflected as soon as access is granted.
func TestProviderThatDoesNotGrantAKind(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.ConfigMapKind, reflection.IngressKind, reflection.NetworkPolicyKind, reflection.DisruptionBudgetKind)
	})
	restore := l.withhold(l.Remote, "virtual-kubelet-remote", "networkpolicies", "poddisruptionbudgets", "ingresses")
	l.Local.Create(t, l.Namespace, networkPolicy("closed", `{podSelector: {}}`))
	l.Local.Create(t, l.Namespace, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: db}, spec: {maxUnavailable: 1, selector: {}}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`)
	l.StartUnready()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: ours}, data: {a: b}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "ours")
	l.Event(l.Namespace, "NetworkPolicy", "closed", "Warning", "FailedReflection", "cluster "+l.ID+" does not grant networkpolicies.networking.k8s.io in namespace "+l.RemoteNS, "its pods there are not isolated", "upgrade Refract")
	l.Event(l.Namespace, "PodDisruptionBudget", "db", "Warning", "FailedReflection", "poddisruptionbudgets.policy", "evictions of its pods there are not limited")
	l.Event(l.Namespace, "Ingress", "web", "Warning", "FailedReflection", "ingresses.networking.k8s.io")
	l.Local.Create(t, l.Namespace, networkPolicy("later", `{podSelector: {}}`))
	l.Event(l.Namespace, "NetworkPolicy", "later", "Warning", "FailedReflection", "does not grant")
	require.True(t, l.Manager.Synced() && l.Manager.Reachable(), "the virtual kubelet does without the kinds")
	require.Len(t, l.Events(l.Namespace, "NetworkPolicy", "closed"), 1, "once")

	restore()
	for kind, name := range map[string]string{"NetworkPolicy": "later", "PodDisruptionBudget": "db", "Ingress": "web"} {
		l.Present(l.Remote, kind, l.RemoteNS, name)
	}
}

// TestKindThatThisClusterDoesNotGrant checks that if the roles of this cluster are older than the virtual kubelet,
// this is reported in an Event, and the virtual kubelet becomes ready.
func TestKindThatThisClusterDoesNotGrant(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), withPolicies)
	ungranted := l.Namespace + "-ungranted"
	l.Local.CreateNamespace(t, ungranted)
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS, ungranted: l.AnotherNamespace()})
	l.StartUnready()
	l.Event(l.Tenant, "VirtualNode", l.Node, "Warning", "FailedReflection", "no NetworkPolicy of namespace "+ungranted, "its pods there are not isolated", "refractctl install")
	l.Eventually(func() error {
		if !l.Manager.Synced() {
			return fmt.Errorf("the manager waits for what it may not read")
		}
		return nil
	})
	l.Admit(ungranted)
	l.Local.Create(t, ungranted, networkPolicy("closed", `{podSelector: {}}`))
	l.Present(l.Remote, "NetworkPolicy", l.RemoteNS+"-2", "closed")
}
