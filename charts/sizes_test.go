// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// TestSizesOfObjects checks that the sizes of consumers' objects are limited, and that ordinary objects are far below
// the limits.
func TestSizesOfObjects(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	containers := func(count, env int) []corev1.Container {
		all := make([]corev1.Container, count)
		for i := range all {
			all[i] = corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "web:1", Env: slices.Repeat([]corev1.EnvVar{{Name: "A"}}, env)}
		}
		return all
	}
	ephemeral := func(count, env int) (all []corev1.EphemeralContainer) {
		for _, c := range containers(count, env) {
			all = append(all, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image, Env: c.Env}})
		}
		return all
	}
	for says, change := range map[string]func(*corev1.PodSpec){
		"more than 50 containers":                             func(s *corev1.PodSpec) { s.Containers = containers(51, 0) },
		"more than 50 containers in a list":                   func(s *corev1.PodSpec) { s.InitContainers = containers(51, 0) },
		"spec.pod.containers has one with more than 1000":     func(s *corev1.PodSpec) { s.Containers = containers(1, 1001) },
		"spec.pod.initContainers has one with more than 1000": func(s *corev1.PodSpec) { s.InitContainers = containers(1, 1001) },
		"spec.pod.volumes has more than 200":                  func(s *corev1.PodSpec) { s.Volumes = slices.Repeat([]corev1.Volume{{Name: "v"}}, 201) },
		"more than 50 containers in a list, which":            func(s *corev1.PodSpec) { s.EphemeralContainers = ephemeral(51, 0) },
		"spec.pod.ephemeralContainers has one with":           func(s *corev1.PodSpec) { s.EphemeralContainers = ephemeral(1, 1001) },
	} {
		h.refused(rome, shadow(remoteNamespace, func(s *offloadingv1beta1.ShadowPod) { change(&s.Spec.Pod) }), says)
	}
	largest := shadow(remoteNamespace, func(s *offloadingv1beta1.ShadowPod) {
		s.Spec.Pod.Containers, s.Spec.Pod.InitContainers = containers(50, 20), containers(1, 1000)
		s.Spec.Pod.Volumes = slices.Repeat([]corev1.Volume{{Name: "v"}}, 200)
	})
	h.must(rome.Create(t.Context(), largest, client.DryRunAll))

	slice := func(endpoints int) *offloadingv1beta1.ShadowEndpointSlice {
		return &offloadingv1beta1.ShadowEndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "web", Labels: map[string]string{wire.OriginLabel: "rome"}},
			Spec: offloadingv1beta1.ShadowEndpointSliceSpec{Template: offloadingv1beta1.EndpointSliceTemplate{
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: slices.Repeat([]discoveryv1.Endpoint{{Addresses: []string{"10.9.0.1"}}}, endpoints),
			}},
		}
	}
	h.refused(rome, slice(1001), "spec.template.endpoints has more than 1000")
	h.must(rome.Create(t.Context(), slice(1000), client.DryRunAll))

	namespaces := map[string]string{}
	for i := range 5001 {
		namespaces[fmt.Sprintf("n%d", i)] = "r"
	}
	nm := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("rome"), Name: "milan"}, Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: namespaces}}
	h.refused(h.admin, nm, "spec.desiredMapping has more than 5000")
	for local, remote := range map[string]string{strings.Repeat("n", 64): "r", "n": strings.Repeat("r", 254)} {
		nm.Spec.DesiredMapping = map[string]string{local: remote}
		h.refused(h.admin, nm, "spec.desiredMapping has a name of more than")
	}
	nm.Spec.DesiredMapping = map[string]string{strings.Repeat("n", 63): strings.Repeat("r", 253)}
	h.must(h.admin.Create(t.Context(), nm, client.DryRunAll))

	// The labels, annotations and fields of a consumer's request are limited in number and size.
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("k%d", i)] = "v"
	}
	long := strings.Repeat("9", 16385)
	resources := map[string]any{}
	for i := range 65 {
		resources[fmt.Sprintf("example.com/r%d", i)] = "1"
	}
	for says, change := range map[string]func(o *unstructured.Unstructured){
		"more than 64 labels": func(o *unstructured.Unstructured) { o.SetLabels(many) },
		"64 labels or annota": func(o *unstructured.Unstructured) { o.SetAnnotations(many) },
		"more than 4096":      func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"note": long}) },
		"more than 16384":     func(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"csr": long + "999"} },
		"spec has a field":    func(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"consumerClusterID": long} },
	} {
		for _, kind := range []string{"authentication.liqo.io/v1beta1, kind: ResourceSlice", "authentication.liqo.io/v1beta1, kind: Renew", "offloading.liqo.io/v1beta1, kind: NamespaceMap", "coordination.k8s.io/v1, kind: Lease"} {
			object := h.tenantObject("{apiVersion: " + kind + ", metadata: {name: large}}")
			change(object)
			if !strings.HasPrefix(kind, "authentication") && object.Object["spec"] != nil {
				continue // only requests have such fields
			}
			h.refused(h.admin, object, says)
		}
	}
	lease := h.tenantObject("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: refract-heartbeat}, spec: {leaseDurationSeconds: 60}}")
	h.must(unstructured.SetNestedField(lease.Object, long[:1025], "spec", "holderIdentity"))
	h.refused(rome, lease, "spec has a field of more than 1024")
	h.must(unstructured.SetNestedField(lease.Object, "virtual-kubelet", "spec", "holderIdentity"))
	h.must(rome.Create(t.Context(), lease, client.DryRunAll))
	for _, amounts := range []map[string]any{resources, {"cpu": long}, {long: "1"}} {
		slice := h.tenantObject("{apiVersion: authentication.liqo.io/v1beta1, kind: ResourceSlice, metadata: {name: large}}")
		slice.Object["spec"] = map[string]any{"resources": amounts}
		h.refused(h.admin, slice, "spec.resources has more than 64 entries, or one that is too long")
	}
	h.limitsFields()
	h.exemptsFromSizes(nm, namespaces)
	values := strings.Repeat("v, ", 65)
	for _, selector := range []string{"{matchExpressions: [{key: a, operator: In, values: [" + values + "]}]}", "{matchExpressions: [" + strings.Repeat("{key: a, operator: Exists}, ", 65) + "]}"} {
		policy := (&wish{}).parse(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: large}, spec: {podSelector: "+selector+"}}", "")
		h.refused(h.admin, policy, "spec.podSelector has more than 64")
	}
	policy := (&wish{}).parse(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: large}, spec: {podSelector: {}}}", "")
	h.must(h.admin.Create(t.Context(), policy.DeepCopy(), client.DryRunAll))
	h.must(unstructured.SetNestedStringMap(policy.Object, many, "spec", "podSelector", "matchLabels"))
	h.refused(h.admin, policy, "spec.podSelector has more than 64")
	// A selector that was too large before may stay.
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	h.must(h.admin.Create(t.Context(), before))
	policy.SetNamespace(before.Name)
	h.must(h.admin.Create(t.Context(), policy))
	change := func(object client.Object, text string, options ...client.PatchOption) error {
		return h.admin.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	h.must(change(before, `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"rome"}}}`))
	h.attempt("growing spec.podSelector", "spec.podSelector has more than 64", func() error {
		return change(policy.DeepCopy(), `{"spec":{"podSelector":{"matchLabels":{"another":"v"}}}}`, client.DryRunAll)
	})
	h.must(change(policy.DeepCopy(), `{"metadata":{"labels":{"tier":"gold"}},"spec":{"policyTypes":["Ingress","Egress"]}}`, client.DryRunAll))
	h.must(h.admin.Create(t.Context(), h.tenantObject("{apiVersion: authentication.liqo.io/v1beta1, kind: ResourceSlice, metadata: {name: usual}, spec: {resources: {cpu: '4', memory: 8Gi}, class: default}}"), client.DryRunAll))
}

