// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/vk/reflection"
)

// both installs a definition in both clusters and grants the virtual kubelet's users access to its objects.
func (l *lab) both(group, scope string) {
	l.Helper()
	l.define(l.local, widgets(group, scope))
	l.define(l.remote, widgets(group, scope))
	l.grant(group)
}

func TestWhatCannotBeReflected(t *testing.T) {
	l := newLab(t).start()
	l.both("clusterwide.example.org", "Cluster")
	l.both("versions.example.org", "Namespaced")
	l.define(l.local, widgets("newer.example.org", "Namespaced"))
	l.define(l.remote, strings.ReplaceAll(widgets("newer.example.org", "Namespaced"), "name: v1,", "name: v1beta1,"))
	l.define(l.local, widgets("elsewhere.example.org", "Namespaced"))
	l.allow(l.remote, rbac.VirtualKubeletRemoteClusterwide().Named(l.consumer.Prefix),
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "create"}})

	for name, c := range map[string]struct{ spec, reason, words string }{
		"widgets.clusterwide.example.org": {"{group: clusterwide.example.org, version: v1, resource: widgets}",
			pluginsv1alpha1.NotReflectableReason, "only namespaced resources can be reflected"},
		"widgets.versions.example.org": {"{group: versions.example.org, version: v1alpha1, resource: widgets}",
			pluginsv1alpha1.MissingDefinitionReason, "this cluster (rome) has no widgets.versions.example.org in version v1alpha1, but in v1: set spec.version"},
		"widgets.newer.example.org": {"{group: newer.example.org, version: v1, resource: widgets, copyDefinition: true}",
			pluginsv1alpha1.MissingDefinitionReason, "cluster milan has no widgets.newer.example.org in version v1, but in v1beta1: set spec.target"},
		"widgets.elsewhere.example.org": {"{group: elsewhere.example.org, version: v1, resource: widgets, copyDefinition: true, target: {group: other.example.org, version: v1, resource: gadgets}}",
			pluginsv1alpha1.MissingDefinitionReason, "under its own name only"},
		"bindings": {"{version: v1, resource: bindings}", pluginsv1alpha1.NotReflectableReason, "offers no get, list, watch for them"},
		"replicationcontrollers": {"{version: v1, resource: replicationcontrollers, target: {version: v1, resource: configmaps}}",
			pluginsv1alpha1.NotReflectableReason, "which other controllers write"},
	} {
		l.reflect(name, c.spec)
		l.condition(name, c.reason, c.words)
	}
	if said := l.engine.heard(); len(said) > 0 {
		t.Errorf("the engine heard %q", said)
	}
}

func TestTargets(t *testing.T) {
	l := newLab(t).start()
	l.define(l.local, widgets("a.example.org", "Namespaced"))
	l.define(l.local, widgets("b.example.org", "Namespaced"))
	l.define(l.remote, strings.NewReplacer("kind: Widget", "kind: Gadget", "widgets", "gadgets").Replace(widgets("c.example.org", "Namespaced")))
	for _, group := range []string{"a.example.org", "b.example.org", "c.example.org"} {
		l.grant(group)
	}
	const target = "target: {group: c.example.org, version: v1, resource: gadgets}"
	l.reflect("widgets.a.example.org", "{group: a.example.org, version: v1, resource: widgets, "+target+"}")
	l.condition("widgets.a.example.org", pluginsv1alpha1.ReflectingReason, "as gadgets.c.example.org v1")
	l.reflecting("Widget.a.example.org", func(k reflection.Kind) bool {
		return k.Copy.GVR.Resource == "gadgets" && k.Copy.GVK.Kind == "Gadget" && k.Copy.GVK.Group == "c.example.org" && k.Copy.GVK.Version == "v1"
	})
	l.reflect("widgets.b.example.org", "{group: b.example.org, version: v1, resource: widgets, "+target+"}")
	l.condition("widgets.b.example.org", pluginsv1alpha1.NotReflectableReason, "gadgets.c.example.org are written to cluster milan already, by ReflectedResource widgets.a.example.org")

	l.change("widgets.a.example.org", "{workers: 0}")
	l.condition("widgets.a.example.org", pluginsv1alpha1.PausedReason)
	l.stopped("Widget.a.example.org")
	l.condition("widgets.b.example.org", pluginsv1alpha1.ReflectingReason)
}

