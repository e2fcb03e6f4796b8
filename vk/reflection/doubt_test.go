// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

// TestNamespaceGetsAnotherRemoteNamespace checks that if a namespace gets another remote namespace right after its
// objects were written, the objects are reflected to the new remote namespace, and nothing is deleted in the former
// one. When the namespace is mapped to the former remote namespace again, copies that were deleted there in the
// meantime must be recreated.
func TestNamespaceGetsAnotherRemoteNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	other := l.AnotherNamespace()
	l.Start()
	l.Pod("web")
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.Create(t, l.Namespace, slice("web-x", "web", "10.1.2.3"))
	all := []string{"ShadowPod web", "Service web", "ShadowEndpointSlice web-x"}
	in := func(namespace string) {
		t.Helper()
		for _, object := range all {
			var kind, name string
			_, _ = fmt.Sscan(object, &kind, &name)
			l.Present(l.Remote, kind, namespace, name)
		}
	}
	in(l.RemoteNS)
	l.MapNamespaces(map[string]string{l.Namespace: other})
	in(other)
	l.Settled()
	in(l.RemoteNS)
	for _, kind := range []string{"ShadowPod", "Service"} {
		l.Remote.Delete(t, kind, l.RemoteNS, "web")
	}
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	in(l.RemoteNS)
	l.Settled()
	in(other)
}

// TestStatusIsShownWhileAPluginFails checks that the status of the provider's pod is shown even while its ShadowPod
// cannot be evaluated.
func TestStatusIsShownWhileAPluginFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ChainsForPods()
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Chains.Swap("Pod", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return nil, &host.PluginFailedError{Plugin: "picky", Reason: "no such zone"}
	})
	l.Event(l.Namespace, "Pod", "web", "Warning", "PluginFailed", "no such zone")
	for n := range 3 {
		l.RemoteStatus("web", running(n+1))
		l.Present(l.Local, "Pod", l.Namespace, "web", restarts(n+1))
	}
	l.Settled()
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) != 1 {
		t.Errorf("one failure made the Events %q", events)
	}
	l.Chains.Swap("Pod", host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetString("spec", "nonsense")
	})
	l.Pod("odd")
	l.Event(l.Namespace, "Pod", "odd", "Warning", "InvalidObject", "spec became a string")
	l.Event(l.Namespace, "Pod", "web", "Warning", "InvalidObject", "spec became a string")
	l.Settled()
	if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "odd") != nil {
		t.Error("a pod without a spec crossed")
	}
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/app", "web"))
}

// TestRefusedStatus checks that a status that this cluster rejects causes one Event, regardless of the number of
// retries.
func TestRefusedStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Chains.Swap("Pod", host.Incoming, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetString("status.podIP", "no address")
	})
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Event(l.Namespace, "Pod", "web", "Warning", "FailedReflection", "no address")
	tries := l.Evaluated() + 3
	l.Eventually(func() error {
		if n := l.Evaluated(); n < tries {
			return fmt.Errorf("%d evaluations, want %d", n, tries)
		}
		return nil
	})
	l.Event(l.Namespace, "Pod", "web", "x1: ")
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) != 1 {
		t.Errorf("one refusal made the Events %q", events)
	}
	l.ChainsForPods()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
}

// TestSkippedBeforeItRuns checks that the ShadowPod is deleted if a plugin skips a pod that was not seen running yet.
// If it were not, the pod would run unnoticed on the provider.
func TestSkippedBeforeItRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("web")
	first := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Chains.Swap("Pod", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return &host.Outcome{Skipped: true, Skipper: "home", SkipReason: "stays on this cluster"}, nil
	})
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Chains.Swap("Pod", host.Outgoing, nil)
	if again := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web"); again.GetUID() == first.GetUID() {
		t.Error("the ShadowPod was never gone")
	}
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), reflectiontest.Field("status.reason", ""))
}

// TestFlappingEndpoints checks that endpoints whose readiness changes repeatedly are updated every time and not
// quarantined.
func TestFlappingEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.Create(t, l.Namespace, slice("web", "web", "10.1.2.3"))
	l.Start()
	for i := range 12 {
		ready := fmt.Sprint(i%2 == 1)
		l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "web", `{endpoints: [{addresses: [10.1.2.3], conditions: {ready: `+ready+`}}]}`)
		l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web", reflectiontest.Field("spec.template.endpoints", "[map[addresses:[10.1.2.3] conditions:map[ready:"+ready+"]]]"))
	}
	if events := l.Events(l.Namespace, "EndpointSlice", "web"); len(events) > 0 {
		t.Errorf("flapping endpoints made the Events %q", events)
	}
}

// TestStatusOfAnotherPod checks that the status of a pod is never written to another pod of the same name, and that
// such a status causes no Warning.
func TestStatusOfAnotherPod(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	earlier := l.Pod("web")
	earlier.SetUID(types.UID("of-an-earlier-pod"))
	err := l.patchStatus(earlier, map[string]any{"phase": "Failed"}, pod.Marks{Offloaded: true})
	if got, _ := failure.Classify(err); got != failure.Conflict {
		t.Errorf("the status of an earlier pod: %v is %s, want %s", err, got, failure.Conflict)
	}
	err = l.patchStatus(l.Local.Get(t, "Pod", l.Namespace, "web"), map[string]any{"phase": "Nonsense", "podIP": "x"}, pod.Marks{Offloaded: true})
	if got, _ := failure.Classify(err); got != failure.Refused {
		t.Errorf("a status that is not valid: %v is %s, want %s", err, got, failure.Refused)
	}
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Pending"))
}

// TestCopyLosesItsLabels checks that a copy without our labels counts as the object of another client: it is neither
// overwritten nor deleted.
func TestCopyLosesItsLabels(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Pod("db")
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "db")
	for kind, name := range map[string]string{"Service": "web", "ShadowPod": "db"} {
		l.Remote.PatchYAML(t, kind, l.RemoteNS, name, `{metadata: {labels: {offloading.liqo.io/origin: paris, mark: theirs}}}`)
	}
	l.Event(l.Namespace, "Service", "web", "Warning", "FailedReflection", "is not managed by Refract")
	l.Event(l.Namespace, "Pod", "db", "Warning", "FailedReflection", "is not managed by Refract")
	l.Local.DeleteNow(t, "Service", l.Namespace, "web")
	l.Local.DeleteNow(t, "Pod", l.Namespace, "db")
	l.Settled()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/mark", "theirs"))
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "db", reflectiontest.Field("metadata.labels/mark", "theirs"))
}

// TestMapLosesItsLabel checks that reflection continues and nothing is deleted if the NamespaceMap loses the label by
// which it is selected while the manager runs.
func TestMapLosesItsLabel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	relabel := func(value any) {
		body := reflectiontest.Must(json.Marshal(map[string]any{"liqo.io/remote-cluster-id": value}))(t)
		l.Local.PatchYAML(t, "NamespaceMap", l.Tenant, l.ID, `{metadata: {labels: `+string(body)+`}}`)
	}
	relabel("another")
	l.Eventually(func() error {
		if len(l.Manager.Namespaces()) > 0 {
			return fmt.Errorf("the namespaces %v are extended without a map", l.Manager.Namespaces())
		}
		return nil
	})
	l.Local.Delete(t, "Service", l.Namespace, "web")
	l.Settled()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	relabel(l.ID)
	l.Absent(l.Remote, "Service", l.RemoteNS, "web")
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
}