// limitsFields checks that each field in requests of consumers is accepted up to its limit and rejected above it.
func (h *held) limitsFields() {
	h.Helper()
	const slice, renew = "ResourceSlice", "Renew"
	try := func(kind string, limit int, says string, field ...string) {
		h.Helper()
		with := func(size int) *unstructured.Unstructured {
			object := h.tenantObject("{apiVersion: authentication.liqo.io/v1beta1, kind: " + kind + ", metadata: {name: large}}")
			h.must(unstructured.SetNestedField(object.Object, strings.Repeat("9", size), append([]string{"spec"}, field...)...))
			return object
		}
		h.refused(h.admin, with(limit+4), says) // 4 more, because the length of a base64 value is a multiple of 4
		h.must(h.admin.Create(h.Context(), with(limit), client.DryRunAll))
	}
	const says = "spec has a field of more than 16384"
	for kind, fields := range map[string][]string{slice: {"csr", "class", "consumerClusterID", "providerClusterID"}, renew: {"csr", "publicKey", "consumerClusterID"}} {
		for _, field := range fields {
			try(kind, 16384, says, field)
		}
	}
	try(renew, 253, says, "resourceSliceRef", "name")
}

// exemptsFromSizes checks the exemptions from the limits: the controller manager can write large NamespaceMaps for
// providers, and the finalizers of a large object can be removed while the object is being deleted, but its spec
// cannot be changed.
func (h *held) exemptsFromSizes(nm *offloadingv1beta1.NamespaceMap, namespaces map[string]string) {
	h.Helper()
	large := nm.DeepCopy()
	large.Spec.DesiredMapping = namespaces
	manager := "system:serviceaccount:" + releaseNamespace + ":" + releaseName + "-controller-manager"
	h.must(h.as(manager).Create(h.Context(), large.DeepCopy(), client.DryRunAll))

	ending := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}}
	h.must(h.admin.Create(h.Context(), ending))
	large.Namespace, large.Finalizers = ending.Name, []string{"example.com/hold"}
	h.must(h.admin.Create(h.Context(), large))
	h.must(h.admin.Delete(h.Context(), large))
	h.must(h.admin.Patch(h.Context(), ending, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":"rome"}}}`))))
	h.attempt("changing what is being deleted", "spec.desiredMapping has more than 5000", func() error {
		return h.admin.Patch(h.Context(), large.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"desiredMapping":{"another":"r"}}}`)), client.DryRunAll)
	})
	h.must(h.admin.Patch(h.Context(), large.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// TestSizesOfTraffic checks that the sizes of objects that are distributed to all nodes, or to processes that serve
// all tenants, are limited, and that existing objects may stay.
func TestSizesOfTraffic(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	h.annotate(remoteNamespace, map[string]string{"ingress-hosts": "*"})
	list := func(count int, entry string) string {
		var entries []string
		for i := range count {
			entries = append(entries, strings.ReplaceAll(entry, "N", fmt.Sprint(1+i)))
		}
		return "[" + strings.Join(entries, ", ") + "]"
	}
	service := func(ports int) string { return serviceOf("ports: " + list(ports, "{name: pN, port: N}")) }
	ingress := func(rules, tls string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: thing}, spec: {rules: " + rules + ", tls: " + tls + "}}"
	}
	paths := func(count int) string {
		return "[{host: a.example.com, http: {paths: " + list(count, "{path: /N, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}") + "}}]"
	}
	policy := func(spec string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: thing}, spec: {podSelector: {}, " + spec + "}}"
	}
	budget := func(selector string) string {
		return "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: thing}, spec: {maxUnavailable: 1, selector: " + selector + "}}"
	}
	const many = "which is not allowed for consumers"
	large := "{matchExpressions: [{key: a, operator: In, values: " + list(65, "vN") + "}]}"
	for what, w := range map[string]wish{
		"ports":                     {object: service(251), says: "spec.ports has more than 250", instead: service(250)},
		"paths":                     {object: ingress(paths(1000), "[]"), says: "spec has more than 1000 rules, paths", instead: ingress(paths(999), "[]")},
		"rules of an Ingress":       {object: ingress(list(1001, "{host: hN.example.com}"), "[]"), says: "spec has more than 1000 rules, paths"},
		"hosts of certificates":     {object: ingress(paths(1), "[{hosts: "+list(998, "hN.example.com")+"}]"), says: "spec has more than 1000 rules, paths", instead: ingress(paths(1), "[{hosts: "+list(997, "hN.example.com")+"}]")},
		"peers":                     {object: policy("egress: [{to: " + list(1000, "{ipBlock: {cidr: 10.9.0.0/16}}") + "}]"), says: "spec has more than 1000 rules, peers", instead: policy("egress: [{to: " + list(999, "{ipBlock: {cidr: 10.9.0.0/16}}") + "}]")},
		"exceptions":                {object: policy("egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: " + list(999, "10.9.0.0/16") + "}}]}]"), says: "spec has more than 1000 rules, peers"},
		"ports of a NetworkPolicy":  {object: policy("ingress: [{ports: " + list(1000, "{port: N}") + "}]"), says: "spec has more than 1000 rules, peers"},
		"rules of a NetworkPolicy":  {object: policy("ingress: " + list(501, "{}") + ", egress: " + list(501, "{}")), says: "spec has more than 1000 rules, peers"},
		"the selector of a peer":    {object: policy("ingress: [{from: [{podSelector: " + large + "}]}]"), says: "spec has a selector with more than 64", instead: policy("ingress: [{from: [{podSelector: {}}]}]")},
		"the selector of namespace": {object: policy("egress: [{to: [{namespaceSelector: " + large + "}]}]"), says: "spec has a selector with more than 64"},
		"the selector of a budget":  {object: budget(large), says: "spec has a selector with more than 64", instead: budget("{matchLabels: {app: web}}")},
	} {
		w.what = what
		h.attempt(what, w.says, func() error { return write(t, rome, w.parse(t, w.object, ""), false) })
		h.try(rome, &w, w.object, "", many)
		h.try(rome, &w, w.instead, "", "")
	}
	existing := (&wish{}).parse(t, service(251), "")
	h.must(h.admin.Create(t.Context(), existing))
	patch := func(text string) error {
		return rome.Patch(t.Context(), existing.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
	}
	h.must(patch(`{"metadata":{"labels":{"tier":"gold"}}}`))
	h.must(patch(`{"spec":{"sessionAffinity":"ClientIP"}}`))

	// A list that exceeds the limit after an upgrade of Refract may be changed or shortened, even if it still exceeds
	// the limit, but must not be extended.
	selector := func(count int) string {
		return "{matchExpressions: [{key: a, operator: In, values: " + list(count, "vN") + "}]}"
	}
	peer := func(selector string) string { return "{podSelector: " + selector + "}" }
	for what, sizes := range map[string]struct{ existing, smaller, larger, says string }{
		"ports": {service(255), service(251), service(256), "spec.ports has more than 250"},
		"paths": {ingress(paths(1005), "[]"), ingress(paths(1001), "[]"), ingress(paths(1006), "[]"), "spec has more than 1000 rules, paths"},
		"peers": {
			policy("egress: [{to: " + list(1005, "{ipBlock: {cidr: 10.9.0.0/16}}") + "}]"), policy("egress: [{to: " + list(1001, "{ipBlock: {cidr: 10.9.0.0/16}}") + "}]"),
			policy("egress: [{to: " + list(1006, "{ipBlock: {cidr: 10.9.0.0/16}}") + "}]"), "spec has more than 1000 rules, peers",
		},
		"the selector of a peer": {
			policy("ingress: [{from: [" + peer(selector(70)) + "]}]"), policy("ingress: [{from: [" + peer(selector(67)) + ", " + peer(selector(67)) + "]}]"),
			policy("ingress: [{from: [" + peer(selector(68)) + ", " + peer(selector(67)) + "]}]"), "spec has a selector with more than 64",
		},
		"the selector of a budget": {budget(selector(70)), budget(selector(65)), budget(selector(71)), "spec has a selector with more than 64"},
	} {
		existing := (&wish{what: what}).parse(t, sizes.existing, "")
		existing.SetName("large")
		h.must(h.admin.Create(t.Context(), existing))
		update := func(text string) error {
			object := (&wish{what: what}).parse(t, text, "")
			changed := existing.DeepCopy()
			for field, value := range object.Object["spec"].(map[string]any) {
				h.must(unstructured.SetNestedField(changed.Object, value, "spec", field))
			}
			return rome.Patch(t.Context(), changed, client.MergeFrom(existing), client.DryRunAll)
		}
		h.attempt("growing "+what, sizes.says, func() error { return update(sizes.larger) })
		h.must(update(sizes.smaller))
		h.must(h.admin.Delete(t.Context(), existing))
	}
}

// TestControllerManagerIsLimited checks that the controller manager, which serves all peers, has a memory limit, that
// its container gets this limit for the Go runtime, and that the default limits on the numbers of consumers' objects
// are passed as flags. If the memory limit is removed in the values, the Go runtime must not get one.
func TestControllerManagerIsLimited(t *testing.T) {
	vals := values(t, "provider")
	container := get[*appsv1.Deployment](t, objects(t, vals), "refract-controller-manager").Spec.Template.Spec.Containers[0]
	assert.Equal(t, "512Mi", container.Resources.Limits.Memory().String())
	limit := func(env []corev1.EnvVar) *corev1.EnvVar {
		if i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == "REFRACT_MEMORY_LIMIT" }); i >= 0 {
			return &env[i]
		}
		return nil
	}
	require.NotNil(t, limit(container.Env))
	assert.Equal(t, "limits.memory", limit(container.Env).ValueFrom.ResourceFieldRef.Resource)
	assert.Contains(t, container.Args, "--tenant-object-counts=count/configmaps=5000,count/ingresses.networking.k8s.io=2000,count/networkpolicies.networking.k8s.io=500,count/persistentvolumeclaims=2000,"+
		"count/poddisruptionbudgets.policy=500,count/renews.authentication.liqo.io=100,count/resourceslices.authentication.liqo.io=100,count/secrets=10000,count/services=2000,count/shadowendpointslices.offloading.liqo.io=5000,count/shadowpods.offloading.liqo.io=5000")
	assert.Contains(t, container.Args, "--tenant-default-object-count=1000")
	assert.Contains(t, container.Args, "--tenant-default-quota=persistentvolumeclaims=1000,requests.storage=10Ti,services.loadbalancers=10,services.nodeports=100")

	vals["controllerManager"] = map[string]any{"pod": map[string]any{"resources": map[string]any{"limits": nil}}}
	container = get[*appsv1.Deployment](t, objects(t, vals), "refract-controller-manager").Spec.Template.Spec.Containers[0]
	assert.Nil(t, limit(container.Env))
}
