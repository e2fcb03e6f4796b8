// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/event"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// withEvents returns an option that reflects Events about objects of the given kinds, with the default plugins.
func withEvents(t *testing.T, about ...string) func(*reflection.Options) {
	defaults := reflectiontest.WithDefaultPlugins(t)
	return func(o *reflection.Options) {
		defaults(o)
		o.Kinds = reflectiontest.Kinds(append(about, reflection.EventKind)...)
	}
}

// said returns an Event of the provider about an object of the provider. fields are additional fields of the Event.
func said(name string, about *unstructured.Unstructured, fields string) string {
	now := time.Now().UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: %s}, involvedObject: {apiVersion: %s, kind: %s, namespace: %s, name: %s, uid: %s},
  source: {component: someone, host: far-away}, firstTimestamp: "%s", lastTimestamp: "%s", %s}`,
		name, about.GetAPIVersion(), about.GetKind(), about.GetNamespace(), about.GetName(), about.GetUID(), now, now, fields)
}

func (l *lab) say(name string, about *unstructured.Unstructured, fields string) {
	l.Helper()
	l.Remote.Create(l.T, l.RemoteNS, said(name, about, fields))
}

// eventWrites lists the manager's writes to Events in this cluster. Events about problems, whose names contain a
// time, are omitted.
func (l *lab) eventWrites() []string {
	l.Helper()
	return slices.DeleteFunc(l.Local.Writes(l.T), func(write string) bool {
		return !strings.Contains(write, " events ") || reported.MatchString(write)
	})
}

var reported = regexp.MustCompile(`\.[0-9a-f]{16}$`)

// shadowed creates a local pod and waits for its ShadowPod. running also creates the provider's pod.
func (l *lab) shadowed(name string) (pod, shadow *unstructured.Unstructured) {
	l.Helper()
	pod = l.Pod(name)
	return pod, l.Present(l.Remote, "ShadowPod", l.RemoteNS, name)
}

const (
	normal  = `type: Normal, reason: Pulled, message: all is well, count: 1`
	warning = `type: Warning, reason: BackOff, message: it does not start, count: 1`
)

// TestEventsComeBack checks for all kinds that an Event of the provider about a copy is shown on the local object.
func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind, reflection.ServiceKind, reflection.IngressKind, reflection.ConfigMapKind, reflection.SecretKind, reflection.EndpointSliceKind)).start()
	here := map[string]*unstructured.Unstructured{
		"Service":       l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`),
		"Ingress":       l.Local.Create(t, l.Namespace, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`),
		"ConfigMap":     l.Present(l.Local, "ConfigMap", l.Namespace, wire.RootCAConfigMap),
		"Secret":        l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: web}}`),
		"EndpointSlice": l.Local.Create(t, l.Namespace, slice("web", "web", "10.1.2.3")),
	}
	pod, shadow := l.shadowed("web")
	here["Pod"], here["ShadowPod"] = pod, pod
	there := map[string]*unstructured.Unstructured{
		"Pod": l.RunRemote("web", ""), "ShadowPod": shadow,
		"Service": l.Present(l.Remote, "Service", l.RemoteNS, "web"), "Ingress": l.Present(l.Remote, "Ingress", l.RemoteNS, "web"),
		"ConfigMap": l.Present(l.Remote, "ConfigMap", l.RemoteNS, wire.RemoteRootCAConfigMap("rome")), "Secret": l.Present(l.Remote, "Secret", l.RemoteNS, "web"),
	}
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web")
	there["EndpointSlice"] = l.Remote.Create(t, l.RemoteNS, slice("web", "web", "10.1.2.3"))
	there["ShadowEndpointSlice"], here["ShadowEndpointSlice"] = l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web"), here["EndpointSlice"]
	for kind, object := range there {
		l.say("of-"+strings.ToLower(kind), object, warning)
	}
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "worker", "uid": "u", "namespace": l.RemoteNS}}}
	l.say("of-a-node", node, warning)
	l.say("of-a-stranger", l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: stranger}}`), warning)
	for kind, object := range here {
		l.Present(l.Local, "Event", l.Namespace, "of-"+strings.ToLower(kind),
			reflectiontest.Field("involvedObject.kind", object.GetKind()), reflectiontest.Field("involvedObject.apiVersion", object.GetAPIVersion()), reflectiontest.Field("involvedObject.name", object.GetName()),
			reflectiontest.Field("involvedObject.namespace", l.Namespace), reflectiontest.Field("involvedObject.uid", string(object.GetUID())),
			reflectiontest.Field("metadata.labels/"+wire.OriginLabel, "rome"), reflectiontest.Field("metadata.labels/"+wire.DestinationLabel, l.ID),
			reflectiontest.Field("source.component", "someone"), reflectiontest.Field("source.host", "far-away"), reflectiontest.Field("type", "Warning"), reflectiontest.Field("message", "it does not start"))
	}
	l.Settled()
	if made := l.eventWrites(); len(made) != len(here) {
		t.Errorf("%d Events about our objects took the writes %q", len(here), made)
	}
}

// TestEventsAreSelectedByTheirSource checks that clients can select the provider's Events by the reporting component,
// in either API, and by the label with the name of the provider.
func TestEventsAreSelectedByTheirSource(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	_, shadow := l.shadowed("web")
	l.Remote.Create(t, l.RemoteNS, strings.Replace(said("killing", shadow, warning+", reportingComponent: kubelet, reportingInstance: far-away"), "component: someone", "component: kubelet", 1))
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: preempted}, type: Warning, reason: Preempted, message: preempted, action: Preempting,
  eventTime: "2030-01-01T00:00:00.000001Z", reportingComponent: default-scheduler, reportingInstance: scheduler-0, source: {}, firstTimestamp: null, lastTimestamp: null,
  involvedObject: {apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, namespace: %s, name: web, uid: %s}}`, l.RemoteNS, shadow.GetUID()))
	for source, name := range map[string]string{"kubelet": "killing", "default-scheduler": "preempted"} {
		l.Present(l.Local, "Event", l.Namespace, name)
		found, err := l.Local.Of("Event", l.Namespace).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=web,source=" + source, LabelSelector: wire.DestinationLabel + "=" + l.ID})
		require.NoError(t, err)
		if len(found.Items) != 1 || found.Items[0].GetName() != name {
			t.Errorf("source=%s selects %d Events, want %s", source, len(found.Items), name)
		}
	}
}

