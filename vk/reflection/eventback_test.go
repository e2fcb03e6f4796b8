// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/event"
)

// withEvents reflects Events about objects of the kinds, with the plugins that are shipped.
func withEvents(t *testing.T, about ...string) func(*Options) {
	defaults := withDefaultPlugins(t)
	return func(o *Options) {
		defaults(o)
		o.Kinds = kinds(append(about, EventKind)...)
	}
}

// said is an Event of the provider about an object there, with some of its fields.
func said(name string, about *unstructured.Unstructured, fields string) string {
	now := time.Now().UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: %s}, involvedObject: {apiVersion: %s, kind: %s, namespace: %s, name: %s, uid: %s},
  source: {component: someone, host: far-away}, firstTimestamp: "%s", lastTimestamp: "%s", %s}`,
		name, about.GetAPIVersion(), about.GetKind(), about.GetNamespace(), about.GetName(), about.GetUID(), now, now, fields)
}

func (l *lab) say(name string, about *unstructured.Unstructured, fields string) {
	l.Helper()
	l.remote.create(l.T, l.remoteNS, said(name, about, fields))
}

// eventWrites lists what the manager did to Events here, besides the reporter's: those have names with a time in them.
func (l *lab) eventWrites() []string {
	l.Helper()
	return slices.DeleteFunc(l.local.writes(l.T), func(write string) bool {
		return !strings.Contains(write, " events ") || reported.MatchString(write)
	})
}

var reported = regexp.MustCompile(`\.[0-9a-f]{16}$`)

// shadowed makes a pod here and waits for its ShadowPod; running also has the provider make the pod.
func (l *lab) shadowed(name string) (pod, shadow *unstructured.Unstructured) {
	l.Helper()
	pod = l.pod(name)
	return pod, l.present(l.remote, "ShadowPod", l.remoteNS, name)
}

const (
	normal  = `type: Normal, reason: Pulled, message: all is well, count: 1`
	warning = `type: Warning, reason: BackOff, message: it does not start, count: 1`
)

// What the provider says of an object is said here of the object that it stands for, whatever the kind.
func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind, ServiceKind, IngressKind, ConfigMapKind, SecretKind, EndpointSliceKind)).start()
	here := map[string]*unstructured.Unstructured{
		"Service":       l.local.create(t, l.namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`),
		"Ingress":       l.local.create(t, l.namespace, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`),
		"ConfigMap":     l.present(l.local, "ConfigMap", l.namespace, wire.RootCAConfigMap),
		"Secret":        l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: web}}`),
		"EndpointSlice": l.local.create(t, l.namespace, slice("web", "web", "10.1.2.3")),
	}
	pod, shadow := l.shadowed("web")
	here["Pod"], here["ShadowPod"] = pod, pod
	there := map[string]*unstructured.Unstructured{
		"Pod": l.runRemote("web", ""), "ShadowPod": shadow,
		"Service": l.present(l.remote, "Service", l.remoteNS, "web"), "Ingress": l.present(l.remote, "Ingress", l.remoteNS, "web"),
		"ConfigMap": l.present(l.remote, "ConfigMap", l.remoteNS, wire.RemoteRootCAConfigMap("rome")), "Secret": l.present(l.remote, "Secret", l.remoteNS, "web"),
	}
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "web")
	there["EndpointSlice"] = l.remote.create(t, l.remoteNS, slice("web", "web", "10.1.2.3"))
	there["ShadowEndpointSlice"], here["ShadowEndpointSlice"] = l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "web"), here["EndpointSlice"]
	for kind, object := range there {
		l.say("of-"+strings.ToLower(kind), object, warning)
	}
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "worker", "uid": "u", "namespace": l.remoteNS}}}
	l.say("of-a-node", node, warning)
	l.say("of-a-stranger", l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: stranger}}`), warning)
	for kind, object := range here {
		l.present(l.local, "Event", l.namespace, "of-"+strings.ToLower(kind),
			field("involvedObject.kind", object.GetKind()), field("involvedObject.apiVersion", object.GetAPIVersion()), field("involvedObject.name", object.GetName()),
			field("involvedObject.namespace", l.namespace), field("involvedObject.uid", string(object.GetUID())),
			field("metadata.labels/"+wire.OriginLabel, "rome"), field("metadata.labels/"+wire.DestinationLabel, l.id),
			field("source.component", "someone (remote)"), field("source.host", "far-away"), field("type", "Warning"), field("message", "it does not start"))
	}
	l.settled()
	if made := l.eventWrites(); len(made) != len(here) {
		t.Errorf("%d Events about our objects took the writes %q", len(here), made)
	}
}

// That the provider cannot make the pod is said at once; of those Events that are no warnings, and of Events by the newer API.
func TestEventsOfPods(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	pod, shadow := l.shadowed("web")
	start := time.Now()
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: refused}, type: Warning, reason: FailedCreatePod, message: exceeded quota, action: Create,
  eventTime: "2030-01-01T00:00:00.000001Z", reportingComponent: shadowpod, reportingInstance: manager-0, source: {}, firstTimestamp: null, lastTimestamp: null,
  involvedObject: {apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, namespace: %s, name: web, uid: %s}}`, l.remoteNS, shadow.GetUID()))
	l.present(l.local, "Event", l.namespace, "refused", field("involvedObject.kind", "Pod"), field("involvedObject.uid", string(pod.GetUID())),
		field("source.component", "shadowpod (remote)"), field("reportingInstance", "manager-0"), field("eventTime", "2030-01-01T00:00:00.000001Z"))
	if took := time.Since(start); took > event.Settle {
		t.Errorf("a warning took %s", took)
	}
	remote := l.runRemote("web", "")
	l.say("pulled", remote, normal+", series: {count: 2, lastObservedTime: '2026-01-01T00:00:00.000001Z'}")
	l.say("created", shadow, `type: Normal, reason: CreatedPod, message: the pod was created`)
	l.say("reflected", remote, `type: Normal, reason: SuccessfulReflection, message: it is elsewhere now`)
	l.present(l.local, "Event", l.namespace, "pulled", field("series.count", "2"))
	l.settled()
	if made, want := l.eventWrites(), []string{"create events refused", "create events pulled"}; !slices.Equal(made, want) {
		t.Errorf("the writes are %q, want %q", made, want)
	}
}

