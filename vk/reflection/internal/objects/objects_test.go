// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/report"
	"github.com/refract-project/refract/vk/reflection/internal/statusdelay"
)

var (
	services    = corev1.SchemeGroupVersion.WithResource("services")
	serviceKind = corev1.SchemeGroupVersion.WithKind("Service")
)

// fieldStatus is the status of a Service, of which one field is reflected. Another field determines the class of the
// load balancer.
var fieldStatus = Status{Back: true, Subresource: true, Fields: []string{"loadBalancer"}, Class: [][]string{{"spec", "loadBalancerClass"}}}

// wholeStatus is the status of a custom resource, which is reflected as a whole.
var wholeStatus = Status{Back: true, Subresource: true}

// lab is a Writer for the statuses of Services in this cluster, which is represented by a stub API server.
type lab struct {
	t       *testing.T
	cluster *apistub.Server
	writer  *Writer
	clock   *clocktesting.FakeClock
	events  apistub.Events
	worker  *evaluation.Worker
}

func newLab(t *testing.T, spec Status) *lab {
	t.Helper()
	l := &lab{t: t, cluster: apistub.New(t, clientgoscheme.Scheme), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), worker: evaluation.NewWorker(slog.New(slog.DiscardHandler))}
	l.cluster.Put(t, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}})
	c, err := clients.New(clients.Options{
		Local: l.cluster.Config(), Remote: l.cluster.Config(), RemoteClusterID: "milan", CallTimeout: 5 * time.Second, ProbeEvery: time.Second,
		Changed: func(bool) {}, Clock: l.clock, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	reporter := report.New(func() {})
	reporter.Start(&l.events)
	t.Cleanup(reporter.Close)
	q := queue.New(l.clock, func(queue.Key) bool { return false }, func(queue.Key) {})
	t.Cleanup(q.ShutDown)
	l.writer = New(Options{
		Kind: "Service", Source: services, Spec: spec, LocalClusterID: "rome", RemoteClusterID: "milan", KnowsCluster: func(id string) bool { return id == "turin" },
		Clients: c, Queue: q, Events: reporter.ForKind("Service"), Writes: metrics.New().WritesOf("Service"), Clock: l.clock,
	})
	return l
}

// put stores a Service with annotations. If address is set, it is the address of the load balancer in the status, and
// manager is the field manager of the status.
func (l *lab) put(annotations map[string]string, address, manager string) *unstructured.Unstructured {
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web", "namespace": "shop"}, "spec": map[string]any{"loadBalancerClass": "cloud"},
	}}
	if len(annotations) > 0 {
		service.SetAnnotations(annotations)
	}
	if address != "" {
		service.Object["status"] = balancer(address)
	}
	if manager != "" {
		service.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Subresource: "status", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:loadBalancer":{"f:ingress":{}}}}`),
		}})
	}
	l.cluster.Put(l.t, service)
	return l.stored()
}

// cached returns an object in the form that caches contain.
func (l *lab) cached(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetManagedFields(nil)
	return object
}

func balancer(address string) map[string]any {
	return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": address}}}}
}

// show writes the status of a copy to the local object.
func (l *lab) show(local *unstructured.Unstructured, status map[string]any) error {
	l.worker.Reset()
	return l.writer.ShowStatus(l.t.Context(), l.worker, local, &unstructured.Unstructured{Object: map[string]any{}}, func() (map[string]any, error) { return status, nil })
}

func (l *lab) stored() *unstructured.Unstructured {
	return l.cached(l.cluster.Get(serviceKind, "shop", "web"))
}

func shownAddress(object *unstructured.Unstructured) string {
	status, _ := object.Object["status"].(map[string]any)
	found := fmt.Sprint(status["loadBalancer"])
	_, rest, _ := strings.Cut(found, "ip:")
	address, _, _ := strings.Cut(rest, "]")
	return address
}

