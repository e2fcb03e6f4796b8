// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/shadowpod"
	"github.com/refract-project/refract/test/support/apistub"
)

// The tests in this file test decisions about one ShadowPod without a control plane: the API server is a stub that is
// read without a cache. All other tests of this package need a control plane, except tests of single functions.

var podKind, shadowKind = corev1.SchemeGroupVersion.WithKind("Pod"), offloading.GroupVersion.WithKind(offloading.ShadowPodKind)

// desk is a controller without a manager, and the stub of an API server that it works on.
type desk struct {
	*testing.T
	*apistub.Server
	controller *shadowpod.Controller
	events     *events.FakeRecorder
	clock      *testingclock.FakeClock
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	// The clock stands still, so it is set to a time after the creation of all objects.
	clock := testingclock.NewFakeClock(time.Now().Add(time.Hour))
	d := &desk{T: t, Server: apistub.New(t, scheme), events: events.NewFakeRecorder(100), clock: clock}
	d.Put(t, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "shop",
		Labels: map[string]string{wire.RemoteClusterIDLabel: "consumer"}, Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-consumer/provider"}}})
	d.restart()
	return d
}

// restart replaces the controller with a new one without any state in memory.
func (d *desk) restart() {
	scheme, err := controllers.Scheme()
	require.NoError(d, err)
	c, err := client.New(d.Config(), client.Options{Scheme: scheme})
	require.NoError(d, err)
	policy, err := tenancy.NewPolicy(tenancy.Options{})
	require.NoError(d, err)
	d.controller = shadowpod.NewController(c, c, d.events, shadowpod.Options{Workers: 1, Clock: d.clock, Policy: policy})
}

// request creates or updates a ShadowPod, as the virtual kubelet does.
func (d *desk) request(shadow *unstructured.Unstructured) {
	d.Helper()
	if present := d.Server.Get(shadowKind, shadow.GetNamespace(), shadow.GetName()); present != nil {
		shadow.SetGeneration(present.GetGeneration() + 1)
		shadow.Object["status"] = present.Object["status"]
		if shadow.Object["status"] == nil {
			delete(shadow.Object, "status")
		}
	} else {
		shadow.SetGeneration(1)
	}
	d.Put(d, shadow)
}

// reconcile reconciles the ShadowPod "web" once.
func (d *desk) reconcile() (reconcile.Result, error) {
	return d.controller.Reconcile(d.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}})
}

// reconcileAll reconciles until nothing is written any more, and requires success.
func (d *desk) reconcileAll() {
	d.Helper()
	for range 10 {
		before := d.Writes()
		_, err := d.reconcile()
		require.NoError(d, err)
		if d.Writes() == before {
			return
		}
	}
	d.Errorf("the controller does not come to rest")
}

// pod returns the pod "web", or nil if it does not exist.
func (d *desk) pod() *unstructured.Unstructured { return d.Server.Get(podKind, "shop", "web") }

func (d *desk) shadow() *unstructured.Unstructured { return d.Server.Get(shadowKind, "shop", "web") }

// setPod changes the pod as a client other than the controller would.
func (d *desk) setPod(value any, fields ...string) {
	d.Helper()
	pod := d.pod()
	require.NotNil(d, pod)
	d.Put(d, set(pod, value, fields...))
}