// Why a claim gets no volume there is said of the claim here.
func TestEventsOfClaims(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", func(o *Options) { o.Kinds = kinds(ClaimKind, EventKind) })
	l.start()
	claim := l.claim("data", l.node)
	copied := l.present(l.remote, ClaimKind, l.remoteNS, "data")
	l.say("full", copied, `type: Warning, reason: ProvisioningFailed, message: no space left`)
	l.present(l.local, "Event", l.namespace, "full", field("involvedObject.kind", "PersistentVolumeClaim"), field("involvedObject.uid", string(claim.GetUID())), field("reason", "ProvisioningFailed"))
}

// A pod that bears the name of an earlier one does not inherit its Events.
func TestEventsOfAnEarlierPodStayThere(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	_, first := l.shadowed("web-0")
	remote := l.runRemote("web-0", "")
	l.local.delete(t, "Pod", l.namespace, "web-0")
	l.absent(l.remote, "ShadowPod", l.remoteNS, "web-0")
	l.say("late", remote, warning) // the pod is still there, and ours has no other copy
	l.settled()
	l.absent(l.remote, "Pod", l.remoteNS, "web-0")
	l.absent(l.local, "Pod", l.namespace, "web-0")
	l.shadowed("web-0")
	l.say("of-the-first-shadow", first, warning)
	l.say("of-the-first-pod", remote, `type: Normal, reason: Killing, message: bye`)
	l.say("known-in-a-moment", &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
		"name": "web-0", "namespace": l.remoteNS, "uid": "00000000-0000-0000-0000-000000000000"}}}, warning)
	l.say("of-the-second", l.runRemote("web-0", ""), warning)
	l.present(l.local, "Event", l.namespace, "of-the-second")
	l.settled()
	for _, name := range []string{"of-the-first-shadow", "of-the-first-pod", "known-in-a-moment"} {
		if l.local.get(t, "Event", l.namespace, name) != nil {
			t.Errorf("Event %s is shown", name)
		}
	}
}

