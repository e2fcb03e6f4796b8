// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// quarantined reports whether an Event shows that the pod of a ShadowPod is not written for a while.
func quarantined(t *testing.T, namespace, name string) bool {
	t.Helper()
	for _, event := range provider.Events(t, namespace, "ShadowPod", name) {
		if event.Reason == wire.ReflectionQuarantinedReason {
			return true
		}
	}
	return false
}

// TestAPodThatIsAlwaysDeletedIsLeftAlone checks that a pod that a client of this cluster always deletes is not
// recreated until the request changes, and that an Event reports this.
func TestAPodThatIsAlwaysDeletedIsLeftAlone(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "pruned")
	shadow.SetLabels(map[string]string{wire.OriginLabel: "consumer", wire.DestinationLabel: "provider", "app.kubernetes.io/instance": "shop"})
	provider.Create(t, shadow)
	deleted := 0
	for start := time.Now(); !quarantined(t, namespace, "pruned"); time.Sleep(100 * time.Millisecond) {
		pod := &corev1.Pod{}
		if provider.Client.Get(t.Context(), client.ObjectKeyFromObject(shadow), pod) == nil && provider.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)) == nil {
			deleted++
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("the pod is not left alone after %d deletions", deleted)
		}
	}
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "pruned", wire.ReflectionQuarantinedReason)
	assert.Equal(t, corev1.EventTypeWarning, event.Type)
	assert.Contains(t, event.Note, "another client deletes it")
	assert.Contains(t, event.Note, "app.kubernetes.io/instance=shop")
	assert.LessOrEqual(t, deleted, 8)
	assert.Equal(t, 1.0, m.Metric(t, "refract_controller_quarantined", "controller", "shadowpod"))

	provider.Patch(t, shadow, `{"spec":{"pod":{"terminationGracePeriodSeconds":5}}}`)
	awaitPod(t, shadow, "")
}

// TestAPodThatIsAlwaysChangedIsCorrectedSlowly checks that an enforced label that a client of this cluster always
// reverts is corrected only every few seconds, and that the Event names the client and the label. The key of the label
// is in a domain of Refract.
func TestAPodThatIsAlwaysChangedIsCorrectedSlowly(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	const label = "example.liqo.io/tier"
	shadow := shadowPod(namespace, "relabeled")
	labels := shadow.GetLabels()
	labels[label] = "relabeled"
	shadow.SetLabels(labels)
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	revert := func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":"theirs"}}}`))
		if err := provider.Client.Patch(t.Context(), pod.DeepCopy(), patch, client.FieldOwner("relabeler")); err != nil {
			t.Fatal(err)
		}
	}
	for start := time.Now(); !quarantined(t, namespace, "relabeled"); time.Sleep(100 * time.Millisecond) {
		if revert(); time.Since(start) > time.Minute {
			t.Fatalf("there is no Event after the writes %q", m.Writes.About("PATCH", "relabeled"))
		}
	}
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "relabeled", wire.ReflectionQuarantinedReason)
	assert.Contains(t, event.Note, `"relabeler" (Update)`)
	assert.Contains(t, event.Note, "/metadata/labels/example.liqo.io")
	before := len(m.Writes.About("PATCH", "relabeled"))
	for range 60 {
		revert()
		time.Sleep(100 * time.Millisecond)
	}
	if writes := len(m.Writes.About("PATCH", "relabeled")) - before; writes > 5 {
		t.Errorf("%d corrections within six seconds of a quarantine", writes)
	}
	controllertest.Eventually(t, "the label to be right", func() error {
		if provider.Get(t, pod, namespace, "relabeled"); pod.Labels[label] != "relabeled" {
			return errors.New("it is " + pod.Labels[label])
		}
		return nil
	})
}