// TestOwnersOfAStatus checks, for each possible owner of a status, whether the provider's status is written, and which
// annotations the object then has.
func TestOwnersOfAStatus(t *testing.T) {
	t.Parallel()
	hash := (&Writer{spec: fieldStatus}).hashShown(balancer("1.1.1.1"))
	for name, c := range map[string]struct {
		annotations map[string]string
		present     string // address in the initial status
		manager     string // field manager of the initial status
		shown       bool   // whether the provider's address must be in the status afterwards
		from        string // expected value of StatusFromAnnotation
		event       string
	}{
		"nobody, and empty": {shown: true, from: "milan"},
		"this provider":     {annotations: map[string]string{StatusFromAnnotation: "milan", StatusHashAnnotation: hash}, present: "1.1.1.1", shown: true, from: "milan"},
		"this provider, in another form of the server":  {annotations: map[string]string{StatusFromAnnotation: "milan", StatusHashAnnotation: "other"}, present: "1.1.1.1", manager: wire.ReflectionFieldManager, shown: true, from: "milan"},
		"a controller here, after this provider":        {annotations: map[string]string{StatusFromAnnotation: "milan", StatusHashAnnotation: "other"}, present: "1.1.1.1", manager: "metallb", from: "rome", event: `field manager "metallb"`},
		"a controller here, since before":               {annotations: map[string]string{StatusFromAnnotation: "rome", StatusHashAnnotation: (&Writer{spec: fieldStatus}).hashClass(classOf("cloud"))}, present: "1.1.1.1", from: "rome"},
		"a controller here, of another class":           {annotations: map[string]string{StatusFromAnnotation: "rome", StatusHashAnnotation: "another class"}, present: "1.1.1.1", shown: true, from: "milan"},
		"a controller here, which has cleared it":       {annotations: map[string]string{StatusFromAnnotation: "rome"}, shown: true, from: "milan"},
		"another provider":                              {annotations: map[string]string{StatusFromAnnotation: "turin"}, present: "1.1.1.1", from: "turin"},
		"another provider, which has cleared it":        {annotations: map[string]string{StatusFromAnnotation: "turin"}, shown: true, from: "milan"},
		"a provider that is unknown by now":             {annotations: map[string]string{StatusFromAnnotation: "gone"}, present: "1.1.1.1", shown: true, from: "milan"},
		"a controller here, without annotations":        {present: "1.1.1.1", manager: "metallb"},
		"this provider, whose annotations were removed": {present: "1.1.1.1", manager: wire.ReflectionFieldManager, shown: true, from: "milan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, fieldStatus)
			require.NoError(t, l.show(l.put(c.annotations, c.present, c.manager), balancer("9.9.9.9")))
			want := c.present
			if c.shown {
				want = "9.9.9.9"
			}
			assert.Equal(t, want, shownAddress(l.stored()))
			assert.Equal(t, c.from, l.stored().GetAnnotations()[StatusFromAnnotation])
			if c.event != "" {
				l.events.Await(t, StatusOverruledReason, c.event)
			}
			l.cluster.TakeSent()
			require.NoError(t, l.show(l.stored(), balancer("9.9.9.9")))
			assert.Empty(t, l.cluster.TakeSent(), "the same status is written once, and an owner is not changed twice")
		})
	}
}

func classOf(class string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"loadBalancerClass": class}}}
}

// TestAnEmptyStatusIsNotClaimed checks that the provider does not become the owner of a status if it has no value for
// any reflected field.
func TestAnEmptyStatusIsNotClaimed(t *testing.T) {
	t.Parallel()
	l := newLab(t, fieldStatus)
	require.NoError(t, l.show(l.put(nil, "", ""), map[string]any{"loadBalancer": map[string]any{}}))
	require.NoError(t, l.show(l.stored(), nil))
	assert.Empty(t, l.cluster.TakeSent())
}

