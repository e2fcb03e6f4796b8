// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

// anotherNamespace makes a second namespace on the provider that ours may be mapped to.
func (l *lab) anotherNamespace() string {
	l.Helper()
	name := l.remoteNS + "-2"
	l.remote.createNamespace(l.T, name)
	clusters.granting.Lock()
	defer clusters.granting.Unlock()
	consumer := rbac.Consumer{Prefix: l.node + "-", Subject: rbac.User(l.remote.user)}
	if err := rbac.Install(l.Context(), l.remote.core, consumer.RemoteNamespace(name)); err != nil {
		l.Fatal(err)
	}
	l.granted(l.remote, name, "pods", "")
	return name
}

// A namespace gets another remote namespace right after its objects were written: they come to the new one, nothing is deleted in
// the old one, and when that is the remote namespace again what was lost there meanwhile is made again.
func TestNamespaceGetsAnotherRemoteNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	other := l.anotherNamespace()
	l.start()
	l.pod("web")
	l.local.create(t, l.namespace, service("web", ""))
	l.local.create(t, l.namespace, slice("web-x", "web", "10.1.2.3"))
	all := []string{"ShadowPod web", "Service web", "ShadowEndpointSlice web-x"}
	in := func(namespace string) {
		t.Helper()
		for _, object := range all {
			var kind, name string
			_, _ = fmt.Sscan(object, &kind, &name)
			l.present(l.remote, kind, namespace, name)
		}
	}
	in(l.remoteNS)
	l.mapNamespaces(map[string]string{l.namespace: other})
	in(other)
	l.settled()
	in(l.remoteNS)
	for _, kind := range []string{"ShadowPod", "Service"} {
		l.remote.delete(t, kind, l.remoteNS, "web")
	}
	l.mapNamespaces(map[string]string{l.namespace: l.remoteNS})
	in(l.remoteNS)
	l.settled()
	in(other)
}

// What becomes of the provider's pod is shown also while its ShadowPod cannot be evaluated.
func TestStatusIsShownWhileAPluginFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chainsForPods()
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	l.chains.swap("Pod", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return nil, &host.PluginFailedError{Plugin: "picky", Reason: "no such zone"}
	})
	l.event(l.namespace, "Pod", "web", "Warning", "PluginFailed", "no such zone")
	for n := range 3 {
		l.remoteStatus("web", running(n+1))
		l.present(l.local, "Pod", l.namespace, "web", restarts(n+1))
	}
	l.settled()
	if events := l.events(l.namespace, "Pod", "web"); len(events) != 1 {
		t.Errorf("one failure made the Events %q", events)
	}
	l.chains.swap("Pod", host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetString("spec", "nonsense")
	})
	l.pod("odd")
	l.event(l.namespace, "Pod", "odd", "Warning", "InvalidObject", "spec became a string")
	l.event(l.namespace, "Pod", "web", "Warning", "InvalidObject", "spec became a string")
	l.settled()
	if l.remote.get(t, "ShadowPod", l.remoteNS, "odd") != nil {
		t.Error("a pod without a spec crossed")
	}
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/app", "web"))
}

// A status that this cluster refuses is told about once, however often it is tried.
func TestRefusedStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chains.swap("Pod", host.Incoming, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetString("status.podIP", "no address")
	})
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.event(l.namespace, "Pod", "web", "Warning", "FailedReflection", "no address")
	tries := l.evaluated() + 3
	l.eventually(func() error {
		if n := l.evaluated(); n < tries {
			return fmt.Errorf("%d evaluations, want %d", n, tries)
		}
		return nil
	})
	l.event(l.namespace, "Pod", "web", "x1: ")
	if events := l.events(l.namespace, "Pod", "web"); len(events) != 1 {
		t.Errorf("one refusal made the Events %q", events)
	}
	l.chainsForPods()
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
}