// TestQuietUntilTheDefinitionGoes checks that the checks of a running reflection cause no writes, and that the
// reflection stops when the resource is no longer served.
func TestQuietUntilTheDefinitionGoes(t *testing.T) {
	l := newLab(t)
	l.options.RecheckEvery = 20 * time.Millisecond
	l.start()
	l.both("quiet.example.org", "Namespaced")
	const name, kind = "widgets.quiet.example.org", "Widget.quiet.example.org"
	l.reflect(name, "{group: quiet.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	before, _ := l.get(name)
	asked := l.engine.timesAsked()
	l.eventually(func() error {
		if now := l.engine.timesAsked(); now < asked+20 {
			return fmt.Errorf("the namespaces were asked for %d times", now-asked)
		}
		return nil
	})
	if after, _ := l.get(name); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the status was written again: %v", after.Object["status"])
	}
	if said := l.engine.heard(); !slices.Equal(said, []string{"start " + kind}) {
		t.Errorf("the engine heard %q", said)
	}
	l.undefine(l.remote, name)
	l.condition(name, pluginsv1alpha1.MissingDefinitionReason, "cluster milan has no "+name)
	l.stopped(kind)
}

// TestTwoVirtualNodes checks that each virtual node has its own entry and does not write the entries of other nodes.
func TestTwoVirtualNodes(t *testing.T) {
	one, other := newLab(t).start(), newLab(t)
	one.both("two.example.org", "Namespaced")
	const name = "widgets.two.example.org"
	one.reflect(name, "{group: two.example.org, version: v1, resource: widgets}")
	first := one.condition(name, pluginsv1alpha1.ReflectingReason)
	other.start()
	other.condition(name, pluginsv1alpha1.MissingPermissionReason)
	if now := one.condition(name, pluginsv1alpha1.ReflectingReason); !now.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("the entry of the first is %+v, was %+v", now, first)
	}
}

// TestVirtualNodesThatAreGone checks that one of the remaining virtual nodes removes the entry of a virtual node that
// certainly no longer exists.
func TestVirtualNodesThatAreGone(t *testing.T) {
	l := newLab(t)
	l.options.RecheckEvery = 50 * time.Millisecond
	const name = "widgets.nodes.example.org"
	l.reflect(name, "{group: nodes.example.org, version: v1, resource: widgets, workers: 0}")
	l.register(l.node+"-labelled", true)
	l.register(l.node+"-bare", false)
	l.create(l.local, offloadingv1beta1.VirtualNodeGVR, l.tenant, "{apiVersion: offloading.liqo.io/v1beta1, kind: VirtualNode, metadata: {name: "+l.node+"-nodeless}, spec: {clusterID: milan}}")
	l.create(l.local, offloadingv1beta1.VirtualNodeGVR, l.tenant, "{apiVersion: offloading.liqo.io/v1beta1, kind: VirtualNode, metadata: {name: "+l.node+"-described}, spec: {clusterID: milan}}")
	l.options.VirtualNode = l.node + "-described" // name of the VirtualNode of our node
	var before []string
	for _, suffix := range []string{"-gone", "-labelled", "-bare", "-gone-too", "-nodeless"} {
		before = append(before, fmt.Sprintf("{name: %s%s, clusterID: milan}", l.node, suffix))
	}
	// The Node of the first entry is gone, but its VirtualNode exists. The VirtualNode of the second entry was deleted
	// together with its Node.
	for _, suffix := range []string{"-described", "-gone"} {
		before = append(before, fmt.Sprintf("{name: %s-of%s, virtualNode: %s%s, clusterID: milan}", l.node, suffix, l.node, suffix))
	}
	l.patch(l.local, reflectedResources, "", name, "status: {virtualNodes: ["+strings.Join(before, ", ")+"]}", "status")
	l.start()
	l.condition(name, pluginsv1alpha1.PausedReason)
	l.eventually(func() error {
		object, _ := l.get(name)
		left, described := statusEntries(object)
		if !slices.Equal(left, []string{l.node + "-labelled", l.node + "-bare", l.node + "-nodeless", l.node + "-of-described", l.node}) {
			return fmt.Errorf("there are entries of %q", left)
		}
		if described[l.node] != l.options.VirtualNode {
			return fmt.Errorf("ours is said to be described by %q", described[l.node])
		}
		return nil
	})
}

// TestEngineRefuses checks that an error of the engine is reported and retried.
func TestEngineRefuses(t *testing.T) {
	l := newLab(t)
	l.engine.refuse(errors.New("not before breakfast"))
	l.start()
	l.both("refused.example.org", "Namespaced")
	const name = "widgets.refused.example.org"
	l.reflect(name, "{group: refused.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.NotReflectableReason, "not before breakfast")
	l.engine.refuse(nil)
	l.condition(name, pluginsv1alpha1.ReflectingReason)
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	for _, words := range []string{"client configurations", "ids", "virtual node", "engine"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not name %s", err, words)
		}
	}
}