func (d *desk) said() string {
	var all []string
	for {
		select {
		case event := <-d.events.Events:
			all = append(all, event)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func container(fields map[string]any) []any {
	all := map[string]any{"name": "main", "image": "registry.example/main:1"}
	for name, value := range fields {
		all[name] = value
	}
	return []any{all}
}

// TestWhatIsForged checks the result of each field that the consumer sets in a ShadowPod: the pod that is created, or
// the refusal.
func TestWhatIsForged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value   any
		fields  []string
		refusal string // expected part of the condition
		field   string // path of the field in the pod
		want    any
	}{
		"plain":            {"Always", []string{"spec", "pod", "restartPolicy"}, "", "spec.restartPolicy", "Always"},
		"no token":         {"Always", []string{"spec", "pod", "restartPolicy"}, "", "spec.automountServiceAccountToken", false},
		"an own token":     {true, []string{"spec", "pod", "automountServiceAccountToken"}, "", "spec.automountServiceAccountToken", true},
		"of a job":         {"Never", []string{"spec", "pod", "restartPolicy"}, "", "metadata.finalizers", []any{shadowpod.FinalPhaseFinalizer}},
		"an unknown field": {"kept", []string{"spec", "pod", "futureField"}, "", "spec.futureField", "kept"},
		"a label":          {"kept", []string{"metadata", "labels", "team"}, "", "metadata.labels.team", "kept"},
		"its label":        {"mine", []string{"metadata", "labels", "liqo.io/managed-by"}, "", "metadata.labels.liqo.io/managed-by", wire.ManagedByShadowPod},
		// The first generation is not recorded.
		"its generation":    {"77", []string{"metadata", "annotations", shadowpod.GenerationAnnotation}, "", "metadata.annotations." + shadowpod.GenerationAnnotation, nil},
		"host network":      {true, []string{"spec", "pod", "hostNetwork"}, "hostNetwork", "", nil},
		"a node":            {"control-plane-1", []string{"spec", "pod", "nodeName"}, "spec.pod.nodeName", "", nil},
		"privileged":        {container(map[string]any{"securityContext": map[string]any{"privileged": true}}), []string{"spec", "pod", "containers"}, "privileged", "", nil},
		"no spec of a pod":  {"text", []string{"spec", "pod", "containers"}, "it is not the spec of a pod", "", nil},
		"of another one":    {"stranger", []string{"metadata", "labels", wire.OriginLabel}, "belongs to consumer consumer, not to stranger", "", nil},
		"ephemeral is late": {[]any{map[string]any{"name": "debug", "image": "busybox"}}, []string{"spec", "pod", "ephemeralContainers"}, "", "metadata.annotations." + shadowpod.SpentAnnotation, "debug"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.request(set(shadowPod("shop", "web"), test.value, test.fields...))
			d.reconcileAll()
			if test.refusal != "" {
				assert.Nil(t, d.pod())
				status, message := admitted(d.shadow())
				assert.Equal(t, "False", status)
				assert.Contains(t, message, test.refusal)
				assert.Contains(t, d.said(), "RefusedByProvider")
				d.request(shadowPod("shop", "web"))
				d.reconcileAll()
				assert.NotNil(t, d.pod(), "once it is corrected")
				status, _ = admitted(d.shadow())
				assert.Equal(t, "True", status)
				return
			}
			require.NotNil(t, d.pod())
			assert.Equal(t, test.want, fieldOf(d.pod(), test.field))
			assert.True(t, metav1.IsControlledBy(d.pod(), d.shadow()))
			writes := d.Writes()
			d.restart()
			d.reconcileAll()
			assert.Equal(t, writes, d.Writes(), "a restart writes nothing")
		})
	}
}

// fieldOf returns the value at a path. The first two names of the path must not contain dots, but the last one may.
func fieldOf(object *unstructured.Unstructured, path string) any {
	names := strings.SplitN(path, ".", 3)
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, names...)
	return value
}

// TestUnusableShadowPods checks that a ShadowPod that names no consumer or contains no pod is reported, and not
// retried.
func TestUnusableShadowPods(t *testing.T) {
	t.Parallel()
	for want, shadow := range map[string]*unstructured.Unstructured{
		"label " + wire.OriginLabel + " is missing": set(shadowPod("shop", "web"), map[string]any{"app": "web"}, "metadata", "labels"),
		"spec.pod is missing or not an object":      set(shadowPod("shop", "web"), map[string]any{}, "spec"),
	} {
		d := newDesk(t)
		d.request(shadow)
		result, err := d.reconcile()
		require.NoError(t, err)
		assert.Zero(t, result)
		assert.Nil(t, d.pod())
		assert.Contains(t, d.said(), want)
	}
}

// TestFailedCreations checks that the reason why the creation of a pod fails determines whether it is reported and
// retried.
func TestFailedCreations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failure *apistub.Failure
		event   bool
		exists  bool // whether the pod exists after the failure
	}{
		"invalid": {apistub.Invalid, true, false},
		// Kubernetes creates the ServiceAccount of a new namespace a moment later, so the first refusals are not
		// reported.
		"forbidden":   {apistub.Forbidden, false, false},
		"unavailable": {apistub.Unavailable, true, false},
		"overloaded":  {apistub.Overloaded, true, false},
		"lost":        {apistub.Lost, true, false},
		"answer lost": {apistub.LostAfterwards, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.request(shadowPod("shop", "web"))
			d.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Verb == "create" && r.Resource == "pods" {
					return test.failure
				}
				return nil
			})
			result, err := d.reconcile()
			assert.True(t, err != nil || result.RequeueAfter > 0, "it is tried again")
			assert.Equal(t, test.event, strings.Contains(d.said(), wire.FailedCreatePodReason))
			assert.Equal(t, test.exists, d.pod() != nil)
			if test.failure == apistub.Forbidden {
				for range 8 {
					_, _ = d.reconcile()
				}
				assert.Contains(t, d.said(), wire.FailedCreatePodReason, "it persists")
			}
			d.OnRequest(nil)
			d.clock.Step(time.Hour)
			d.reconcileAll()
			require.NotNil(t, d.pod())
			assert.Len(t, d.podLines(), 1)
		})
	}
}