// step moves the clock on until check is content.
func (l *lab) step(clock *clocktesting.FakeClock, check func() error) (took time.Duration) {
	l.Helper()
	l.eventually(func() error {
		err := check()
		if err != nil {
			clock.Step(event.Tick)
			took += event.Tick
		}
		return err
	})
	return took
}

// However often an Event repeats itself, its copy is written once per window, and then says the last.
func TestEventsAreUpdatedOncePerWindow(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, withEvents(t, PodKind), func(o *Options) { o.Clock = clock }).start()
	l.shadowed("web")
	l.say("crash", l.runRemote("web", ""), warning)
	l.present(l.local, "Event", l.namespace, "crash", field("count", "1"))
	repeat := func(from, to int) {
		for n := from; n <= to; n++ {
			l.remote.patchYAML(t, "Event", l.remoteNS, "crash", fmt.Sprintf(`{count: %d, lastTimestamp: "2026-01-01T00:00:%02dZ", message: "again %d"}`, n, n, n))
		}
		l.eventually(func() error {
			if e := event.Waiting(l.manager.Scope(EventKind, l.namespace), "crash"); e == nil || fmt.Sprint(e.Object["count"]) != fmt.Sprint(to) {
				return errors.New("the last repetition has not arrived")
			}
			return nil
		})
	}
	shows := func(n int) func() error {
		return func() error {
			shown := l.local.get(t, "Event", l.namespace, "crash")
			return errors.Join(field("count", fmt.Sprint(n))(shown), field("lastTimestamp", fmt.Sprintf("2026-01-01T00:00:%02dZ", n))(shown), field("message", fmt.Sprintf("again %d", n))(shown))
		}
	}
	for _, to := range []int{20, 40} {
		repeat(to-18, to)
		if took := l.step(clock, shows(to)); took < event.Window-event.Tick || took > event.Window+5*time.Second {
			t.Errorf("the copy was updated after %s, want %s", took, event.Window)
		}
	}
	if made, want := l.eventWrites(), []string{"create events crash", "patch events crash", "patch events crash"}; !slices.Equal(made, want) {
		t.Errorf("40 repetitions took the writes %q, want %q", made, want)
	}
}

// 200 Events about one pod at once all come, each with one write.
func TestEventsAtOnceAreNotLost(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	l.shadowed("web")
	remote := l.runRemote("web", "")
	for n := range 200 {
		l.say(fmt.Sprintf("e-%d", n), remote, []string{normal, warning}[n%2])
	}
	l.eventually(func() error {
		if n := len(l.eventWrites()); n < 200 {
			return fmt.Errorf("%d of 200 Events have come", n)
		}
		return nil
	})
	l.settled()
	made := l.eventWrites()
	if slices.Sort(made); len(slices.Compact(made)) != 200 || len(made) != 200 {
		t.Errorf("200 Events took %d writes to %d Events", len(l.eventWrites()), len(slices.Compact(made)))
	}
}

// An Event of this cluster that has the name already stays what it is, also while the copy, which gets another, is updated.
func TestEventsLeaveForeignOnesAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	pod, _ := l.shadowed("web")
	foreign := l.local.create(t, l.namespace, said("taken", pod, normal))
	l.say("taken", l.runRemote("web", ""), warning)
	other := l.manager.Handler(EventKind).(interface{ CopyName(string, bool) string }).CopyName("taken", true)
	l.present(l.local, "Event", l.namespace, other, field("message", "it does not start"))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.remote.patchYAML(t, "Event", l.remoteNS, "taken", `{count: 2}`)
	l.present(l.local, "Event", l.namespace, other, field("count", "2"))
	if now := l.local.get(t, "Event", l.namespace, "taken"); now.GetResourceVersion() != foreign.GetResourceVersion() {
		t.Errorf("the Event of this cluster became %v", now.Object)
	}
	// Somebody takes the name of the copy when that has gone.
	l.local.delete(t, "Event", l.namespace, other)
	foreign = l.local.create(t, l.namespace, said(other, pod, normal))
	l.remote.patchYAML(t, "Event", l.remoteNS, "taken", `{count: 3}`)
	l.eventually(func() error {
		if event.Waiting(l.manager.Scope(EventKind, l.namespace), "taken") != nil {
			return errors.New("the third repetition was not looked at")
		}
		return nil
	})
	l.settled()
	if now := l.local.get(t, "Event", l.namespace, other); now.GetResourceVersion() != foreign.GetResourceVersion() {
		t.Errorf("the second Event of this cluster became %v", now.Object)
	}
}

