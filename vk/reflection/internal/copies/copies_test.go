// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

var (
	configMaps    = corev1.SchemeGroupVersion.WithResource("configmaps")
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

// lab contains a Writer for the copies of ConfigMaps, and a stub API server that acts as the provider.
type lab struct {
	t        *testing.T
	provider *apistub.Server
	writer   *Writer
	queue    *queue.Queue
	shop     *Namespace
	clock    *clocktesting.FakeClock
	events   apistub.Events
	worker   *evaluation.Worker
	cause    uint64
}

func newLab(t *testing.T, spec Spec, keep func(map[string]any) map[string]any) *lab {
	t.Helper()
	l := &lab{t: t, provider: apistub.New(t, clientgoscheme.Scheme), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), worker: evaluation.NewWorker(slog.New(slog.DiscardHandler))}
	l.provider.Put(t, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop-rome"}}})
	c, err := clients.New(clients.Options{
		Local: l.provider.Config(), Remote: l.provider.Config(), RemoteClusterID: "milan", CallTimeout: 5 * time.Second, ProbeEvery: time.Second,
		Changed: func(bool) {}, Clock: l.clock, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	reporter := report.New(func() {})
	reporter.Start(&l.events)
	t.Cleanup(reporter.Close)
	l.queue = queue.New(l.clock, func(queue.Key) bool { return false }, func(queue.Key) {})
	t.Cleanup(l.queue.ShutDown)
	l.writer, err = New(Options{
		Kind: "ConfigMap", Source: configMaps, Spec: spec, Keep: keep, Owned: wire.ReflectionLabels("rome", "milan"), LocalClusterID: "rome", RemoteClusterID: "milan",
		Clients: c, Queue: l.queue, Events: reporter.ForKind("ConfigMap"), Writes: metrics.New().WritesOf("ConfigMap"), Clock: l.clock,
	})
	require.NoError(t, err)
	l.shop = NewNamespace("shop", "shop-rome", func(local *unstructured.Unstructured) uint64 { return content.IntentHash(local) + l.cause }, l.clock)
	return l
}

func configMap(uid, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "settings", "namespace": "shop", "uid": uid, "labels": map[string]any{"app": "shop"}},
		"data":     map[string]any{"value": value},
	}}
}

// converge writes the copy of an object that no plugin mutates. remote is the copy as it is known before the call.
func (l *lab) converge(local, remote *unstructured.Unstructured) error {
	l.worker.Reset()
	l.worker.Doc.Reset(local.Object)
	return l.writer.Converge(l.t.Context(), l.worker, l.shop, local, remote)
}

// remote returns the copy as a cache would contain it.
func (l *lab) remote() *unstructured.Unstructured {
	found := l.provider.Get(configMapKind, "shop-rome", "settings")
	if found != nil {
		found.SetManagedFields(nil)
	}
	return found
}

// view returns the copy if the cache contains this object, or no object if it is nil.
func (l *lab) view(cached *unstructured.Unstructured) (object *unstructured.Unstructured, going bool) {
	return l.shop.View(l.shop.Key("settings"), func() *unstructured.Unstructured { return cached })
}

// created returns the copy that the first call of converge creates.
func (l *lab) created(local *unstructured.Unstructured) *unstructured.Unstructured {
	l.t.Helper()
	require.NoError(l.t, l.converge(local, nil))
	l.provider.TakeSent()
	copied := l.remote()
	require.NotNil(l.t, copied)
	return copied
}

func data(object *unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedString(object.Object, "data", "value")
	return value
}

func modes(t *testing.T, test func(t *testing.T, spec Spec)) {
	t.Helper()
	for name, mode := range map[string]Mode{"apply": Apply, "replace": Replace} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, Spec{Mode: mode, Labels: map[string]string{"extra": "label"}, DropLabels: []string{"dropped"}})
		})
	}
}