func (d *desk) podLines() (lines []string) {
	for _, line := range d.Inventory() {
		if strings.Contains(line, `"kind":"Pod"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestFailedReads checks that a read that fails changes nothing.
func TestFailedReads(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"shadowpods", "pods", "namespaces"} {
		for name, failure := range map[string]*apistub.Failure{"forbidden": apistub.Forbidden, "broken": apistub.Broken, "lost": apistub.Lost} {
			t.Run(resource+" "+name, func(t *testing.T) {
				t.Parallel() // the client repeats a lost read for ten seconds
				d := newDesk(t)
				d.request(shadowPod("shop", "web"))
				d.OnRequest(func(r apistub.Request) *apistub.Failure {
					if r.Verb == "get" && r.Resource == resource {
						return failure
					}
					return nil
				})
				_, err := d.reconcile()
				require.Error(t, err)
				assert.Zero(t, d.Writes())
			})
		}
	}
}

// TestPodsOfOthers checks that an existing pod with the name is deleted only if it belongs to an earlier ShadowPod with
// the same name.
func TestPodsOfOthers(t *testing.T) {
	t.Parallel()
	owned := func(kind schema.GroupVersionKind, uid types.UID) []metav1.OwnerReference {
		controls := true
		return []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: "web", UID: uid, Controller: &controls}}
	}
	for name, test := range map[string]struct {
		owners  []metav1.OwnerReference
		deleted bool
		want    string
	}{
		"nobody's":             {nil, false, "it has no controller"},
		"of a ReplicaSet":      {owned(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, "1"), false, "it is controlled by ReplicaSet web"},
		"of an earlier shadow": {owned(shadowKind, "former"), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			pod := foreignPod("shop", "web")
			pod.TypeMeta, pod.OwnerReferences = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, test.owners
			d.Put(t, pod)
			d.request(shadowPod("shop", "web"))
			_, err := d.reconcile()
			require.Error(t, err)
			assert.Equal(t, test.deleted, d.pod() == nil)
			assert.Contains(t, d.said(), test.want)
			if test.deleted {
				d.reconcileAll()
				require.NotNil(t, d.pod())
				assert.True(t, metav1.IsControlledBy(d.pod(), d.shadow()))
			}
		})
	}
}

// TestWhatIsAligned checks that a change to the ShadowPod is applied to the running pod where Kubernetes allows it, and
// that changes that other clients have made since then stay.
func TestWhatIsAligned(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value  any
		fields []string
		field  string
		want   any
	}{
		"an image":           {container(map[string]any{"image": "registry.example/main:2"}), []string{"spec", "pod", "containers"}, "spec.containers", "registry.example/main:2"},
		"a label":            {"changed", []string{"metadata", "labels", "app"}, "metadata.labels.app", "changed"},
		"an annotation":      {"two", []string{"metadata", "annotations", "note"}, "metadata.annotations.note", "two"},
		"a removed label":    {map[string]any{wire.OriginLabel: "consumer"}, []string{"metadata", "labels"}, "metadata.labels.app", nil},
		"a deadline":         {int64(60), []string{"spec", "pod", "activeDeadlineSeconds"}, "spec.activeDeadlineSeconds", int64(60)},
		"a toleration":       {[]any{map[string]any{"key": corev1.TaintNodeNotReady, "operator": "Exists", "effect": "NoExecute"}}, []string{"spec", "pod", "tolerations"}, "spec.tolerations", corev1.TaintNodeNotReady},
		"an immutable field": {"other", []string{"spec", "pod", "hostname"}, "spec.hostname", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.request(shadowPod("shop", "web"))
			d.reconcileAll()
			d.setPod("theirs", "metadata", "labels", "injected")
			changed := set(shadowPod("shop", "web"), test.value, test.fields...)
			d.request(changed)
			d.reconcileAll()
			got := fieldOf(d.pod(), test.field)
			if list, ok := got.([]any); ok {
				assert.Contains(t, fmt.Sprint(list), test.want)
			} else {
				assert.Equal(t, test.want, got)
			}
			assert.Equal(t, "theirs", d.pod().GetLabels()["injected"])
			assert.Equal(t, "2", d.pod().GetAnnotations()[shadowpod.GenerationAnnotation])
		})
	}
}

// TestRefusedChanges checks that a change that this cluster does not allow leaves the running pod unchanged, until the
// change is corrected.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.request(shadowPod("shop", "web"))
	d.reconcileAll()
	before := d.pod()
	d.request(set(set(shadowPod("shop", "web"), container(map[string]any{"image": "registry.example/main:2"}), "spec", "pod", "containers"), true, "spec", "pod", "hostPID"))
	d.reconcileAll()
	assert.Equal(t, before, d.pod())
	assert.Contains(t, d.said(), "the running pod was left unchanged")
	d.request(set(shadowPod("shop", "web"), container(map[string]any{"image": "registry.example/main:2"}), "spec", "pod", "containers"))
	d.reconcileAll()
	assert.Contains(t, fmt.Sprint(fieldOf(d.pod(), "spec.containers")), "main:2")
}

// TestFailedChanges checks that the reason why the patch of a pod fails determines whether it is reported.
func TestFailedChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failure *apistub.Failure
		event   bool
	}{
		"invalid":   {apistub.Invalid, true},
		"forbidden": {apistub.Forbidden, true},
		"conflict":  {apistub.Conflict, false},
		"lost":      {apistub.Lost, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.request(shadowPod("shop", "web"))
			d.reconcileAll()
			d.request(set(shadowPod("shop", "web"), container(map[string]any{"image": "registry.example/main:2"}), "spec", "pod", "containers"))
			d.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Verb == "patch" && r.Resource == "pods" {
					return test.failure
				}
				return nil
			})
			result, err := d.reconcile()
			assert.True(t, err != nil || result.RequeueAfter > 0, "it is tried again")
			assert.Equal(t, test.event, strings.Contains(d.said(), wire.FailedUpdatePodReason))
			d.OnRequest(nil)
			d.clock.Step(time.Hour)
			d.reconcileAll()
			assert.Contains(t, fmt.Sprint(fieldOf(d.pod(), "spec.containers")), "main:2")
		})
	}
}

// TestTheEndOfPods checks that a lost pod is recreated, unless it has finished, even if only an earlier controller
// process has seen that it finished.
func TestTheEndOfPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy, phase string
		recreated     bool
	}{
		"lost while running":       {"Always", "Running", true},
		"lost while pending":       {"Always", "Pending", true},
		"a job lost while running": {"Never", "Running", true},
		"a job that succeeded":     {"Never", "Succeeded", false},
		"a job that failed":        {"OnFailure", "Failed", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.request(set(shadowPod("shop", "web"), test.policy, "spec", "pod", "restartPolicy"))
			d.reconcileAll()
			first := d.pod()
			d.setPod(test.phase, "status", "phase")
			d.reconcileAll()
			if test.phase != "Pending" {
				assert.Equal(t, test.phase, fieldOf(d.shadow(), "status.phase"))
			}
			d.restart()
			if len(d.pod().GetFinalizers()) > 0 {
				now := metav1.NewTime(d.clock.Now())
				pod := d.pod()
				pod.SetDeletionTimestamp(&now)
				pod.SetDeletionGracePeriodSeconds(new(int64))
				d.Put(t, pod)
			} else {
				d.Remove(podKind, "shop", "web")
			}
			d.reconcileAll()
			if !test.recreated {
				assert.Nil(t, d.pod())
				return
			}
			require.NotNil(t, d.pod())
			assert.NotEqual(t, first.GetUID(), d.pod().GetUID())
		})
	}
}

// TestOrphans checks that the pod of a ShadowPod that is gone is deleted, and that a pod of another owner is kept.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Always", "Never"} {
		d := newDesk(t)
		d.request(set(shadowPod("shop", "web"), policy, "spec", "pod", "restartPolicy"))
		d.reconcileAll()
		d.Remove(shadowKind, "shop", "web")
		d.reconcileAll()
		assert.Nil(t, d.pod(), policy)
	}
	d := newDesk(t)
	pod := foreignPod("shop", "web")
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	d.Put(t, pod)
	d.reconcileAll()
	assert.NotNil(t, d.pod())
	assert.Zero(t, d.Writes())
}
