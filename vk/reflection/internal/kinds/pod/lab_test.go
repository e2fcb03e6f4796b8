// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/secret"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/token"
)

var (
	podKind    = corev1.SchemeGroupVersion.WithKind("Pod")
	shadowKind = offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowPodKind)
)

// Statuses of pods.
const (
	pending = `{phase: Pending}`
	running = `{phase: Running, podIP: 10.71.0.9, podIPs: [{ip: 10.71.0.9}], conditions: [{type: Ready, status: "True"}],
  containerStatuses: [{name: web, image: "web:1", ready: true, restartCount: 0, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]}`
	succeeded = `{phase: Succeeded, containerStatuses: [{name: web, image: "web:1", ready: false, restartCount: 0,
  state: {terminated: {exitCode: 0, reason: Completed}}}]}`
)

// lab evaluates the pod web of a Pair.
type lab struct {
	*kindtest.Pair
	t     *testing.T
	h     *Handler
	scope *engine.Scope
}

// newLab returns a lab with the kinds Pod, ConfigMap, ServiceAccount and Secret.
func newLab(t *testing.T, edit func(*engine.Options)) *lab {
	t.Helper()
	configMaps := engine.Kind{Name: configMapKind, Source: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Policy: engine.DenyList, Workers: 1, Tracked: true}
	l := &lab{Pair: kindtest.New(t, edit, Kind(), configMaps, token.Kind(), secret.Kind()), t: t}
	l.scope = l.Prepare(Name, configMapKind, token.Name, secret.Name)
	l.h = l.Manager.Handler(Name).(*Handler)
	return l
}

// local stores the pod in this cluster. The fields in metadata and spec are added to its metadata and its spec.
func (l *lab) local(status, metadata, spec string) {
	l.t.Helper()
	object := kindtest.Object(l.t, `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: milan, containers: [{name: web, image: "web:1"}]}`)
	l.edit(object, "metadata", metadata)
	l.edit(object, "spec", spec)
	l.edit(object, "status", status)
	l.Here.Put(l.t, object)
	l.sync()
}

// shadow stores the ShadowPod of the pod on the provider. The pod must exist, unless the fields of its metadata include
// the annotation with its uid.
func (l *lab) shadow(metadata, status string) {
	l.t.Helper()
	object := l.remoteObject(shadowKind.GroupVersion().String(), shadowKind.Kind, metadata, status)
	object.Object["spec"] = map[string]any{"pod": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}}}
	l.Provider.Put(l.t, object)
	l.sync()
}

// remote stores the pod that the provider's controllers make from the ShadowPod.
func (l *lab) remote(metadata, status string) {
	l.t.Helper()
	l.Provider.Put(l.t, l.remoteObject("v1", "Pod", metadata, status))
	l.sync()
}

func (l *lab) remoteObject(version, kind, metadata, status string) *unstructured.Unstructured {
	l.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	object.SetName("web")
	object.SetNamespace(kindtest.RemoteNamespace)
	object.SetLabels(l.h.Ownership())
	if local := l.Here.Get(podKind, kindtest.Namespace, "web"); local != nil {
		object.SetAnnotations(map[string]string{copies.OriginUIDAnnotation: string(local.GetUID()),
			wire.OriginNamespaceAnnotation: kindtest.Namespace})
	}
	l.edit(object, "metadata", metadata)
	l.edit(object, "status", status)
	return object
}

// edit adds the fields in text, which is YAML, to the given field of an object.
func (l *lab) edit(object *unstructured.Unstructured, field, text string) {
	l.t.Helper()
	added := map[string]any{}
	require.NoError(l.t, yaml.Unmarshal([]byte(text), &added))
	merged, _ := object.Object[field].(map[string]any)
	if merged = maps.Clone(merged); merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, added)
	if len(merged) > 0 {
		object.Object[field] = merged
	}
	*object = *kindtest.Object(l.t, mustEncode(l.t, object))
}

func mustEncode(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	text, err := object.MarshalJSON()
	require.NoError(t, err)
	return string(text)
}

// sync updates the caches to the state of the API servers.
func (l *lab) sync() {
	l.t.Helper()
	pods, shadows := l.scope.Caches()
	l.Sync(l.Here, pods, podKind, kindtest.Namespace, "web")
	l.Sync(l.Provider, shadows, shadowKind, kindtest.RemoteNamespace, "web")
	l.Sync(l.Provider, l.scope.State.(*informer.Informer), podKind, kindtest.RemoteNamespace, "web")
}

// reconcile evaluates the pod, and then brings the caches up to date.
func (l *lab) reconcile() error {
	l.t.Helper()
	err := l.Reconcile(Name, "web")
	l.sync()
	return err
}

// writes returns the writes to both clusters since the last call. The order of the clusters is random.
func (l *lab) writes() (writes []string) {
	for side, server := range map[string]*apistub.Server{"here": l.Here, "there": l.Provider} {
		for _, sent := range server.TakeSent() {
			if sent.Resource == "events" {
				continue
			}
			text := side + " " + sent.Verb + " " + sent.Resource
			if sent.Subresource != "" {
				text += "/" + sent.Subresource
			}
			writes = append(writes, text)
		}
	}
	return writes
}

// requireWrites checks that exactly the given writes were sent since the last call, in any order.
func (l *lab) requireWrites(want ...string) {
	l.t.Helper()
	assert.ElementsMatch(l.t, want, l.writes())
}

// stored returns a field of the pod in this cluster as text.
func (l *lab) stored(path ...string) string {
	l.t.Helper()
	pod := l.Here.Get(podKind, kindtest.Namespace, "web")
	if pod == nil {
		return "gone"
	}
	text, _, _ := unstructured.NestedString(pod.Object, path...)
	return text
}

// shown returns the status of the pod in this cluster as YAML.
func (l *lab) shown() string {
	l.t.Helper()
	pod := l.Here.Get(podKind, kindtest.Namespace, "web")
	text, err := yaml.Marshal(pod.Object["status"])
	require.NoError(l.t, err)
	return string(text)
}

// requireOutcome checks the class of the error in each direction.
func requireOutcome(t *testing.T, err error, out, back failure.Class) {
	t.Helper()
	kindtest.RequireClass(t, out, evaluation.Out, err)
	kindtest.RequireClass(t, back, evaluation.Back, err)
}

// flow returns text as a flow mapping of YAML, for tables.
func flow(fields ...string) string { return "{" + strings.Join(fields, ", ") + "}" }