// TestACopyIsCreatedUpdatedAndRemoved checks that each state of a copy is written once, and that nothing is written if
// the state has not changed.
func TestACopyIsCreatedUpdatedAndRemoved(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, nil)
		local := configMap("1", "a")
		local.SetLabels(map[string]string{"app": "shop", "dropped": "yes"})
		require.NoError(t, l.converge(local, nil))
		require.Len(t, l.provider.TakeSent(), 1)
		assert.Equal(t, "written", l.worker.Result)
		copied := l.remote()
		assert.Equal(t, "a", data(copied))
		assert.Equal(t, map[string]string{"app": "shop", "extra": "label", wire.OriginLabel: "rome", wire.DestinationLabel: "milan"}, copied.GetLabels())
		assert.True(t, l.writer.Managed(copied))

		require.NoError(t, l.converge(local, copied))
		assert.Empty(t, l.provider.TakeSent(), "the copy is the same")
		assert.Equal(t, evaluation.Unchanged, l.worker.Result)
		assert.Equal(t, copied.GetGeneration(), l.worker.Matched)

		local = configMap("1", "b")
		require.NoError(t, l.converge(local, copied))
		require.Len(t, l.provider.TakeSent(), 1)
		assert.Equal(t, "b", data(l.remote()))
		assert.Equal(t, copied.GetUID(), l.remote().GetUID())
		if view, going := l.view(copied); going || data(view) != "b" {
			t.Error("our own write is not seen before the watch delivers it")
		}

		require.NoError(t, l.writer.Remove(t.Context(), l.worker, l.shop, l.remote()))
		assert.Nil(t, l.remote())
		assert.Equal(t, "deleted", l.worker.Result)
		if _, going := l.view(copied); !going {
			t.Error("our own deletion is not seen before the watch delivers it")
		}
		require.NoError(t, l.writer.Remove(t.Context(), l.worker, l.shop, nil))
	})
}

// TestNothingIsWrittenWhileOneSideEnds checks that no copy is created for an object that is being deleted, and that a
// copy that is being deleted is neither updated nor deleted again.
func TestNothingIsWrittenWhileOneSideEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, Spec{}, nil)
	ending := configMap("1", "a")
	now := metav1.Now()
	ending.SetDeletionTimestamp(&now)
	require.NoError(t, l.converge(ending, nil))
	copied := l.created(configMap("1", "a"))
	copied.SetDeletionTimestamp(&now)
	require.NoError(t, l.converge(configMap("1", "b"), copied))
	require.NoError(t, l.writer.Remove(t.Context(), l.worker, l.shop, copied))
	assert.Empty(t, l.provider.TakeSent())
}

// TestForeignObjectsAreLeftAlone checks that an object that has the name of a copy, but is not our copy, is not
// changed, and that the error describes its owner.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		for text, labels := range map[string]map[string]string{
			"not managed by Refract":         nil,
			"another object of this cluster": {wire.OriginLabel: "rome", wire.DestinationLabel: "milan", "other": "kind"},
		} {
			spec.Except = "other!=kind"
			l := newLab(t, spec, nil)
			foreign := configMap("", "theirs")
			foreign.SetNamespace("shop-rome")
			foreign.SetLabels(labels)
			l.provider.Put(t, foreign)
			var taken *failure.ForeignError
			require.ErrorAs(t, l.converge(configMap("1", "ours"), nil), &taken)
			assert.Contains(t, taken.Error(), text)
			assert.Equal(t, "theirs", data(l.remote()))
		}
	})
}

// TestACopyThatTheWatchHasNotShownIsFound checks that our own copy is adopted if it is unknown because a response was
// lost or the process was restarted. The object must be enqueued again, and the copy must then be known.
func TestACopyThatTheWatchHasNotShownIsFound(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, nil)
		l.provider.Once(map[Mode]string{Apply: "patch", Replace: "create"}[spec.Mode], apistub.LostAfterwards)
		lost := l.converge(configMap("1", "a"), nil)
		require.Error(t, lost)
		assert.True(t, failure.MayHaveArrived(lost))
		class, _ := failure.Classify(lost)
		assert.Equal(t, failure.Unreachable, class)
		require.NotNil(t, l.remote())

		l.revive()
		var again *failure.RetryAfter
		require.ErrorAs(t, l.converge(configMap("1", "a"), nil), &again)
		found, _ := l.view(nil)
		require.NotNil(t, found)
		l.provider.TakeSent()
		require.NoError(t, l.converge(configMap("1", "a"), found))
		assert.Empty(t, l.provider.TakeSent())
	})
}

// revive waits until the circuit breaker lets requests pass again.
func (l *lab) revive() {
	l.t.Helper()
	l.writer.clients.Start(l.t.Context())
	for deadline := time.Now().Add(5 * time.Second); l.writer.clients.Reachable() != nil; time.Sleep(time.Millisecond) {
		l.clock.Step(time.Second)
		require.True(l.t, time.Now().Before(deadline), "the provider is not reachable again")
	}
}

