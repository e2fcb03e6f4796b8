// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/vk/reflection"
)

// both installs a definition in both clusters and lets our users at it.
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
			pluginsv1alpha1.NotReflectableReason, "only namespaces are extended"},
		"widgets.versions.example.org": {"{group: versions.example.org, version: v1alpha1, resource: widgets}",
			pluginsv1alpha1.MissingDefinitionReason, "this cluster (rome) has no widgets.versions.example.org in version v1alpha1, but in v1: set spec.version"},
		"widgets.newer.example.org": {"{group: newer.example.org, version: v1, resource: widgets, copyDefinition: true}",
			pluginsv1alpha1.MissingDefinitionReason, "cluster milan has no widgets.newer.example.org in version v1, but in v1beta1: set spec.target"},
		"widgets.elsewhere.example.org": {"{group: elsewhere.example.org, version: v1, resource: widgets, copyDefinition: true, target: {group: other.example.org, version: v1, resource: gadgets}}",
			pluginsv1alpha1.MissingDefinitionReason, "under its own name only"},
		"bindings": {"{version: v1, resource: bindings}", pluginsv1alpha1.NotReflectableReason, "offers no get, list, watch for them"},
		"replicationcontrollers": {"{version: v1, resource: replicationcontrollers, target: {version: v1, resource: configmaps}}",
			pluginsv1alpha1.NotReflectableReason, "have writers of their own"},
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
		return k.Target.Resource == "gadgets" && k.TargetKind.Kind == "Gadget" && k.TargetKind.Group == "c.example.org" && k.TargetKind.Version == "v1"
	})
	l.reflect("widgets.b.example.org", "{group: b.example.org, version: v1, resource: widgets, "+target+"}")
	l.condition("widgets.b.example.org", pluginsv1alpha1.NotReflectableReason, "gadgets.c.example.org are written to cluster milan already, by ReflectedResource widgets.a.example.org")

	l.change("widgets.a.example.org", "{workers: 0}")
	l.condition("widgets.a.example.org", pluginsv1alpha1.PausedReason)
	l.stopped("Widget.a.example.org")
	l.condition("widgets.b.example.org", pluginsv1alpha1.ReflectingReason)
}

// One namespace whose doors are closed, here or there, is no reason to keep the others waiting.
func TestClosedTwin(t *testing.T) {
	l := newLab(t).start()
	l.both("twins.example.org", "Namespaced")
	const name, kind = "widgets.twins.example.org", "Widget.twins.example.org"
	l.reflect(name, "{group: twins.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	mail, closed := l.another("mail")
	l.engine.extend(map[string]string{l.shop: l.twin, mail: closed})
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "this cluster (rome) does not let", "in namespace "+mail+".", "cluster milan does not let", "in namespace "+closed+".")
	l.install(l.local, l.kubelet.ExtendedNamespace(mail))
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "cluster milan does not let", "in namespace "+closed+".")
	if said := l.engine.heard(); !slices.Equal(said, []string{"start " + kind}) {
		t.Errorf("the engine heard %q", said)
	}
	l.install(l.remote, l.consumer.TwinNamespace(closed))
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	l.engine.extend(nil)
	l.condition(name, pluginsv1alpha1.ReflectingReason, "as soon as a namespace is extended")
}