// TestOwnersOfAWholeStatus checks, for each possible owner, whether the provider's status is written if the status is
// reflected as a whole, as for custom resources.
func TestOwnersOfAWholeStatus(t *testing.T) {
	t.Parallel()
	for from, shown := range map[string]bool{"": true, "milan": true, "gone": true, "turin": false, "rome": false} {
		l := newLab(t, wholeStatus)
		annotations := map[string]string{}
		if from != "" {
			annotations[StatusFromAnnotation] = from
		}
		require.NoError(t, l.show(l.put(annotations, "1.1.1.1", "anyone"), map[string]any{"phase": "Ready"}))
		phase, _, _ := unstructured.NestedString(l.stored().Object, "status", "phase")
		assert.Equal(t, shown, phase == "Ready", "owner %q", from)
	}
}

// TestARetractedStatusIsRemoved checks the status after its copy was removed. Reflected fields must be removed. A
// status that is reflected as a whole must be kept without its annotations. A status with another owner must not
// change.
func TestARetractedStatusIsRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t, fieldStatus)
	require.NoError(t, l.show(l.put(nil, "", ""), balancer("9.9.9.9")))
	require.NoError(t, l.writer.RetractStatus(t.Context(), l.worker, l.stored()))
	assert.Empty(t, shownAddress(l.stored()))
	assert.Empty(t, l.stored().GetAnnotations())

	l = newLab(t, wholeStatus)
	require.NoError(t, l.show(l.put(nil, "", ""), map[string]any{"phase": "Ready"}))
	require.NoError(t, l.writer.RetractStatus(t.Context(), l.worker, l.stored()))
	assert.NotNil(t, l.stored().Object["status"], "the previous value is not known")
	assert.Empty(t, l.stored().GetAnnotations())

	other := l.put(map[string]string{StatusFromAnnotation: "turin"}, "1.1.1.1", "")
	l.cluster.TakeSent()
	require.NoError(t, l.writer.RetractStatus(t.Context(), l.worker, other))
	assert.Empty(t, l.cluster.TakeSent(), "it is not ours")
}

// TestStatusesArePaced checks that a status that keeps changing is written in a burst at first, and then once per
// second.
func TestStatusesArePaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, fieldStatus)
	l.put(nil, "", "")
	for i := range statusdelay.PaceBurst {
		require.NoError(t, l.show(l.stored(), balancer(fmt.Sprintf("9.9.9.%d", i))))
	}
	var later *failure.RetryAfter
	require.ErrorAs(t, l.show(l.stored(), balancer("8.8.8.8")), &later)
	assert.LessOrEqual(t, later.After, time.Second)
	assert.Equal(t, 1, l.writer.Delays.Len())
	l.clock.Step(later.After)
	require.NoError(t, l.show(l.stored(), balancer("8.8.8.8")))
	assert.Equal(t, "8.8.8.8", shownAddress(l.stored()))
	l.writer.Forget(queue.Key{Namespace: "shop", Name: "web"})
	assert.Zero(t, l.writer.Delays.Len())
}

// TestAStatusThatIsRevertedEndsInQuarantine checks that a status is no longer written if another client keeps reverting
// it.
func TestAStatusThatIsRevertedEndsInQuarantine(t *testing.T) {
	t.Parallel()
	l := newLab(t, wholeStatus)
	var fight *oscillation.QuarantineError
	for range 20 {
		l.clock.Step(2 * time.Second)
		local := l.put(map[string]string{StatusFromAnnotation: "milan"}, "1.1.1.1", "rival")
		if err := l.show(local, map[string]any{"phase": "Ready"}); errors.As(err, &fight) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	require.NotNil(t, fight, "no quarantine")
	assert.Equal(t, 1, l.writer.Quarantined())
}

// TestAStatusInAnotherFormIsWrittenOnce checks that a status is not written again if the API server has stored it in a
// different form.
func TestAStatusInAnotherFormIsWrittenOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, fieldStatus)
	l.cluster.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
		if shownAddress(object) == "9.9.9.9" {
			object.Object["status"] = balancer("009.9.9.9")
		}
		return nil
	})
	require.NoError(t, l.show(l.put(nil, "", ""), balancer("9.9.9.9")))
	assert.Equal(t, "009.9.9.9", shownAddress(l.stored()))
	l.cluster.TakeSent()
	require.NoError(t, l.show(l.stored(), balancer("9.9.9.9")))
	assert.Empty(t, l.cluster.TakeSent())
}