// TestTextsOfEventsAreEscaped checks that control characters in an Event of the provider are escaped, because users
// display Events on terminals.
func TestTextsOfEventsAreEscaped(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	_, shadow := l.shadowed("web")
	l.say("forged", shadow, `type: Warning, reason: "Back\e[2KOff", message: "it fails\e]0;pwned\a \u202e\r", count: 1, reportingComponent: "kubelet\u200b"`)
	l.Present(l.Local, "Event", l.Namespace, "forged",
		reflectiontest.Field("message", `it fails\u001b]0;pwned\u0007 \u202e\u000d`), reflectiontest.Field("reason", `Back\u001b[2KOff`),
		reflectiontest.Field("reportingComponent", `kubelet\u200b`))
	l.Settled()
	if writes := l.eventWrites(); len(writes) != 1 {
		t.Errorf("the Event took the writes %q", writes)
	}
}

// TestEventsOfPods checks that an Event about a pod that the provider cannot create is shown before an earlier normal
// Event, and that Events of the newer API are shown, too.
func TestEventsOfPods(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	pod, shadow := l.shadowed("web")
	remote := l.RunRemote("web", "")
	l.say("pulled", remote, normal+", series: {count: 2, lastObservedTime: '2026-01-01T00:00:00.000001Z'}")
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: refused}, type: Warning, reason: FailedCreatePod, message: exceeded quota, action: Create,
  eventTime: "2030-01-01T00:00:00.000001Z", reportingComponent: shadowpod, reportingInstance: manager-0, source: {}, firstTimestamp: null, lastTimestamp: null,
  involvedObject: {apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, namespace: %s, name: web, uid: %s}}`, l.RemoteNS, shadow.GetUID()))
	l.Present(l.Local, "Event", l.Namespace, "refused", reflectiontest.Field("involvedObject.kind", "Pod"), reflectiontest.Field("involvedObject.uid", string(pod.GetUID())),
		reflectiontest.Field("source.component", ""), reflectiontest.Field("reportingComponent", "shadowpod"), reflectiontest.Field("reportingInstance", "manager-0"), reflectiontest.Field("eventTime", "2030-01-01T00:00:00.000001Z"))
	l.say("created", shadow, `type: Normal, reason: CreatedPod, message: the pod was created`)
	l.say("reflected", remote, `type: Normal, reason: SuccessfulReflection, message: it is elsewhere now`)
	l.Present(l.Local, "Event", l.Namespace, "pulled", reflectiontest.Field("series.count", "2"))
	l.Settled()
	if made, want := l.eventWrites(), []string{"create events refused", "create events pulled"}; !slices.Equal(made, want) {
		t.Errorf("the writes are %q, want %q", made, want)
	}
}

// TestEventsOfClaims checks that an Event about a claim that gets no volume on the provider is shown on the local
// claim.
func TestEventsOfClaims(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.ClaimKind, reflection.EventKind)
	})
	l.Start()
	claim := l.claim("data", l.Node)
	copied := l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")
	l.say("full", copied, `type: Warning, reason: ProvisioningFailed, message: no space left`)
	l.Present(l.Local, "Event", l.Namespace, "full", reflectiontest.Field("involvedObject.kind", "PersistentVolumeClaim"), reflectiontest.Field("involvedObject.uid", string(claim.GetUID())), reflectiontest.Field("reason", "ProvisioningFailed"))
}

// TestEventsOfAnEarlierPodStayThere checks that a pod does not get the Events of an earlier pod of the same name.
func TestEventsOfAnEarlierPodStayThere(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	_, first := l.shadowed("web-0")
	remote := l.RunRemote("web-0", "")
	l.Local.Delete(t, "Pod", l.Namespace, "web-0")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web-0")
	// This Event is about the provider's pod, which still exists, while the ShadowPod no longer exists.
	l.say("late", remote, warning)
	l.Settled()
	l.Absent(l.Remote, "Pod", l.RemoteNS, "web-0")
	l.Absent(l.Local, "Pod", l.Namespace, "web-0")
	l.shadowed("web-0")
	l.say("of-the-first-shadow", first, warning)
	l.say("of-the-first-pod", remote, `type: Normal, reason: Killing, message: bye`)
	l.say("known-in-a-moment", &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
		"name": "web-0", "namespace": l.RemoteNS, "uid": "00000000-0000-0000-0000-000000000000"}}}, warning)
	l.say("of-the-second", l.RunRemote("web-0", ""), warning)
	l.Present(l.Local, "Event", l.Namespace, "of-the-second")
	l.Settled()
	for _, name := range []string{"of-the-first-shadow", "of-the-first-pod", "known-in-a-moment"} {
		if l.Local.Get(t, "Event", l.Namespace, name) != nil {
			t.Errorf("Event %s is shown", name)
		}
	}
}

// step advances the clock until check succeeds, by no more than the argument most, and returns by how much it was
// advanced. After that, check is repeated for the usual time limit of a test, while the clock stands still.
func (l *lab) step(clock *clocktesting.FakeClock, most time.Duration, check func() error) (took time.Duration) {
	l.Helper()
	l.Eventually(func() error {
		err := check()
		if err != nil && took < most {
			clock.Step(event.TickInterval)
			took += event.TickInterval
		}
		return err
	})
	return took
}

// TestEventsAreUpdatedOncePerWindow checks that the copy of a repeated Event is written once per window, and has the
// latest state at the end of the window.
func TestEventsAreUpdatedOncePerWindow(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, withEvents(t, reflection.PodKind), func(o *reflection.Options) { o.Clock = clock }).start()
	l.shadowed("web")
	l.say("crash", l.RunRemote("web", ""), warning)
	l.step(clock, event.Window/2, func() error { // the clock must advance, because the Event may arrive before its pod
		return reflectiontest.Field("count", "1")(l.Local.Get(t, "Event", l.Namespace, "crash"))
	})
	repeat := func(from, to int) {
		for n := from; n <= to; n++ {
			l.Remote.PatchYAML(t, "Event", l.RemoteNS, "crash", fmt.Sprintf(`{count: %d, lastTimestamp: "2026-01-01T00:00:%02dZ", message: "again %d"}`, n, n, n))
		}
		l.Eventually(func() error {
			if e := event.Waiting(l.Manager.Scope(reflection.EventKind, l.Namespace), "crash"); e == nil || fmt.Sprint(e.Object["count"]) != fmt.Sprint(to) {
				return errors.New("the last repetition has not arrived")
			}
			return nil
		})
	}
	shows := func(n int) func() error {
		return func() error {
			shown := l.Local.Get(t, "Event", l.Namespace, "crash")
			return errors.Join(reflectiontest.Field("count", fmt.Sprint(n))(shown), reflectiontest.Field("lastTimestamp", fmt.Sprintf("2026-01-01T00:00:%02dZ", n))(shown), reflectiontest.Field("message", fmt.Sprintf("again %d", n))(shown))
		}
	}
	for _, to := range []int{20, 40} {
		repeat(to-18, to)
		if took := l.step(clock, event.Window+5*time.Second, shows(to)); took < event.Window-event.TickInterval {
			t.Errorf("the copy was updated after %s, want %s", took, event.Window)
		}
	}
	if made, want := l.eventWrites(), []string{"create events crash", "patch events crash", "patch events crash"}; !slices.Equal(made, want) {
		t.Errorf("40 repetitions took the writes %q, want %q", made, want)
	}
}

// TestEventsAtOnceAreNotLost checks that if 200 Events about one pod occur at the same time, all of them are shown,
// with one write for each.
func TestEventsAtOnceAreNotLost(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	l.shadowed("web")
	remote := l.RunRemote("web", "")
	for n := range 200 {
		l.say(fmt.Sprintf("e-%d", n), remote, []string{normal, warning}[n%2])
	}
	l.Eventually(func() error {
		if n := len(l.eventWrites()); n < 200 {
			return fmt.Errorf("%d of 200 Events have come", n)
		}
		return nil
	})
	l.Settled()
	made := l.eventWrites()
	if slices.Sort(made); len(slices.Compact(made)) != 200 || len(made) != 200 {
		t.Errorf("200 Events took %d writes to %d Events", len(l.eventWrites()), len(slices.Compact(made)))
	}
}

// TestEventsLeaveForeignOnesAlone checks that a local Event that has the same name as a provider's Event does not
// change, not even while the copy, which gets another name, is updated.
func TestEventsLeaveForeignOnesAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	pod, _ := l.shadowed("web")
	foreign := l.Local.Create(t, l.Namespace, said("taken", pod, normal))
	l.say("taken", l.RunRemote("web", ""), warning)
	other := l.Manager.Handler(reflection.EventKind).(interface{ CopyName(string, bool) string }).CopyName("taken", true)
	l.Present(l.Local, "Event", l.Namespace, other, reflectiontest.Field("message", "it does not start"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Remote.PatchYAML(t, "Event", l.RemoteNS, "taken", `{count: 2}`)
	l.Present(l.Local, "Event", l.Namespace, other, reflectiontest.Field("count", "2"))
	if now := l.Local.Get(t, "Event", l.Namespace, "taken"); now.GetResourceVersion() != foreign.GetResourceVersion() {
		t.Errorf("the Event of this cluster became %v", now.Object)
	}
	// Another client takes the name of the copy after its deletion.
	l.Local.Delete(t, "Event", l.Namespace, other)
	foreign = l.Local.Create(t, l.Namespace, said(other, pod, normal))
	l.Remote.PatchYAML(t, "Event", l.RemoteNS, "taken", `{count: 3}`)
	l.Eventually(func() error {
		if event.Waiting(l.Manager.Scope(reflection.EventKind, l.Namespace), "taken") != nil {
			return errors.New("the third repetition was not looked at")
		}
		return nil
	})
	l.Settled()
	if now := l.Local.Get(t, "Event", l.Namespace, other); now.GetResourceVersion() != foreign.GetResourceVersion() {
		t.Errorf("the second Event of this cluster became %v", now.Object)
	}
}

// TestEventsObeyThePolicy checks that the annotations of a provider's Event determine whether the Event is shown,
// even when it is repeated.
func TestEventsObeyThePolicy(t *testing.T) {
	t.Parallel()
	annotated := func(event, annotation string) string {
		return strings.Replace(event, "metadata: {", "metadata: {annotations: {"+annotation+"}, ", 1)
	}
	for policy, crosses := range map[reflection.Policy]string{reflection.DenyList: "plain", reflection.AllowList: "allowed"} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, withEvents(t, reflection.PodKind), func(o *reflection.Options) { o.Policies = map[string]reflection.Policy{reflection.EventKind: policy} }).start()
			l.shadowed("web")
			remote := l.RunRemote("web", "")
			l.Remote.Create(t, l.RemoteNS, said("plain", remote, warning))
			l.Remote.Create(t, l.RemoteNS, annotated(said("skipped", remote, warning), `liqo.io/skip-reflection: ""`))
			l.Remote.Create(t, l.RemoteNS, annotated(said("allowed", remote, warning), `liqo.io/allow-reflection: "true", liqo.io/skip-reflection: "false"`))
			l.Remote.Create(t, l.RemoteNS, annotated(said("unclear", remote, warning), `liqo.io/skip-reflection: perhaps, liqo.io/allow-reflection: perhaps`))
			l.Present(l.Local, "Event", l.Namespace, crosses)
			l.Present(l.Local, "Event", l.Namespace, "allowed")
			l.Event(l.Namespace, "Pod", "web", "Warning InvalidObject", "Events about this object", `"perhaps"`)
			l.Settled()
			for _, name := range []string{"skipped", "unclear", map[reflection.Policy]string{reflection.DenyList: "skipped", reflection.AllowList: "plain"}[policy]} {
				if l.Local.Get(t, "Event", l.Namespace, name) != nil {
					t.Errorf("Event %s is shown", name)
				}
			}
			l.Remote.PatchYAML(t, "Event", l.RemoteNS, "allowed", `{count: 2, metadata: {annotations: {liqo.io/skip-reflection: "true", liqo.io/allow-reflection: "false"}}}`)
			l.Absent(l.Local, "Event", l.Namespace, "allowed")
		})
	}
}

// TestEventsSurviveRestarts checks that a restart writes no Event again, that Events that were created while the
// virtual kubelet did not run are shown, and that the copies of Events that were deleted in this time are deleted.
func TestEventsSurviveRestarts(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	l.shadowed("web")
	remote := l.RunRemote("web", "")
	for _, name := range []string{"same", "repeated", "deleted"} {
		l.say(name, remote, warning)
		l.Present(l.Local, "Event", l.Namespace, name)
	}
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Stop()
	before := len(l.eventWrites())
	l.Remote.PatchYAML(t, "Event", l.RemoteNS, "repeated", `{count: 7}`)
	l.Remote.Delete(t, "Event", l.RemoteNS, "deleted")
	l.say("new", remote, normal)
	l.Start()
	l.Present(l.Local, "Event", l.Namespace, "repeated", reflectiontest.Field("count", "7"))
	l.Present(l.Local, "Event", l.Namespace, "new")
	l.Settled()
	made := l.eventWrites()[before:]
	if slices.Sort(made); !slices.Equal(made, []string{"create events new", "delete events deleted", "patch events repeated"}) {
		t.Errorf("the writes are %q", made)
	}
}

// TestEventsExpireByThemselves checks that a copy of an Event is deleted when a client deletes the Event on the
// provider. When the Event expires on the provider, the copy must not be deleted, because it expires, too.
func TestEventsExpireByThemselves(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	l.shadowed("web")
	remote := l.RunRemote("web", "")
	l.say("deleted", remote, warning)
	l.Remote.Create(t, l.RemoteNS, strings.NewReplacer(time.Now().UTC().Format("2006-01-02"), "2020-01-01").Replace(said("old", remote, warning)))
	for _, name := range []string{"old", "deleted"} {
		l.Present(l.Local, "Event", l.Namespace, name)
	}
	expired := l.Remote.Get(t, "Event", l.RemoteNS, "old")
	// Without the timestamp, the Event looks older than an hour.
	unstructured.RemoveNestedField(expired.Object, "metadata", "creationTimestamp")
	require.NoError(t, l.Manager.Scope(reflection.EventKind, l.Namespace).State.(cache.ReflectorStore).Delete(expired))
	l.Remote.Delete(t, "Event", l.RemoteNS, "deleted")
	l.Absent(l.Local, "Event", l.Namespace, "deleted")
	l.Settled()
	if l.Local.Get(t, "Event", l.Namespace, "old") == nil {
		t.Error("an Event that has expired there was deleted here")
	}

	// The copy of an Event that expired while nothing was watched must not be deleted either.
	shown := l.Local.Get(t, "Event", l.Namespace, "old").DeepCopy()
	unstructured.RemoveNestedField(shown.Object, "metadata", "creationTimestamp")
	scope := l.Manager.Scope(reflection.EventKind, l.Namespace)
	l.Manager.Handler(reflection.EventKind).Extend(scope)
	in := scope.State.(interface {
		cache.ReflectorStore
		Learn(found []unstructured.Unstructured)
	})
	in.Learn([]unstructured.Unstructured{*shown})
	if err := in.Replace(nil, ""); err != nil || event.Waiting(scope, "old") != nil {
		t.Errorf("the copy of an Event that has expired is to go, %v", err)
	}
	shown.SetCreationTimestamp(metav1.Now())
	in.Learn([]unstructured.Unstructured{*shown})
	if err := in.Replace(nil, ""); err != nil || event.Waiting(scope, "old") == nil {
		t.Errorf("the copy of an Event that was deleted is to stay, %v", err)
	}
}

// TestPoisonedEventsDelayNobody checks that a provider's Event for which a plugin or the API server fails causes one
// Event on its object, and does not delay other Events.
func TestPoisonedEventsDelayNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.EventKind) })
	l.Chains.Swap(reflection.EventKind, host.Incoming, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		reason, _ := doc.At("reason")
		switch text, _ := reason.Text(); text {
		case "Panic":
			panic("poison")
		case "Fail":
			return nil, &host.PluginFailedError{Plugin: "picky", Reason: "not this one"}
		case "Invalid":
			return &host.Outcome{}, doc.SetString("involvedObject.namespace", "elsewhere")
		}
		return &host.Outcome{}, doc.Assign("involvedObject", env.Context["involved"])
	})
	l.Start()
	l.shadowed("web")
	remote := l.RunRemote("web", "")
	for n := range 30 {
		for _, reason := range []string{"Panic", "Fail", "Invalid"} {
			l.say(fmt.Sprintf("bad-%s-%d", strings.ToLower(reason), n), remote, `type: Warning, message: x, reason: `+reason)
		}
	}
	for n := range 100 {
		l.say(fmt.Sprintf("good-%d", n), remote, `type: Normal, reason: Pulled, message: x`)
	}
	for n := range 100 {
		l.Present(l.Local, "Event", l.Namespace, fmt.Sprintf("good-%d", n))
	}
	for _, words := range [][]string{{"PluginFailed", "not this one"}, {"FailedReflection", "namespace"}} {
		l.Event(l.Namespace, "Pod", "web", words...)
	}
	// There may be one Event for each cause: the plugin, the API server, and the panic.
	if told := l.Events(l.Namespace, "Pod", "web"); len(told) > 3 {
		t.Errorf("90 bad Events made %q", told)
	}
}

// TestEventsAreShownByWhoReflectsTheObject checks that only the leading virtual kubelet shows Events about objects
// that belong to the provider as a whole, and that each virtual kubelet shows Events about its own pods.
func TestEventsAreShownByWhoReflectsTheObject(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind, reflection.ServiceKind)).start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`)
	service := l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.shadowed("web")
	remote := l.RunRemote("web", "")
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Pod, metadata: {name: elsewhere}, spec: {nodeName: other, automountServiceAccountToken: false, containers: [{name: c, image: c}]}}`)
	l.Manager.SetLeading(false)
	l.say("of-the-service", service, warning)
	l.say("of-another-node", l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: Pod, metadata: {name: elsewhere}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: c}]}}`), warning)
	l.say("of-the-pod", remote, warning)
	l.Present(l.Local, "Event", l.Namespace, "of-the-pod")
	l.Settled()
	if l.Local.Get(t, "Event", l.Namespace, "of-the-service") != nil {
		t.Error("an Event about a Service was shown by one that does not lead")
	}
	l.Manager.SetLeading(true)
	l.Present(l.Local, "Event", l.Namespace, "of-the-service")
	l.Settled()
	if made := l.eventWrites(); len(made) != 2 {
		t.Errorf("two Events took the writes %q", made)
	}
}