// The annotations of the provider's Event decide, also when it repeats itself.
func TestEventsObeyThePolicy(t *testing.T) {
	t.Parallel()
	annotated := func(event, annotation string) string {
		return strings.Replace(event, "metadata: {", "metadata: {annotations: {"+annotation+"}, ", 1)
	}
	for policy, crosses := range map[Policy]string{DenyList: "plain", AllowList: "allowed"} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, withEvents(t, PodKind), func(o *Options) { o.Policies = map[string]Policy{EventKind: policy} }).start()
			l.shadowed("web")
			remote := l.runRemote("web", "")
			l.remote.create(t, l.remoteNS, said("plain", remote, warning))
			l.remote.create(t, l.remoteNS, annotated(said("skipped", remote, warning), `liqo.io/skip-reflection: ""`))
			l.remote.create(t, l.remoteNS, annotated(said("allowed", remote, warning), `liqo.io/allow-reflection: "true", liqo.io/skip-reflection: "false"`))
			l.remote.create(t, l.remoteNS, annotated(said("unclear", remote, warning), `liqo.io/skip-reflection: perhaps, liqo.io/allow-reflection: perhaps`))
			l.present(l.local, "Event", l.namespace, crosses)
			l.present(l.local, "Event", l.namespace, "allowed")
			l.event(l.namespace, "Pod", "web", "Warning InvalidObject", "Events about this object", `"perhaps"`)
			l.settled()
			for _, name := range []string{"skipped", "unclear", map[Policy]string{DenyList: "skipped", AllowList: "plain"}[policy]} {
				if l.local.get(t, "Event", l.namespace, name) != nil {
					t.Errorf("Event %s is shown", name)
				}
			}
			l.remote.patchYAML(t, "Event", l.remoteNS, "allowed", `{count: 2, metadata: {annotations: {liqo.io/skip-reflection: "true", liqo.io/allow-reflection: "false"}}}`)
			l.absent(l.local, "Event", l.namespace, "allowed")
		})
	}
}

// A restart writes nothing; what was said meanwhile is made good, and what was taken away goes.
func TestEventsSurviveRestarts(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	l.shadowed("web")
	remote := l.runRemote("web", "")
	for _, name := range []string{"same", "repeated", "deleted"} {
		l.say(name, remote, warning)
		l.present(l.local, "Event", l.namespace, name)
	}
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.stop()
	before := len(l.eventWrites())
	l.remote.patchYAML(t, "Event", l.remoteNS, "repeated", `{count: 7}`)
	l.remote.delete(t, "Event", l.remoteNS, "deleted")
	l.say("new", remote, normal)
	l.start()
	l.present(l.local, "Event", l.namespace, "repeated", field("count", "7"))
	l.present(l.local, "Event", l.namespace, "new")
	l.settled()
	made := l.eventWrites()[before:]
	if slices.Sort(made); !slices.Equal(made, []string{"create events new", "delete events deleted", "patch events repeated"}) {
		t.Errorf("the writes are %q", made)
	}
}

// Events are deleted here when somebody deleted them there, not when they have expired there: they do so here, too.
func TestEventsExpireByThemselves(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind)).start()
	l.shadowed("web")
	remote := l.runRemote("web", "")
	l.say("deleted", remote, warning)
	l.remote.create(t, l.remoteNS, strings.NewReplacer(time.Now().UTC().Format("2006-01-02"), "2020-01-01").Replace(said("old", remote, warning)))
	for _, name := range []string{"old", "deleted"} {
		l.present(l.local, "Event", l.namespace, name)
	}
	expired := l.remote.get(t, "Event", l.remoteNS, "old")
	unstructured.RemoveNestedField(expired.Object, "metadata", "creationTimestamp") // an hour has passed
	if err := l.manager.Scope(EventKind, l.namespace).State.(cache.ReflectorStore).Delete(expired); err != nil {
		t.Fatal(err)
	}
	l.remote.delete(t, "Event", l.remoteNS, "deleted")
	l.absent(l.local, "Event", l.namespace, "deleted")
	l.settled()
	if l.local.get(t, "Event", l.namespace, "old") == nil {
		t.Error("an Event that has expired there was deleted here")
	}

	// The same of an Event that expired while nobody watched.
	shown := l.local.get(t, "Event", l.namespace, "old").DeepCopy()
	unstructured.RemoveNestedField(shown.Object, "metadata", "creationTimestamp")
	scope := l.manager.Scope(EventKind, l.namespace)
	l.manager.Handler(EventKind).Extend(scope)
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

