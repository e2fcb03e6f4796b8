// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// referenceKinds is an option that reflects pods and the kinds of objects that pods read.
func referenceKinds(o *reflection.Options) {
	o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind, reflection.ConfigMapKind, reflection.SecretKind)
}

// reader creates a pod from a minimal spec. fields are added to the spec or replace its fields.
func (l *lab) reader(name, fields string) {
	l.Helper()
	l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {nodeName: %s, automountServiceAccountToken: false, %s}`, name, l.Node, fields))
}

// gate blocks the outgoing chain of a kind until it is opened, as a slow provider or plugin would.
type gate struct {
	closed chan struct{}
	once   sync.Once
	held   chan string // receives the names of objects that wait at the gate
}

// hold returns a closed gate, at which the named objects of a kind wait.
func (l *lab) hold(kind string, names ...string) *gate {
	g := &gate{closed: make(chan struct{}), held: make(chan string, 100)}
	l.Chains.Swap(kind, host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if name, _ := doc.View().Field("metadata").Field("name").Text(); slices.Contains(names, name) {
			g.held <- name
			<-g.closed
		}
		return reflectiontest.MutateService(doc, env)
	})
	l.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.closed) }) }

// neverBefore checks for one second that an object does not appear on the provider, while the objects to which this
// object refers wait at a closed gate.
func (l *lab) neverBefore(kind, name string) {
	l.Helper()
	assert.Never(l, func() bool { return l.Remote.Get(l.T, kind, l.RemoteNS, name) != nil }, time.Second, 50*time.Millisecond, "%s %s came before what it refers to", kind, name)
}

// before checks that the last write to an object on the provider precedes the creation of a second object.
func (l *lab) before(kind, name, second, secondName string) {
	l.Helper()
	version := func(o *unstructured.Unstructured) (n int) {
		_, err := fmt.Sscan(o.GetResourceVersion(), &n)
		assert.NoError(l, err)
		return n
	}
	first, then := l.Present(l.Remote, kind, l.RemoteNS, name), l.Present(l.Remote, second, l.RemoteNS, secondName)
	if version(first) > version(then) {
		l.Errorf("%s %s was written after %s %s", kind, name, second, secondName)
	}
}

// TestPodsComeAfterWhatTheyReferTo checks that a pod is not written to the provider until the copy of every object that
// its spec references is up to date, and that it is written then.
func TestPodsComeAfterWhatTheyReferTo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ kind, object, fields string }{
		"env":         {"ConfigMap", "data: {a: b}", `containers: [{name: c, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: config, key: a}}}]}]`},
		"env-from":    {"Secret", "stringData: {a: b}", `containers: [{name: c, image: i, envFrom: [{secretRef: {name: config}}]}]`},
		"init":        {"ConfigMap", "data: {a: b}", `initContainers: [{name: d, image: i, envFrom: [{configMapRef: {name: config}}]}], containers: [{name: c, image: i}]`},
		"volume":      {"ConfigMap", "data: {a: b}", `containers: [{name: c, image: i}], volumes: [{name: v, configMap: {name: config}}]`},
		"optional":    {"Secret", "stringData: {a: b}", `containers: [{name: c, image: i}], volumes: [{name: v, secret: {secretName: config, optional: true}}]`},
		"projected":   {"Secret", "stringData: {a: b}", `containers: [{name: c, image: i}], volumes: [{name: v, projected: {sources: [{secret: {name: config}}]}}]`},
		"driver":      {"Secret", "stringData: {a: b}", `containers: [{name: c, image: i}], volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: config}}}]`},
		"pull-secret": {"Secret", "stringData: {a: b}", `imagePullSecrets: [{name: config}], containers: [{name: c, image: i}]`},
		"links":       {"Service", "spec: {ports: [{port: 80}]}", `containers: [{name: c, image: i}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, referenceKinds)
			g := l.hold(tc.kind, "config")
			l.start()
			l.Local.Create(t, l.Namespace, fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: config}, %s}", tc.kind, tc.object))
			<-g.held
			l.reader("web", tc.fields)
			l.neverBefore("ShadowPod", "web")
			if tc.kind == "Service" { // a pod without service links must not wait for Services
				l.reader("unlinked", `enableServiceLinks: false, containers: [{name: c, image: i}]`)
				l.Present(l.Remote, "ShadowPod", l.RemoteNS, "unlinked")
			}
			g.open()
			l.before(tc.kind, "config", "ShadowPod", "web")
			l.Settled() // the only writes so far are for the root CA, the referenced object, and at most two pods
			if writes := l.Remote.Writes(t); len(writes) > 4 {
				t.Errorf("the provider saw the writes %q", writes)
			}
		})
	}
}