// A hundred namespaces and ten resources are a hundred questions, not thousands.
func TestOneQuestionPerNamespace(t *testing.T) {
	l := newLab(t)
	var asked atomic.Int32
	l.options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.HasPrefix(request.URL.Path, "/apis/authorization.k8s.io/") {
				asked.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	l.options.RetryFirst = time.Minute
	l.allow(l.remote, rbac.VirtualKubeletRemoteClusterwide().Named(l.consumer.Prefix), // or that would be asked for again and again
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"list", "watch"}})
	l.start()
	l.both("asked.example.org", "Namespaced")
	twins := map[string]string{l.shop: l.twin}
	for i := range 4 {
		local, twin := l.another(fmt.Sprint(i))
		twins[local] = twin
		l.install(l.local, l.kubelet.ExtendedNamespace(local))
		l.install(l.remote, l.consumer.TwinNamespace(twin))
	}
	l.eventually(func() error { // the authorizers hear of it a moment later
		for _, s := range []*side{must(newSide(l.options.Local, "rome", false, l.options.withDefaults()))(t), must(newSide(l.options.Remote, "milan", true, l.options.withDefaults()))(t)} {
			for local, twin := range twins {
				if allowed, err := s.may(t.Context(), map[bool]string{false: local, true: twin}[s.remote], "watch", "asked.example.org", "widgets"); err != nil || !allowed {
					return fmt.Errorf("%s is closed, %v", local, err)
				}
			}
		}
		return nil
	})
	for _, resource := range []string{"widgets", "gadgets", "wheels"} {
		if resource != "widgets" {
			for _, c := range []*cluster{l.local, l.remote} {
				l.define(c, strings.NewReplacer("kind: Widget", "kind: "+resource, "widgets", resource).Replace(widgets("asked.example.org", "Namespaced")))
			}
		}
		l.reflect(resource+".asked.example.org", "{group: asked.example.org, version: v1, resource: "+resource+"}")
	}
	for _, resource := range []string{"widgets", "gadgets", "wheels"} {
		l.condition(resource+".asked.example.org", pluginsv1alpha1.ReflectingReason)
	}
	looked := l.engine.timesAsked()
	asked.Store(0)
	l.engine.extend(twins)
	l.eventually(func() error {
		if now := l.engine.timesAsked(); now < looked+1+2*3 {
			return fmt.Errorf("the namespaces were asked for %d times", now-looked)
		}
		return nil
	})
	if n := asked.Load(); n != 4 {
		t.Errorf("the provider was asked %d times about 4 further namespaces", n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// What is denied here in one namespace and in the twin of another lets nothing cross.
func TestNoNamespaceIsOpenOnBothSides(t *testing.T) {
	l := newLab(t)
	mail, open := l.another("mail")
	bank, closed := l.another("bank")
	l.install(l.remote, l.consumer.TwinNamespace(open))
	l.install(l.local, l.kubelet.ExtendedNamespace(bank))
	l.engine.twins = map[string]string{mail: open, bank: closed}
	l.start()
	l.both("doors.example.org", "Namespaced")
	const name = "widgets.doors.example.org"
	l.reflect(name, "{group: doors.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "in namespace "+mail+".", "in namespace "+closed+".")
	if said := l.engine.heard(); len(said) > 0 {
		t.Errorf("the engine heard %q", said)
	}
	l.install(l.local, l.kubelet.ExtendedNamespace(mail))
	l.reflecting("Widget.doors.example.org", func(reflection.Kind) bool { return true })
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "cluster milan does not let", "in namespace "+closed+".")
}

// What is well is looked at again and not written again; what is not served any more is not reflected any more.
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

// Each virtual node has an entry, and none writes that of another.
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

// What a virtual node said is taken out when it is certain that it is gone, by whoever is left.
func TestVirtualNodesThatAreGone(t *testing.T) {
	l := newLab(t)
	l.options.RecheckEvery = 50 * time.Millisecond
	const name = "widgets.nodes.example.org"
	l.reflect(name, "{group: nodes.example.org, version: v1, resource: widgets, workers: 0}")
	l.register(l.node+"-labelled", true)
	l.register(l.node+"-bare", false)
	l.create(l.local, offloadingv1beta1.VirtualNodeGVR, l.tenant, "{apiVersion: offloading.liqo.io/v1beta1, kind: VirtualNode, metadata: {name: "+l.node+"-nodeless}, spec: {clusterID: milan}}")
	var before []string
	for _, suffix := range []string{"-gone", "-labelled", "-bare", "-gone-too", "-nodeless"} {
		before = append(before, fmt.Sprintf("{name: %s%s, clusterID: milan}", l.node, suffix))
	}
	l.patch(l.local, reflectedResources, "", name, "status: {virtualNodes: ["+strings.Join(before, ", ")+"]}", "status")
	l.start()
	l.condition(name, pluginsv1alpha1.PausedReason)
	l.eventually(func() error {
		object, _ := l.get(name)
		if left := entries(object); !slices.Equal(left, []string{l.node + "-labelled", l.node + "-bare", l.node + "-nodeless", l.node}) {
			return fmt.Errorf("there are entries of %q", left)
		}
		return nil
	})
}

// A provider that is away changes nothing about what runs, but for what can be told without it.
func TestProviderAway(t *testing.T) {
	l := newLab(t).start()
	l.both("away.example.org", "Namespaced")
	const name, kind = "widgets.away.example.org", "Widget.away.example.org"
	l.reflect(name, "{group: away.example.org, version: v1, resource: widgets}")
	before := l.condition(name, pluginsv1alpha1.ReflectingReason)
	if err := l.remote.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	l.change(name, "{policy: AllowList, statusBack: true}")
	l.condition(name, pluginsv1alpha1.UnreachableReason, "the API server of cluster milan does not answer")
	l.reflecting(kind, func(k reflection.Kind) bool { return k.Policy == reflection.AllowList && !k.StatusBack })
	if err := l.remote.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := l.condition(name, pluginsv1alpha1.ReflectingReason)
	if !before.LastTransitionTime.Before(&after.LastTransitionTime) {
		t.Errorf("it is ready since %s, before it was away %s", after.LastTransitionTime, before.LastTransitionTime)
	}
	l.reflecting(kind, func(k reflection.Kind) bool { return k.StatusBack && !k.StatusSubresource })
	if said := l.engine.heard(); slices.Contains(said, "stop "+kind) {
		t.Errorf("the engine heard %q", said)
	}
}

// What needs no answer of the provider does not wait for one, and one that is known to be away is not asked.
func TestProviderSwallowsRequests(t *testing.T) {
	l := newLab(t)
	hole := &blackHole{}
	l.options.Remote.Wrap(hole.wrap)
	l.options.CallTimeout = time.Minute // the test would be over before
	l.start()
	l.both("hole.example.org", "Namespaced")
	const name, kind = "widgets.hole.example.org", "Widget.hole.example.org"
	l.reflect(name, "{group: hole.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	hole.open.Store(true)
	l.change(name, "{policy: AllowList}")
	l.reflecting(kind, func(k reflection.Kind) bool { return k.Policy == reflection.AllowList })
	l.eventually(func() error {
		if hole.swallowed.Load() == 0 {
			return errors.New("the provider was not asked")
		}
		return nil
	})
	l.change(name, "{workers: 0}") // while the former change is being looked at
	l.condition(name, pluginsv1alpha1.PausedReason)
	l.stopped(kind)

	l.engine.lose(true)
	l.change(name, "{workers: 1}")
	l.condition(name, pluginsv1alpha1.UnreachableReason, "the API server of cluster milan does not answer")
	hole.open.Store(false)
	l.engine.lose(false)
	l.condition(name, pluginsv1alpha1.ReflectingReason)
}

// blackHole swallows requests while it is open.
type blackHole struct {
	open      atomic.Bool
	swallowed atomic.Int32
}

func (h *blackHole) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !h.open.Load() {
			return next.RoundTrip(request)
		}
		h.swallowed.Add(1)
		<-request.Context().Done()
		return nil, request.Context().Err()
	})
}