// TestEventsOfFurtherResources checks that Events about objects of a ReflectedResource are shown as soon as the
// resource is reflected.
func TestEventsOfFurtherResources(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind))
	l.Allow("coordination.k8s.io", "leases")
	l.Start()
	lease := `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: web}}`
	l.Local.Create(t, l.Namespace, lease)
	kind := reflection.Kind{Name: "Lease.coordination.k8s.io", Source: reflectiontest.Resources["Lease"], Policy: reflection.DenyList, Workers: 1}
	require.NoError(t, l.Manager.StartKind(kind))
	copied := l.Present(l.Remote, "Lease", l.RemoteNS, "web")
	l.Manager.StopKind(kind.Name)
	l.say("early", copied, warning)
	l.Settled()
	require.NoError(t, l.Manager.StartKind(kind))
	l.say("later", copied, warning)
	for _, name := range []string{"early", "later"} {
		l.Present(l.Local, "Event", l.Namespace, name, reflectiontest.Field("involvedObject.kind", "Lease"), reflectiontest.Field("involvedObject.apiVersion", "coordination.k8s.io/v1"))
	}
}

// TestForeignEventsAreNotTakenBack checks that a local Event that has taken the name of a copy is not deleted
// together with the provider's Event.
func TestForeignEventsAreNotTakenBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, reflection.PodKind)).start()
	pod, _ := l.shadowed("web")
	remote := l.RunRemote("web", "")
	for _, name := range []string{"taken", "marker"} {
		l.say(name, remote, warning)
		l.Present(l.Local, "Event", l.Namespace, name)
	}
	l.Local.Delete(t, "Event", l.Namespace, "taken")
	foreign := l.Local.Create(t, l.Namespace, said("taken", pod, normal))
	l.Remote.Delete(t, "Event", l.RemoteNS, "taken")
	l.Remote.Delete(t, "Event", l.RemoteNS, "marker")
	l.Absent(l.Local, "Event", l.Namespace, "marker")
	l.Settled()
	if now := l.Local.Get(t, "Event", l.Namespace, "taken"); now == nil || now.GetUID() != foreign.GetUID() {
		t.Errorf("the Event of this cluster became %v", now)
	}
}