// TestARestartDoesNotOvertakeConfiguration checks that a ConfigMap that changes while no virtual kubelet runs is
// written before a pod that is created at the same time, although the evaluation of ConfigMaps is slow. A pod must be
// offloaded at once if all objects to which it refers are up to date or not reflected.
func TestARestartDoesNotOvertakeConfiguration(t *testing.T) {
	t.Parallel()
	l := newLab(t, referenceKinds)
	l.start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {a: old}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: here, annotations: {liqo.io/skip-reflection: "true"}}, data: {a: b}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "config")
	l.Pod("running")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "running")
	l.Settled()
	l.Stop()
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "config", `{data: {a: new}}`)
	l.reader("web", `containers: [{name: c, image: i, envFrom: [{configMapRef: {name: config}}]}]`)
	l.reader("other", `imagePullSecrets: [{name: absent}], containers: [{name: c, image: i, envFrom: [{configMapRef: {name: here}}, {configMapRef: {name: absent, optional: true}}]}],
  volumes: [{name: v, configMap: {name: kube-root-ca.crt}}]`)
	g := l.hold("ConfigMap", "config")
	l.start()
	<-g.held
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "other")
	l.neverBefore("ShadowPod", "web")
	g.open()
	l.before("ConfigMap", "config", "ShadowPod", "web")
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "config", reflectiontest.Field("data.a", "new"))
}

// TestAnOutageDoesNotOvertakeConfiguration checks that objects that are created or changed during an outage of the
// provider are written before the pods that refer to them.
func TestAnOutageDoesNotOvertakeConfiguration(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second
	l := newLab(t, referenceKinds, func(o *reflection.Options) { o.ReferenceTimeout = timeout })
	link := l.ThroughCable()
	l.start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {a: old}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "key")
	l.Settled()
	link.SetCut(true)
	l.Local.PatchYAML(t, "Secret", l.Namespace, "key", `{stringData: {a: new}}`)
	l.reader("web", `containers: [{name: c, image: i}], volumes: [{name: v, secret: {secretName: key}}]`)
	l.Eventually(func() error {
		if l.Manager.Reachable() {
			return errors.New("the provider is still thought to be reachable")
		}
		return nil
	})
	g := l.hold("Secret", "key") // without the gate, the pod might be written last by chance
	outdated := func() bool {
		return slices.ContainsFunc(l.Events(l.Namespace, "Pod", "web"), func(e string) bool { return strings.Contains(e, "OutdatedReferences") })
	}
	assert.Never(l, outdated, timeout+time.Second, 100*time.Millisecond, "the outage counts as waiting")
	link.SetCut(false)
	<-g.held
	l.neverBefore("ShadowPod", "web")
	g.open()
	l.before("Secret", "key", "ShadowPod", "web")
	l.Present(l.Remote, "Secret", l.RemoteNS, "key", reflectiontest.Field("data.a", "bmV3"))
	assert.False(t, outdated(), "a pod that came in order has the Event about one that did not")
}