// TestLargeStatusesAreNotWritten checks that a status that exceeds the size limit is not written.
func TestLargeStatusesAreNotWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t, wholeStatus)
	var input *failure.InputError
	require.ErrorAs(t, l.show(l.put(nil, "", ""), map[string]any{"text": strings.Repeat("x", 1<<17)}), &input)
	assert.NotContains(t, l.stored().Object, "status")
}

// TestPatchesAreForTheKnownObject checks the preconditions of a patch. If the object no longer exists, there must be no
// error. Another object with the same name must not be changed. A failed test in the patch must be a conflict.
func TestPatchesAreForTheKnownObject(t *testing.T) {
	t.Parallel()
	l := newLab(t, fieldStatus)
	local := l.put(nil, "", "")
	patch := func() jsonpatch.Patch {
		return clients.AddEntries(nil, "/metadata/labels", nil, map[string]string{"a": "b", "empty": ""})
	}
	stored, err := l.writer.PatchLocal(t.Context(), local, patch())
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "b"}, stored.GetLabels())
	view := l.writer.View(queue.Key{Namespace: "shop", Name: "web"}, func() *unstructured.Unstructured { return local })
	assert.Equal(t, "b", view.GetLabels()["a"], "our own write is not seen before the watch delivers it")
	assert.True(t, l.writer.Seen(local, stored, false), "the echo of our own write")

	replaced := local.DeepCopy()
	replaced.SetUID("another")
	_, err = l.writer.PatchLocal(t.Context(), replaced, patch())
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = l.writer.PatchLocal(t.Context(), local, clients.Unchanged(local))
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	l.cluster.Remove(serviceKind, "shop", "web")
	stored, err = l.writer.PatchLocal(t.Context(), local, patch())
	require.NoError(t, err)
	assert.Nil(t, stored)
}

// TestErrorsOfThisClusterHaveTheirClass checks the class of each error of this cluster's API server.
func TestErrorsOfThisClusterHaveTheirClass(t *testing.T) {
	t.Parallel()
	for class, refusal := range map[failure.Class]*apierrors.StatusError{
		failure.Refused:     apierrors.NewForbidden(services.GroupResource(), "web", errors.New("cannot patch")),
		failure.Throttled:   apierrors.NewTooManyRequests("slow down", 1),
		failure.Unreachable: apierrors.NewServiceUnavailable("starting"),
	} {
		l := newLab(t, fieldStatus)
		local := l.put(nil, "", "")
		l.cluster.Once("patch", apistub.Refuse(refusal))
		got, _ := failure.Classify(l.show(local, balancer("9.9.9.9")))
		assert.Equal(t, class, got)
		assert.Empty(t, shownAddress(l.stored()))
	}
}

// TestContentThatIsNotCachedIsRead checks that the content of an object is read if the cache contains only its hash.
func TestContentThatIsNotCachedIsRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, fieldStatus)
	local := l.put(nil, "1.1.1.1", "")
	same, err := l.writer.Whole(t.Context(), local)
	require.NoError(t, err)
	assert.Same(t, local, same)
	trimmed := local.DeepCopy()
	content.Trimmer(content.KeepNothing, nil)(trimmed)
	whole, err := l.writer.Whole(t.Context(), trimmed)
	require.NoError(t, err)
	assert.Equal(t, "cloud", whole.Object["spec"].(map[string]any)["loadBalancerClass"]) //nolint:forcetypeassert // made above
	trimmed.SetUID("another")
	whole, err = l.writer.Whole(t.Context(), trimmed)
	require.NoError(t, err)
	assert.Nil(t, whole, "the watch will report the new object")
	l.cluster.Once("get", apistub.Refuse(apierrors.NewInternalError(errors.New("disk"))))
	_, err = l.writer.Whole(t.Context(), trimmed)
	require.Error(t, err)
}