// TestACopyThatIsGoneIsNotUpdated checks that an update changes nothing if it finds no copy, or finds a foreign object
// instead. If the copy is gone, the next attempt must create it again.
func TestACopyThatIsGoneIsNotUpdated(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, nil)
		copied := l.created(configMap("1", "a"))
		l.provider.Remove(configMapKind, "shop-rome", "settings")
		var again *failure.RetryAfter
		require.ErrorAs(t, l.converge(configMap("1", "b"), copied), &again)
		known, _ := l.view(copied)
		require.Nil(t, known, "the copy is known to be gone")
		require.NoError(t, l.converge(configMap("1", "b"), nil))
		assert.Equal(t, "b", data(l.remote()))

		foreign := configMap("", "theirs")
		foreign.SetNamespace("shop-rome")
		l.provider.Remove(configMapKind, "shop-rome", "settings")
		l.provider.Put(t, foreign)
		stale := copied.DeepCopy()
		stale.SetResourceVersion("")
		_ = l.converge(configMap("1", "c"), stale)
		assert.Equal(t, "theirs", data(l.remote()))
	})
}

// TestOnlyTheKnownCopyIsDeleted checks that the UID of the known copy is a precondition of deletions.
func TestOnlyTheKnownCopyIsDeleted(t *testing.T) {
	t.Parallel()
	l := newLab(t, Spec{}, nil)
	copied := l.created(configMap("1", "a"))
	l.provider.Remove(configMapKind, "shop-rome", "settings")
	var again *failure.RetryAfter
	require.ErrorAs(t, l.writer.Remove(t.Context(), l.worker, l.shop, copied), &again, "it is gone: the cache is behind")
	other := configMap("", "another")
	other.SetNamespace("shop-rome")
	l.provider.Put(t, other)
	err := l.writer.Remove(t.Context(), l.worker, l.shop, copied)
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	assert.NotNil(t, l.remote())
}

func invalid(field, message string) *apierrors.StatusError {
	err := apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "settings", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}}
	return err
}

// TestAnImmutableFieldStopsNoOther checks that a rejected change to an immutable field is omitted and reported, and
// that all other changes are written.
func TestAnImmutableFieldStopsNoOther(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, nil)
		copied := l.created(configMap("1", "a"))
		l.provider.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
			if data(object) != "a" {
				return invalid("data.value", "field is immutable")
			}
			return nil
		})
		local := configMap("1", "b")
		local.Object["data"].(map[string]any)["other"] = "changes" //nolint:forcetypeassert // made above
		require.NoError(t, l.converge(local, copied))
		assert.Equal(t, "a", data(l.remote()))
		other, _, _ := unstructured.NestedString(l.remote().Object, "data", "other")
		assert.Equal(t, "changes", other)
		assert.True(t, l.worker.Warned)
		l.events.Await(t, "immutable field data.value", "to recreate the remote object, delete it")
		l.provider.TakeSent()
		require.NoError(t, l.converge(local, l.remote()))
		assert.Empty(t, l.provider.TakeSent(), "the same update is not sent again")
	})
}

// TestARecreatedObjectReplacesItsCopy checks that the copy of an earlier object with the same name is deleted if it
// cannot become the copy of the new object.
func TestARecreatedObjectReplacesItsCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t, Spec{}, nil)
	copied := l.created(configMap("1", "a"))
	l.provider.Admit(func(*unstructured.Unstructured) *apierrors.StatusError {
		return invalid("data.value", "field is immutable")
	})
	assert.True(t, StandsForAnother(copied, configMap("2", "b")))
	assert.False(t, StandsForAnother(copied, configMap("1", "b")))
	assert.False(t, StandsForAnother(nil, configMap("1", "b")))
	require.NoError(t, l.converge(configMap("2", "b"), copied))
	assert.Nil(t, l.remote())
	l.provider.Admit(nil)
	require.NoError(t, l.converge(configMap("2", "b"), nil))
	assert.Equal(t, "b", data(l.remote()))
}

// TestLessIsWrittenIfAllIsRefused checks that, if the provider rejects a whole copy, the accepted part is written and
// the rest is reported, and that the whole copy is retried after a delay.
func TestLessIsWrittenIfAllIsRefused(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		spec.LesserEffect = ", without the value"
		spec.Lesser = func(object, _ *unstructured.Unstructured) []*unstructured.Unstructured {
			rest := object.DeepCopy()
			unstructured.RemoveNestedField(rest.Object, "data")
			return []*unstructured.Unstructured{object.DeepCopy(), rest}
		}
		l := newLab(t, spec, nil)
		refuse := true
		l.provider.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
			if refuse && data(object) != "" {
				return apierrors.NewForbidden(configMaps.GroupResource(), "settings", errors.New("no values"))
			}
			return nil
		})
		local := configMap("1", "a")
		require.NoError(t, l.converge(local, nil))
		assert.Empty(t, data(l.remote()))
		l.events.Await(t, "part of the object was rejected, the rest was applied, without the value", "no values")
		l.provider.TakeSent()
		require.NoError(t, l.converge(local, l.remote()))
		assert.Empty(t, l.provider.TakeSent(), "not before the delay")
		assert.True(t, l.worker.Warned, "the warning is still true")
		l.clock.Step(queue.FirstPartRetry)
		refuse = false
		require.NoError(t, l.converge(local, l.remote()))
		assert.Equal(t, "a", data(l.remote()))
	})
}