// denySecret makes the provider deny a value of the Secret, as an admission policy would.
func (l *lab) denySecret(value string) {
	l.Helper()
	l.Remote.Create(l.T, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-%[1]s-%[2]s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE, UPDATE]}], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
  validations: [{expression: "!has(object.metadata.annotations) || !('grade' in object.metadata.annotations) || object.metadata.annotations['grade'] != '%[2]s'", message: "no %[2]s here"}]`, l.RemoteNS, value))
	l.Remote.Create(l.T, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: no-%[1]s-%[2]s},
  spec: {policyName: no-%[1]s-%[2]s, validationActions: [Deny]}}`, l.RemoteNS, value))
}

// TestADeniedReferenceIsNotAwaitedForever checks that an update that the provider denies delays a pod only up to the
// limit, and that an Event names the object and the cause. A later pod must not wait for an object that is known to
// fail, until the object changes again.
func TestADeniedReferenceIsNotAwaitedForever(t *testing.T) {
	t.Parallel()
	const limit = 12 * time.Second
	l := newLab(t, referenceKinds, func(o *reflection.Options) { o.ReferenceTimeout = limit })
	l.start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {a: good}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "key")
	l.denySecret("bad")
	l.Eventually(func() error { // The admission policy takes a moment to become effective.
		_, err := l.Remote.Of("Secret", l.RemoteNS).Patch(t.Context(), "key", types.MergePatchType, []byte(`{"metadata": {"annotations": {"grade": "bad"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy is not in force yet")
		}
		return nil
	})
	l.Local.PatchYAML(t, "Secret", l.Namespace, "key", `{metadata: {annotations: {grade: bad}}, stringData: {a: bad}}`)
	const reads = `containers: [{name: c, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: key, key: a}}}]}]`
	since := time.Now()
	l.reader("first", reads)
	l.Event(l.Namespace, "Pod", "first", "Normal", pod.AwaitingReferencesReason, "Secret key", "no bad here")
	if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "first") != nil {
		t.Error("the pod has an Event that it waits, and does not wait")
	}
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "first")
	l.Event(l.Namespace, "Pod", "first", "Warning", pod.OutdatedReferencesReason, "Secret key", "no bad here")
	t.Logf("the first pod has waited %s", time.Since(since))
	since = time.Now()
	l.reader("second", reads)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "second")
	if waited := time.Since(since); waited > limit/2 {
		t.Errorf("the second pod has waited %s for what is known to fail", waited)
	}
	l.Event(l.Namespace, "Pod", "second", "Warning", pod.OutdatedReferencesReason, "Secret key", "no bad here")

	l.Local.PatchYAML(t, "Secret", l.Namespace, "key", `{metadata: {annotations: {grade: better}}, stringData: {a: better}}`)
	l.reader("third", reads)
	l.before("Secret", "key", "ShadowPod", "third")
	if events := l.Events(l.Namespace, "Pod", "third"); len(events) > 0 {
		t.Errorf("a pod that came in order has the Events %q", events)
	}
}

// TestPodsThatNeedExcludedObjectsAreWarned checks that a pod that needs objects that are not reflected, and that the
// provider does not have, gets an Event with the objects, the reasons and the remedies, and is offloaded at once. A pod
// must not get this Event if the reference is optional, if the provider has its own object, or if the user has declared
// that.
func TestPodsThatNeedExcludedObjectsAreWarned(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), referenceKinds)
	l.start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: robot, annotations: {kubernetes.io/service-account.name: robot}}, type: kubernetes.io/service-account-token}`)
	for _, name := range []string{"here", "both"} {
		l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, annotations: {liqo.io/skip-reflection: "true"}}, data: {a: b}}`, name))
	}
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: both}, data: {a: theirs}}`)
	l.Settled()
	l.reader("web", `containers: [{name: c, image: i, envFrom: [{configMapRef: {name: here}}, {configMapRef: {name: both}}]}], volumes: [{name: v, secret: {secretName: robot}}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Event(l.Namespace, "Pod", "web", "Warning", pod.MissingReferencesReason, "ConfigMap here (annotation liqo.io/skip-reflection is set): change the annotation, or create it in namespace "+l.RemoteNS,
		"Secret robot (plugin secret: service-account tokens are only reflected in API server mode Legacy", "projected volume")
	if events := strings.Join(l.Events(l.Namespace, "Pod", "web"), "; "); strings.Contains(events, "both") || strings.Contains(events, pod.AwaitingReferencesReason) {
		t.Errorf("the pod has the Events %s", events)
	}
	l.reader("optional", `containers: [{name: c, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: here, key: a, optional: true}}}]}], volumes: [{name: v, secret: {secretName: robot, optional: true}}]`)
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: declared, annotations: {%s: ConfigMap}},
  spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i, envFrom: [{configMapRef: {name: here}}]}]}}`, pod.RemoteReferencesAnnotation, l.Node))
	for _, name := range []string{"optional", "declared"} {
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, name)
	}
	// An object that is reflected again is not excluded any more.
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "here", `{metadata: {annotations: {liqo.io/skip-reflection: null}}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "here")
	l.reader("later", `containers: [{name: c, image: i, envFrom: [{configMapRef: {name: here}}]}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "later")
	l.Settled()
	for _, name := range []string{"optional", "declared", "later"} {
		if events := l.Events(l.Namespace, "Pod", name); len(events) > 0 {
			t.Errorf("pod %s has the Events %q", name, events)
		}
	}
}