// Events that a plugin cannot take, or the API server does not, are told once on the object and delay no others.
func TestPoisonedEventsDelayNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.Kinds = kinds(PodKind, EventKind) })
	l.chains.swap(EventKind, host.Incoming, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
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
	l.start()
	l.shadowed("web")
	remote := l.runRemote("web", "")
	for n := range 30 {
		for _, reason := range []string{"Panic", "Fail", "Invalid"} {
			l.say(fmt.Sprintf("bad-%s-%d", strings.ToLower(reason), n), remote, `type: Warning, message: x, reason: `+reason)
		}
	}
	for n := range 100 {
		l.say(fmt.Sprintf("good-%d", n), remote, `type: Normal, reason: Pulled, message: x`)
	}
	for n := range 100 {
		l.present(l.local, "Event", l.namespace, fmt.Sprintf("good-%d", n))
	}
	for _, words := range [][]string{{"PluginFailed", "not this one"}, {"FailedReflection", "namespace"}} {
		l.event(l.namespace, "Pod", "web", words...)
	}
	if told := l.events(l.namespace, "Pod", "web"); len(told) > 3 { // the panic is the third
		t.Errorf("90 bad Events made %q", told)
	}
}

// Only the leading virtual kubelet shows Events about what all of a provider share; those about pods each of its own.
func TestEventsAreShownByWhoReflectsTheObject(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind, ServiceKind)).start()
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`)
	service := l.present(l.remote, "Service", l.remoteNS, "web")
	l.shadowed("web")
	remote := l.runRemote("web", "")
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Pod, metadata: {name: elsewhere}, spec: {nodeName: other, automountServiceAccountToken: false, containers: [{name: c, image: c}]}}`)
	l.manager.SetLeading(false)
	l.say("of-the-service", service, warning)
	l.say("of-another-node", l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: Pod, metadata: {name: elsewhere}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: c}]}}`), warning)
	l.say("of-the-pod", remote, warning)
	l.present(l.local, "Event", l.namespace, "of-the-pod")
	l.settled()
	if l.local.get(t, "Event", l.namespace, "of-the-service") != nil {
		t.Error("an Event about a Service was shown by one that does not lead")
	}
	l.manager.SetLeading(true)
	l.present(l.local, "Event", l.namespace, "of-the-service")
	l.settled()
	if made := l.eventWrites(); len(made) != 2 {
		t.Errorf("two Events took the writes %q", made)
	}
}

// Events about further resources are shown from the moment those are reflected.
func TestEventsOfFurtherResources(t *testing.T) {
	t.Parallel()
	l := newLab(t, withEvents(t, PodKind))
	l.allow("coordination.k8s.io", "leases")
	l.start()
	lease := `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: web}}`
	l.local.create(t, l.namespace, lease)
	kind := Kind{Name: "Lease.coordination.k8s.io", Source: resources["Lease"], Policy: DenyList, Workers: 1}
	if err := l.manager.StartKind(kind); err != nil {
		t.Fatal(err)
	}
	copied := l.present(l.remote, "Lease", l.remoteNS, "web")
	l.manager.StopKind(kind.Name)
	l.say("early", copied, warning)
	l.settled()
	if err := l.manager.StartKind(kind); err != nil {
		t.Fatal(err)
	}
	l.say("later", copied, warning)
	for _, name := range []string{"early", "later"} {
		l.present(l.local, "Event", l.namespace, name, field("involvedObject.kind", "Lease"), field("involvedObject.apiVersion", "coordination.k8s.io/v1"))
	}
}