// TestARefusedCopyIsAnError checks that a rejection by the provider is returned as an error of the expected class,
// and that nothing is written.
func TestARefusedCopyIsAnError(t *testing.T) {
	t.Parallel()
	for class, refusal := range map[failure.Class]*apierrors.StatusError{
		failure.Refused:     apierrors.NewForbidden(configMaps.GroupResource(), "settings", errors.New("exceeded quota")),
		failure.Throttled:   apierrors.NewTooManyRequests("slow down", 3),
		failure.Unreachable: apierrors.NewServiceUnavailable("starting"),
		failure.Conflict:    apierrors.NewConflict(configMaps.GroupResource(), "settings", errors.New("changed")),
	} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Spec{Mode: Replace}, nil)
			copied := l.created(configMap("1", "a"))
			l.provider.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Verb == "update" {
					return apistub.Refuse(refusal)
				}
				return nil
			})
			got, _ := failure.Classify(l.converge(configMap("1", "b"), copied))
			assert.Equal(t, class, got)
			assert.Equal(t, "a", data(l.remote()))
			assert.Equal(t, evaluation.Unchanged, l.worker.Result)
		})
	}
}

// TestDecisionsOfAdmissionStay checks that a value that the provider's admission has replaced is not written again, and
// is kept when another field changes later.
func TestDecisionsOfAdmissionStay(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, nil)
		l.provider.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
			if err := unstructured.SetNestedField(object.Object, "decided", "data", "value"); err != nil {
				t.Error(err)
			}
			object.SetManagedFields([]metav1.ManagedFieldsEntry{{
				Manager: wire.ReflectionFieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{},"f:annotations":{}},"f:data":{"f:value":{},"f:other":{}}}`),
			}})
			return nil
		})
		local := configMap("1", "a")
		require.NoError(t, l.converge(local, nil))
		for range 3 {
			l.provider.TakeSent()
			require.NoError(t, l.converge(local, l.remote()))
		}
		assert.Empty(t, l.provider.TakeSent(), "the decision is not reverted")
		local.Object["data"].(map[string]any)["other"] = "changes" //nolint:forcetypeassert // made above
		require.NoError(t, l.converge(local, l.remote()))
		other, _, _ := unstructured.NestedString(l.remote().Object, "data", "other")
		assert.Equal(t, "changes", other)
		assert.Equal(t, "decided", data(l.remote()))
	})
}

// TestAFightEndsInQuarantine checks that a copy that another client reverts repeatedly is quarantined, that the error
// names this client, and that a change to the local object ends the quarantine.
func TestAFightEndsInQuarantine(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, nil)
		copied := l.created(configMap("1", "a"))
		var fight *oscillation.QuarantineError
		for range 20 {
			theirs := copied.DeepCopy()
			require.NoError(t, unstructured.SetNestedField(theirs.Object, "theirs", "data", "value"))
			theirs.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "gitops", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &metav1.Time{Time: l.clock.Now()},
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:value":{}}}`)}})
			l.provider.Put(t, theirs)
			l.clock.Step(time.Second)
			if err := l.converge(configMap("1", "a"), l.remote()); errors.As(err, &fight) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		require.NotNil(t, fight, "no quarantine")
		assert.Contains(t, fight.Error(), "gitops")
		assert.Equal(t, 1, l.shop.Quarantined())
		assert.Equal(t, "theirs", data(l.remote()))
		l.cause = 7
		require.NoError(t, l.converge(configMap("1", "a"), l.remote()))
		assert.Equal(t, "a", data(l.remote()))
		l.shop.Forget(l.shop.Key("settings"))
		assert.Zero(t, l.shop.Quarantined())
	})
}