// TestContainersThatStartLaterWait checks that a container that starts later, because its image changed, also waits for
// its references.
func TestContainersThatStartLaterWait(t *testing.T) {
	t.Parallel()
	l := newLab(t, referenceKinds)
	l.start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {a: old}}`)
	l.reader("web", `containers: [{name: c, image: "i:1", envFrom: [{configMapRef: {name: config}}]}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Settled()
	g := l.hold("ConfigMap", "config")
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "config", `{data: {a: new}}`)
	<-g.held
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: c, image: "i:2", envFrom: [{configMapRef: {name: config}}], resources: {}, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, imagePullPolicy: IfNotPresent}]}}`)
	image := func() string {
		containers, _, _ := unstructured.NestedSlice(l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web").Object, "spec", "pod", "containers")
		return containers[0].(map[string]any)["image"].(string)
	}
	assert.Never(t, func() bool { return image() != "i:1" }, time.Second, 50*time.Millisecond, "the new image came before the new configuration")
	g.open()
	l.Eventually(func() error {
		if image() != "i:2" {
			return errors.New("the image is still the old one")
		}
		return nil
	})
	l.before("ConfigMap", "config", "ShadowPod", "web")
}

// TestPodsWaitForTheElection checks that pods wait while the leading virtual kubelet is unknown, because it is then
// also unknown whether the objects to which they refer are up to date. If another virtual kubelet is known to lead,
// they do not wait.
func TestPodsWaitForTheElection(t *testing.T) {
	t.Parallel()
	l := newLab(t, referenceKinds)
	l.StartUnready()
	l.Manager.Elect()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {a: b}}`)
	l.reader("web", `containers: [{name: c, image: i, envFrom: [{configMapRef: {name: config}}]}]`)
	l.neverBefore("ShadowPod", "web")
	l.Manager.SetLeading(true)
	l.before("ConfigMap", "config", "ShadowPod", "web")
	l.Manager.Elect()
	l.Manager.SetLeading(false)
	l.reader("later", `containers: [{name: c, image: i, envFrom: [{configMapRef: {name: config}}]}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "later")
}

// BenchmarkReferences measures how long it takes to check the references of a pod in a namespace with many Services,
// all of which are up to date.
func BenchmarkReferences(b *testing.B) {
	m := benchManager(b)
	web := parsed(b, benchPod)
	s := m.Prepare(b.Context(), reflection.PodKind, "shop", "shop-rome")
	m.PrepareBeside(s, reflection.ServiceKind, reflection.ConfigMapKind, reflection.SecretKind)
	spec := document.Of(web.Object).Field("spec")
	b.ReportAllocs()
	for b.Loop() {
		if lags := s.Lags(pod.ReferencesOf(spec), queue.Key{Namespace: "shop", Name: "web"}); len(lags) > 0 {
			b.Fatal(lags)
		}
	}
}