// A plugin decides that a pod stays before it was seen to run: its ShadowPod goes, or it would run unseen.
func TestSkippedBeforeItRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.pod("web")
	first := l.present(l.remote, "ShadowPod", l.remoteNS, "web")
	l.chains.swap("Pod", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return &host.Outcome{Skipped: true, Skipper: "home", SkipReason: "stays at home"}, nil
	})
	l.present(l.local, "Pod", l.namespace, "web", field("status.reason", "OffloadingBackOff"))
	l.absent(l.remote, "ShadowPod", l.remoteNS, "web")
	l.chains.swap("Pod", host.Outgoing, nil)
	if again := l.present(l.remote, "ShadowPod", l.remoteNS, "web"); again.GetUID() == first.GetUID() {
		t.Error("the ShadowPod was never gone")
	}
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"), field("status.reason", ""))
}

// Endpoints that are ready now and then are followed, not quarantined.
func TestFlappingEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.local.create(t, l.namespace, slice("web", "web", "10.1.2.3"))
	l.start()
	for i := range 12 {
		ready := fmt.Sprint(i%2 == 1)
		l.local.patchYAML(t, "EndpointSlice", l.namespace, "web", `{endpoints: [{addresses: [10.1.2.3], conditions: {ready: `+ready+`}}]}`)
		l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "web", field("spec.template.endpoints", "[map[addresses:[10.1.2.3] conditions:map[ready:"+ready+"]]]"))
	}
	if events := l.events(l.namespace, "EndpointSlice", "web"); len(events) > 0 {
		t.Errorf("flapping endpoints made the Events %q", events)
	}
}

// The status of a pod is never written to another of the same name, and that is nobody's trouble.
func TestStatusOfAnotherPod(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	earlier := l.pod("web")
	earlier.SetUID(types.UID("of-an-earlier-pod"))
	err := l.patchStatus(earlier, map[string]any{"phase": "Failed"}, pod.Marks{Offloaded: true})
	if got, _ := engine.Classify(err); got != engine.Conflict {
		t.Errorf("the status of an earlier pod: %v is %s, want %s", err, got, engine.Conflict)
	}
	err = l.patchStatus(l.local.get(t, "Pod", l.namespace, "web"), map[string]any{"phase": "Nonsense", "podIP": "x"}, pod.Marks{Offloaded: true})
	if got, _ := engine.Classify(err); got != engine.Refused {
		t.Errorf("a status that is not valid: %v is %s, want %s", err, got, engine.Refused)
	}
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Pending"))
}

// A copy loses the labels by which it is ours: it is a foreign object then, and neither overwritten nor deleted.
func TestCopyLosesItsLabels(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.local.create(t, l.namespace, service("web", ""))
	l.pod("db")
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.present(l.remote, "ShadowPod", l.remoteNS, "db")
	for kind, name := range map[string]string{"Service": "web", "ShadowPod": "db"} {
		l.remote.patchYAML(t, kind, l.remoteNS, name, `{metadata: {labels: {offloading.liqo.io/origin: paris, mark: theirs}}}`)
	}
	l.event(l.namespace, "Service", "web", "Warning", "FailedReflection", "not made by this virtual node")
	l.event(l.namespace, "Pod", "db", "Warning", "FailedReflection", "not made by this virtual node")
	l.local.deleteNow(t, "Service", l.namespace, "web")
	l.local.deleteNow(t, "Pod", l.namespace, "db")
	l.settled()
	l.present(l.remote, "Service", l.remoteNS, "web", field("metadata.labels/mark", "theirs"))
	l.present(l.remote, "ShadowPod", l.remoteNS, "db", field("metadata.labels/mark", "theirs"))
}

// The map loses the label by which it is found, in the middle of everything: nothing ends and nothing is deleted.
func TestMapLosesItsLabel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.local.create(t, l.namespace, service("web", ""))
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	relabel := func(value any) {
		body := must(json.Marshal(map[string]any{"liqo.io/remote-cluster-id": value}))(t)
		l.local.patchYAML(t, "NamespaceMap", l.tenant, l.id, `{metadata: {labels: `+string(body)+`}}`)
	}
	relabel("another")
	l.eventually(func() error {
		if len(l.manager.Namespaces()) > 0 {
			return fmt.Errorf("the namespaces %v are extended without a map", l.manager.Namespaces())
		}
		return nil
	})
	l.local.delete(t, "Service", l.namespace, "web")
	l.settled()
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	relabel(l.id)
	l.absent(l.remote, "Service", l.remoteNS, "web")
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
}
