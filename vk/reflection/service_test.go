// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

func service(name, annotations string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, labels: {app: %s}, annotations: {%s}}
spec: {selector: {app: %s}, ports: [{name: http, port: 80, targetPort: 8080}]}`, name, name, annotations, name)
}

// owned is the labels of what the lab's manager makes.
func (l *lab) owned() string {
	return "offloading.liqo.io/origin: rome, offloading.liqo.io/destination: " + l.id
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 50 {
		l.local.create(t, l.namespace, service(fmt.Sprintf("web-%d", i), ""))
		l.local.create(t, l.namespace, slice(fmt.Sprintf("web-%d-x", i), fmt.Sprintf("web-%d", i), "10.1.2.3"))
	}
	l.start()
	for i := range 50 {
		l.present(l.remote, "Service", l.remoteNS, fmt.Sprintf("web-%d", i))
		l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, fmt.Sprintf("web-%d-x", i))
	}
	l.quiet("an idle manager", func() {})
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.stop()
	l.startUnready()
	began := time.Now()
	l.local.create(t, l.namespace, service("first", ""))
	l.present(l.remote, "Service", l.remoteNS, "first")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the first new object after a restart took %s", took)
	}
	l.settled()
	l.quiet("changing what does not cross", func() {
		l.local.patchYAML(t, "Service", l.namespace, "web-1", `{metadata: {finalizers: [example.com/hold]}}`)
		l.local.patchYAML(t, "Service", l.namespace, "web-1", `{metadata: {finalizers: null}}`)
	})
	before := len(l.remote.writes(t))
	l.local.patchYAML(t, "Service", l.namespace, "web-1", `{spec: {sessionAffinity: ClientIP}}`)
	l.present(l.remote, "Service", l.remoteNS, "web-1", field("spec.sessionAffinity", "ClientIP"))
	l.settled()
	if made := l.remote.writes(t)[before:]; len(made) != 1 {
		t.Errorf("one change of a Service made the writes %q, want one", made)
	}
	if events := l.events(l.namespace, "Service", "web-1"); len(events) > 0 {
		t.Errorf("a Service that crossed without trouble has the Events %q", events)
	}
}

func TestTheAPIServersOwnServiceStays(t *testing.T) {
	// Not parallel: the default namespace belongs to all.
	l := newLab(t)
	l.admit("default")
	l.mapNamespaces(map[string]string{"default": l.remoteNS})
	l.start()
	l.local.create(t, "default", service("canary", ""))
	l.present(l.remote, "Service", l.remoteNS, "canary")
	l.settled()
	l.local.delete(t, "Service", "default", "canary")
	if l.remote.get(t, "Service", l.remoteNS, "kubernetes") != nil {
		t.Error("default/kubernetes crossed")
	}
}

func TestChains(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 20 {
		l.local.create(t, l.namespace, service(fmt.Sprintf("web-%d", i), "vendor.example/x: vendor"))
	}
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web-19", field("metadata.annotations/vendor.example/x", "vendor"))
	l.settled()

	// A new chain: every object is evaluated, and written where the result differs.
	strip := func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if _, err := doc.Remove("metadata.annotations[vendor.example/x]"); err != nil {
			return nil, err
		}
		return mutateService(doc, env)
	}
	before := len(l.remote.writes(t))
	l.chains.swap("Service", host.Outgoing, strip)
	for i := range 20 {
		l.present(l.remote, "Service", l.remoteNS, fmt.Sprintf("web-%d", i), field("metadata.annotations/vendor.example/x", ""))
	}
	l.settled()
	if got := len(l.remote.writes(t)) - before; got != 20 {
		t.Errorf("the new chain made %d writes for 20 Services", got)
	}
	l.quiet("a chain with the same results", func() { l.chains.swap("Service", host.Outgoing, strip) })

	// A chain that fails: the copies stay, the user is told, not twice, and not for ten thousand objects at once.
	l.chains.swap("Service", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return nil, &host.PluginFailedError{Plugin: "picky", Reason: "no such zone"}
	})
	l.event(l.namespace, "Service", "web-3", "Warning", "PluginFailed", "picky", "no such zone")
	l.settled()
	l.chains.swap("Service", host.Outgoing, l.chains.hooks["Serviceoutgoing"])
	l.settled()
	if events := l.events(l.namespace, "Service", "web-3"); len(events) != 1 {
		t.Errorf("the same failure twice made the Events %q, want one", events)
	}
	l.present(l.remote, "Service", l.remoteNS, "web-3", field("spec.selector/app", "web-3"))

	// A warning is told and nothing else happens.
	l.chains.swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		out, err := strip(doc, env)
		out.Warnings = []host.Warning{{Plugin: "chatty", Message: "zone is deprecated"}}
		return out, err
	})
	l.event(l.namespace, "Service", "web-4", "Warning", "PluginWarning", "chatty", "zone is deprecated")

	// A skip is a decision: the copy goes, and comes back when the decision is taken back.
	l.chains.swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if name, _ := doc.View().Field("metadata").Field("name").Text(); name == "web-5" {
			return &host.Outcome{Skipped: true, Skipper: "home", SkipReason: "stays at home"}, nil
		}
		return strip(doc, env)
	})
	l.absent(l.remote, "Service", l.remoteNS, "web-5")
	l.event(l.namespace, "Service", "web-5", "Normal", "ReflectionDisabled", "home", "stays at home")
	l.chains.swap("Service", host.Outgoing, strip)
	l.present(l.remote, "Service", l.remoteNS, "web-5")

	// A result that is no object is refused without touching the copy.
	l.chains.swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetInt("metadata.labels.app", 7)
	})
	l.event(l.namespace, "Service", "web-6", "Warning", "InvalidObject", "metadata.labels[app]")
	l.present(l.remote, "Service", l.remoteNS, "web-6", field("metadata.labels/app", "web-6"))

	// A chain that panics hurts nobody.
	l.chains.swap("Service", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) { panic("boom") })
	l.event(l.namespace, "Service", "web-7", "Warning", "internal error")
	l.chains.swap("Service", host.Outgoing, strip)
	l.local.patchYAML(t, "Service", l.namespace, "web-7", `{metadata: {labels: {after: panic}}}`)
	l.present(l.remote, "Service", l.remoteNS, "web-7", field("metadata.labels/after", "panic"))
}

// A chain whose result depends on what it did last time is stopped, told about, and released when it makes sense again.
func TestOscillationIsQuarantined(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := 0
	flip := func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		n++
		if err := doc.SetString("metadata.labels.turn", []string{"left", "right"}[n%2]); err != nil {
			return nil, err
		}
		return mutateService(doc, env)
	}
	l.options.Workers = map[string]int{ServiceKind: 1}
	l.chains.swap("Service", host.Outgoing, flip)
	l.local.create(t, l.namespace, service("web", ""))
	l.start()
	for i := range 12 {
		l.local.patchYAML(t, "Service", l.namespace, "web", fmt.Sprintf(`{metadata: {finalizers: [example.com/n%d]}}`, i))
		l.settled()
	}
	l.event(l.namespace, "Service", "web", "Warning", "ReflectionQuarantined", "back and forth")
	if writes := l.remote.writes(t); len(writes) > 4 {
		t.Errorf("an oscillating Service was written %d times", len(writes))
	}
	l.chains.swap("Service", host.Outgoing, mutateService)
	l.present(l.remote, "Service", l.remoteNS, "web", field("metadata.labels/turn", ""))
	l.local.patchYAML(t, "Service", l.namespace, "web", `{metadata: {finalizers: null}}`)
}

func TestOffloadingPatchIsFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chains.swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		patch, _ := env.Context["offloadingPatch"].(map[string]any)
		keys, _ := patch["labelsNotReflected"].([]any)
		for _, key := range keys {
			if _, err := doc.Remove("metadata.labels." + key.(string)); err != nil {
				return nil, err
			}
		}
		return mutateService(doc, env)
	})
	l.local.create(t, l.namespace, service("web", ""))
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web", field("metadata.labels/app", "web"))
	l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, `{spec: {offloadingPatch: {labelsNotReflected: [app]}}}`)
	l.present(l.remote, "Service", l.remoteNS, "web", field("metadata.labels/app", ""))
	l.settled()
	l.stop()
	l.quiet("a restart with a patch", func() { l.start() })
	l.quiet("a change of the VirtualNode that is none of ours", func() {
		l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, `{metadata: {labels: {colour: blue}}}`)
	})
}

func TestFollower(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.local.create(t, l.namespace, service("web", ""))
	l.startUnready()
	l.manager.SetLeading(false)
	l.eventually(func() error {
		if !l.manager.Ready() {
			return errors.New("not ready")
		}
		return nil
	})
	l.settled()
	l.manager.SetLeading(true)
	l.present(l.remote, "Service", l.remoteNS, "web")
}

// A provider that refuses a copy is told about, once, and tried again.
func TestRefusedCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	bendTo := func(serviceType string) {
		l.chains.swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
			if err := doc.SetString("spec.type", serviceType); err != nil {
				return nil, err
			}
			return mutateService(doc, env)
		})
	}
	bendTo("Nonsense")
	l.local.create(t, l.namespace, service("web", ""))
	l.start()
	l.event(l.namespace, "Service", "web", "Warning", "FailedReflection", "Nonsense")
	tries := l.evaluated() + 3
	l.eventually(func() error {
		if n := l.evaluated(); n < tries {
			return fmt.Errorf("%d evaluations, want %d", n, tries)
		}
		return nil
	})
	bendTo("Gibberish") // Events keep their order: what was said of the first refusal is there by then
	l.event(l.namespace, "Service", "web", "Warning", "FailedReflection", "Gibberish")
	first := slices.DeleteFunc(l.events(l.namespace, "Service", "web"), func(text string) bool { return !strings.Contains(text, "Nonsense") })
	if len(first) != 1 || !strings.Contains(first[0], " x1: ") {
		t.Errorf("one refusal made the Events %q", first)
	}
	l.chains.swap("Service", host.Outgoing, mutateService)
	l.present(l.remote, "Service", l.remoteNS, "web")
}

// A further kind is a few lines.
func TestFurtherKind(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) {
		o.Kinds = append(DefaultKinds(), Kind{Name: "Lease.coordination.k8s.io", Source: resources["Lease"], Policy: DenyList, Workers: 1})
	})
	l.allow("coordination.k8s.io", "leases")
	l.local.create(t, l.namespace, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: lock}, spec: {holderIdentity: me, leaseDurationSeconds: 7}}`)
	l.start()
	l.present(l.remote, "Lease", l.remoteNS, "lock", field("spec.holderIdentity", "me"), field("metadata.labels/offloading.liqo.io/origin", "rome"))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
}
