// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource/signature"
)

const publicKey = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
`

// covers reports whether the rules permit a verb for a resource.
func covers(rules []rbacv1.PolicyRule, resource, verb string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}

// TestDeclaredPlugins checks that the values of the signature policy are passed to the controller manager, and that
// declared plugins are disabled by default. While they are disabled, virtual kubelets must still be able to read
// plugins that are already active.
func TestDeclaredPlugins(t *testing.T) {
	given := values(t, "pair")
	given["plugins"] = map[string]any{"enabled": true, "insecureRegistries": []any{"a.svc:5000", "b.svc"}, "trust": map[string]any{
		"default": false, "prefixes": []any{map[string]any{"prefix": "registry.example.com/plugins", "mode": "Require", "keys": []any{publicKey}}},
	}}
	installed := objects(t, given)
	policy, err := signature.ParsePolicy([]byte(get[*corev1.ConfigMap](t, installed, "refract-plugin-trust").Data["policy.yaml"]))
	require.NoError(t, err)
	assert.Equal(t, signature.Off, policy.For("registry.example.com/other").Mode)
	decision := policy.For("registry.example.com/plugins/a")
	assert.Equal(t, signature.Require, decision.Mode)
	assert.Len(t, decision.Keys, 1)
	pod := get[*appsv1.Deployment](t, installed, "refract-controller-manager").Spec.Template.Spec
	assert.Subset(t, pod.Containers[0].Args, []string{"--enable-declared-plugins", "--plugin-trust-policy=/etc/refract/plugin-trust/policy.yaml", "--plugin-insecure-registries=a.svc:5000,b.svc"})
	assert.True(t, slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == "refract-plugin-trust" }))

	local := func(installed []client.Object) []rbacv1.PolicyRule {
		return get[*rbacv1.ClusterRole](t, installed, "liqo-virtual-kubelet-local").Rules
	}
	withPlugins := local(installed)
	delete(given, "plugins")
	without := local(objects(t, given))
	assert.True(t, covers(withPlugins, "pluginrevisions/status", "patch") && covers(withPlugins, "namespaces", "watch"))
	assert.False(t, covers(without, "pluginrevisions/status", "patch") || covers(without, "namespaces", "watch"))
	assert.True(t, covers(without, "reflectionplugins", "watch") && covers(without, "pluginmodules", "get"), "what is active runs on")
	for _, object := range objects(t, given) {
		named := object.GetName()
		switch object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			continue // see TestDisabledPluginsCannotBeForged
		}
		assert.False(t, strings.HasSuffix(named, "-plugin-trust") || strings.HasSuffix(named, "-plugins") || strings.HasSuffix(named, "-plugin-sources"), "%T %s", object, named)
		if deployment, ok := object.(*appsv1.Deployment); ok {
			assert.NotContains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--enable-declared-plugins")
		}
	}
}

// warnings collects the warnings of API servers.
type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) { *w = append(*w, text) }

// TestDisabledPluginsAreMentioned checks that a user who creates a ReflectionPlugin while declared plugins are disabled
// gets a warning that names the value. The object is created.
func TestDisabledPluginsAreMentioned(t *testing.T) {
	h := hold(t)
	given := values(t, "pair")
	delete(given, "plugins")
	const name = "refract-plugins-disabled"
	disabled := objects(t, given)
	h.must(h.admin.Create(t.Context(), get[*admissionv1.ValidatingAdmissionPolicy](t, disabled, name)))
	h.must(h.admin.Create(t.Context(), get[*admissionv1.ValidatingAdmissionPolicyBinding](t, disabled, name)))
	config, shown := rest.CopyConfig(h.cluster.Config()), &warnings{}
	config.WarningHandler = shown
	user, err := client.New(config, client.Options{Scheme: scheme(t)})
	h.must(err)
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "strip"}}
	p.Spec.Kinds = []string{"Service"}
	p.Spec.Source.ConfigMap = &plugins.ConfigMapSource{Name: "strip", Key: "strip.wasm"}
	h.attempt("awaiting the warning", "", func() error {
		if err := user.Create(t.Context(), p.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		if len(*shown) == 0 {
			return errors.New("there is no warning")
		}
		return nil
	})
	assert.Contains(t, (*shown)[0], "Set plugins.enabled in the values of the Refract chart")

	given["plugins"] = map[string]any{"enabled": true}
	for _, object := range objects(t, given) {
		assert.NotEqual(t, name, object.GetName())
	}
}

// TestDisabledPluginsCannotBeForged checks that while declared plugins are disabled, nobody can create revisions or
// modules, or make a revision active, because virtual kubelets run what is active. Revisions and modules can be deleted,
// because no controller deletes them.
func TestDisabledPluginsCannotBeForged(t *testing.T) {
	h := hold(t)
	given := values(t, "pair")
	delete(given, "plugins")
	for _, object := range objects(t, given) {
		disabled, isPolicy := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !isPolicy || !slices.Contains([]string{"refract-plugins", "refract-plugin-states"}, disabled.Name) {
			continue
		}
		installed := &admissionv1.ValidatingAdmissionPolicy{}
		h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(disabled), installed))
		installed.Spec = disabled.Spec
		h.must(h.admin.Update(t.Context(), installed))
	}
	manager := h.as("system:serviceaccount:"+releaseNamespace+":"+releaseName+"-controller-manager",
		"system:serviceaccounts", "system:authenticated")
	revision := revisionOfStrip()
	h.must(manager.Create(t.Context(), revision))
	h.attempt("deleting a revision", "", func() error { return h.admin.Delete(t.Context(), revision, client.DryRunAll) })
	const says = "Only the controller manager"
	forged := revisionOfStrip()
	forged.Name = "forged"
	h.attempt("creating a revision", says, func() error { return h.admin.Create(t.Context(), forged, client.DryRunAll) })
	module := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: "forged"},
		Spec: plugins.PluginModuleSpec{SHA256: revision.Spec.SHA256, Parts: 1, Data: []byte("x")}}
	h.attempt("creating a module", says, func() error { return h.admin.Create(t.Context(), module, client.DryRunAll) })
	h.attempt("reporting about a revision", says, func() error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"virtualNodes":[{"name":"milan","state":"Active"}]}}`))
		return h.admin.SubResource("status").Patch(t.Context(), revision.DeepCopy(), patch)
	})
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "strip"}}
	p.Spec.Kinds = []string{"Service"}
	p.Spec.Source.ConfigMap = &plugins.ConfigMapSource{Name: "strip", Key: "strip.wasm"}
	h.must(h.admin.Create(t.Context(), p))
	h.attempt("making a revision active", says, func() error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"activeRevision":"forged"}}`))
		return h.admin.SubResource("status").Patch(t.Context(), p.DeepCopy(), patch)
	})
}

// revisionOfStrip returns a revision of the plugin strip.
func revisionOfStrip() *plugins.PluginRevision {
	revision := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: "strip-1"}}
	revision.Spec = plugins.PluginRevisionSpec{
		Plugin: "strip", Number: 1, SHA256: strings.Repeat("a", 64), Size: 1, Parts: 1,
		Source: "configMap/strip", PolicyName: "configMap/strip",
	}
	revision.Spec.Kinds = []string{"Service"}
	return revision
}

// TestKubeletsReportPluginsForTheirOwnNode checks that a virtual kubelet that its provider has taken over can report
// only about its own node, and cannot create revisions. This is important because reports determine which revision
// becomes active.
func TestKubeletsReportPluginsForTheirOwnNode(t *testing.T) {
	h := hold(t)
	manager := h.as("system:serviceaccount:"+releaseNamespace+":"+releaseName+"-controller-manager", "system:serviceaccounts", "system:authenticated")
	revision := revisionOfStrip()
	h.must(manager.Create(t.Context(), revision))
	patch := func(c client.Client, owner string, entries []string, options ...client.SubResourcePatchOption) error {
		list := make([]any, 0, len(entries))
		for _, name := range entries {
			list = append(list, map[string]any{"name": name, "state": "Active"})
		}
		status := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": plugins.GroupVersion.String(), "kind": plugins.PluginRevisionKind, "metadata": map[string]any{"name": revision.Name},
			"status": map[string]any{"virtualNodes": list},
		}}
		return c.SubResource("status").Patch(t.Context(), status, client.Apply, append(options, client.FieldOwner(owner), client.ForceOwnership)...) //nolint:staticcheck // the dynamic form
	}
	apply := func(c client.Client, owner string, entries ...string) func() error {
		return func() error { return patch(c, owner, entries) }
	}
	milan, turin := h.kubelet("milan"), h.kubelet("turin")
	const other = "only the entry of its own node"
	// The first attempt is a dry run, because it is repeated until the policy has taken effect. Until then it succeeds,
	// and must not change anything.
	h.attempt("trying to report for another node", other, func() error { return patch(milan, "milan", []string{"turin"}, client.DryRunAll) })
	h.attempt("reporting for another node", other, apply(milan, "milan", "turin"))
	h.attempt("reporting for its own node", "", apply(milan, "milan", "milan"))
	h.attempt("reporting beside others", "", apply(turin, "turin", "turin"))
	h.attempt("reporting for its own and another node", other, apply(turin, "turin", "turin", "lodi"))
	h.attempt("taking over the entry of another node", other, func() error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"virtualNodes":[{"name":"milan","state":"Active"}]}}`))
		return milan.SubResource("status").Patch(t.Context(), revision.DeepCopy(), patch)
	})
	h.attempt("reporting as an administrator", "Only the controller manager and the virtual kubelets", apply(h.admin, "admin", "milan"))
	h.attempt("withdrawing its report", "", apply(milan, "milan"))
	h.attempt("withdrawing the report of a node that is gone", "", func() error {
		return manager.SubResource("status").Patch(t.Context(), revision.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status/virtualNodes/0"}]`)))
	})
	for _, object := range []client.Object{revision, &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: "module"}, Spec: plugins.PluginModuleSpec{SHA256: revision.Spec.SHA256, Parts: 1, Data: []byte("x")}}} {
		object.SetName("forged")
		object.SetResourceVersion("")
		h.attempt("creating a revision or module", "forbidden", func() error { return milan.Create(t.Context(), object) })
	}
	h.attempt("listing modules", "forbidden", func() error { return milan.List(t.Context(), &plugins.PluginModuleList{}) })
}