// TestEventsThatWaitAreBounded checks that the number of Events that wait to be written is limited. If there are too
// many, normal Events are dropped and counted, and Warnings are kept.
func TestEventsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	clock := clocktesting.NewFakeClock(time.Now()) // no Event becomes due, because the clock does not advance
	l := newLab(t, withEvents(t, reflection.PodKind), func(o *reflection.Options) { o.Clock, o.Registerer = clock, registry }).start()
	l.shadowed("web")
	remote := l.RunRemote("web", "")
	scope := l.Manager.Scope(reflection.EventKind, l.Namespace)
	in := scope.State.(cache.ReflectorStore)
	receive := func(name, fields string) {
		l.Helper()
		parsed := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(said(name, remote, fields)), &parsed.Object))
		require.NoError(t, in.Add(parsed))
	}
	for n := range event.WaitingMost {
		receive(fmt.Sprintf("early-%d", n), normal)
	}
	receive("late", normal)
	receive("warning", warning)
	if event.Waiting(scope, "early-0") == nil || event.Waiting(scope, "late") != nil {
		t.Error("the late Event should be dropped, and the first one wait")
	}
	if dropped := gathered(t, registry)["refract_events_dropped_total"]; dropped != 1 {
		t.Errorf("%v Events are counted as dropped, want 1", dropped)
	}
}