// What is not served any more is not reflected any more, also when something else is wrong, too.
func TestDefinitionGoesAndMayNotBeCopied(t *testing.T) {
	l := newLab(t).start()
	l.both("gone.example.org", "Namespaced")
	const name, kind = "widgets.gone.example.org", "Widget.gone.example.org"
	l.reflect(name, "{group: gone.example.org, version: v1, resource: widgets, copyDefinition: true}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.undefine(l.remote, name)
	l.eventually(func() error {
		found, err := l.follower.remote.discover(t.Context(), schema.GroupVersionResource{Group: "gone.example.org", Version: "v1", Resource: "widgets"})
		if lacking := (*unserved)(nil); !errors.As(err, &lacking) {
			return fmt.Errorf("it is still served: %v, %v", found, err)
		}
		return nil
	})
	l.change(name, "{workers: 2}")
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "copy CustomResourceDefinition "+name)
	l.stopped(kind)
}

// What the engine does not take is told, and tried again.
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

// In an installation that has not heard of ReflectedResources, a virtual kubelet says so once and waits.
func TestRolesOfAnotherInstallation(t *testing.T) {
	l := newLab(t)
	role := must(l.local.core.RbacV1().ClusterRoles().Get(t.Context(), rbac.VirtualKubeletLocal().Named(l.kubelet.Prefix), metav1.GetOptions{}))(t)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, "plugins.refract.io") })
	must(l.local.core.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	l.eventually(func() error { // the authorizer hears of it a moment later
		review := must(newSide(l.options.Local, "rome", false, l.options.withDefaults()))(t)
		if allowed, err := review.may(t.Context(), "", "watch", "plugins.refract.io", "reflectedresources"); err != nil || allowed {
			return fmt.Errorf("the role still holds, %v", err)
		}
		return nil
	})
	said := &lines{}
	l.options.Log = slog.New(slog.NewTextHandler(said, nil))
	l.start()
	l.both("own.example.org", "Namespaced")
	const name = "widgets.own.example.org"
	l.reflect(name, "{group: own.example.org, version: v1, resource: widgets}")
	var advice string
	l.eventually(func() error {
		if advice = said.text(); !strings.Contains(advice, "let this virtual kubelet get, list, watch reflectedresources and patch reflectedresources/status. Add to ClusterRole") {
			return fmt.Errorf("the log has %q", advice)
		}
		return nil
	})
	l.allow(l.local, role.Name, rbacv1.PolicyRule{APIGroups: []string{"plugins.refract.io"}, Resources: []string{"reflectedresources", "reflectedresources/status"},
		Verbs: []string{"get", "list", "watch", "patch"}})
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	if n := strings.Count(said.text(), "no further resources"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// lines is a log.
type lines struct {
	mu    sync.Mutex
	bytes []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = append(l.bytes, p...)
	return len(p), nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.bytes)
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	for _, words := range []string{"client configurations", "ids", "virtual node", "engine"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not name %s", err, words)
		}
	}
}