// TestACopyIsComparedByItsHash checks that copies whose content is not cached are compared by their hash, and that
// their content is read when it is needed.
func TestACopyIsComparedByItsHash(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, spec Spec) {
		l := newLab(t, spec, content.KeepNothing)
		cached := l.created(configMap("1", "a"))
		l.writer.Trim(cached)
		assert.Nil(t, cached.Object["data"])
		require.NoError(t, l.converge(configMap("1", "a"), cached))
		assert.Empty(t, l.provider.TakeSent())
		whole, err := l.writer.WholeCopy(t.Context(), l.shop, cached)
		require.NoError(t, err)
		assert.Equal(t, "a", data(whole))
		require.NoError(t, l.converge(configMap("1", "b"), cached))
		assert.Equal(t, "b", data(l.remote()))
		l.provider.Remove(configMapKind, "shop-rome", "settings")
		var again *failure.RetryAfter
		_, err = l.writer.WholeCopy(t.Context(), l.shop, cached)
		require.ErrorAs(t, err, &again)
	})
}

// TestResultsOfPluginsAreChecked checks that a result that is not a valid Kubernetes object is reported as an error
// of the plugin.
func TestResultsOfPluginsAreChecked(t *testing.T) {
	t.Parallel()
	for text, edit := range map[string]func(object map[string]any){
		"metadata.labels became a":          func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = []any{} },                            //nolint:forcetypeassert // made above
		"metadata.annotations[a] became 1":  func(o map[string]any) { o["metadata"].(map[string]any)["annotations"] = map[string]any{"a": int64(1)} }, //nolint:forcetypeassert // made above
		"data became a":                     func(o map[string]any) { o["data"] = "text" },
		"the labels of the copy do not mat": func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"other": "kind"} }, //nolint:forcetypeassert // made above
	} {
		l := newLab(t, Spec{Mode: Replace, Payload: "data", Except: "other!=kind"}, nil)
		local := configMap("1", "a")
		edit(local.Object)
		var output *failure.OutputError
		require.ErrorAs(t, l.converge(local, nil), &output, text)
		assert.Contains(t, output.Error(), text)
		assert.Empty(t, l.provider.TakeSent())
	}
}

// TestNamesOfCopies checks that the names of objects are translated to the names of their copies, and back.
func TestNamesOfCopies(t *testing.T) {
	t.Parallel()
	l := newLab(t, Spec{Rename: func(id string) map[string]string { return map[string]string{"root": "root." + id} }}, nil)
	assert.Equal(t, "root.rome", l.writer.RemoteName("root"))
	assert.Equal(t, "root", l.writer.LocalName("root.rome"))
	assert.Equal(t, "other", l.writer.RemoteName("other"))
	l = newLab(t, Spec{Suffix: "-token"}, nil)
	assert.Equal(t, "a-token", l.writer.RemoteName("a"))
	assert.Equal(t, "a", l.writer.LocalName("a-token"))
	_, err := New(Options{Spec: Spec{Except: "a b c"}})
	require.Error(t, err)
}

// TestAWrappedCopyHasItsPayloadBelow checks that a copy of another kind contains the payload of the object below the
// path Into.
func TestAWrappedCopyHasItsPayloadBelow(t *testing.T) {
	t.Parallel()
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Wrapped"}
	resource := gvk.GroupVersion().WithResource("wrappeds")
	l := newLab(t, Spec{Mode: Replace, GVR: resource, GVK: gvk, Payload: "data", Into: []string{"spec", "inner"}}, nil)
	l.provider.Serve(resource.Resource, gvk)
	require.NoError(t, l.converge(configMap("1", "a"), nil))
	made := l.provider.Get(gvk, "shop-rome", "settings")
	require.NotNil(t, made)
	assert.Equal(t, gvk, made.GroupVersionKind())
	value, _, _ := unstructured.NestedString(made.Object, "spec", "inner", "value")
	assert.Equal(t, "a", value)
	l.provider.TakeSent()
	require.NoError(t, l.converge(configMap("1", "a"), made))
	assert.Empty(t, l.provider.TakeSent())
	require.NoError(t, l.converge(configMap("1", "b"), made))
	assert.Len(t, l.provider.TakeSent(), 1)
}

// TestAnUnknownFieldIsLeftOutOfAnApply checks that an apply that fails because of a field that the provider does not
// know is repeated without the field, and that the field is reported.
func TestAnUnknownFieldIsLeftOutOfAnApply(t *testing.T) {
	t.Parallel()
	l := newLab(t, Spec{}, nil)
	l.provider.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
		if object.Object["novel"] != nil {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
				Message: "failed to create typed patch object: .novel: field not declared in schema"}}
		}
		return nil
	})
	local := configMap("1", "a")
	local.Object["novel"] = map[string]any{"field": "value"}
	require.NoError(t, l.converge(local, nil))
	assert.Equal(t, "a", data(l.remote()))
	l.events.Await(t, FieldsDroppedReason, "without novel", "Kubernetes v1.36.0")
}
