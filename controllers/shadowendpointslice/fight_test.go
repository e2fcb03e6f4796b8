// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
)

// TestASliceThatIsAlwaysChangedIsCorrectedSlowly checks the conflict with a client of this cluster that replaces a
// slice and removes the record whenever the slice is corrected. The Event contains the client and the field. Undesired
// endpoints are still corrected, but only every few seconds.
func TestASliceThatIsAlwaysChangedIsCorrectedSlowly(t *testing.T) {
	namespace := provider.Extended(t, "fighting")
	cluster(t, "fighting")
	m := provider.StartManager(t)
	provider.Create(t, shadowSlice(namespace, "slice", "fighting"))
	slice := awaitReady(t, namespace, "slice", reachable)
	revert := func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+asked.Annotation+`":null}},"endpoints":[{"addresses":["10.9.9.9"]}]}`))
		if err := provider.Client.Patch(t.Context(), slice.DeepCopy(), patch, client.FieldOwner("diverter")); err != nil {
			t.Fatal(err)
		}
	}
	told := func() bool {
		for _, event := range provider.Events(t, namespace, "ShadowEndpointSlice", "slice") {
			if event.Reason == wire.ReflectionQuarantinedReason {
				return true
			}
		}
		return false
	}
	for start := time.Now(); !told(); time.Sleep(100 * time.Millisecond) {
		if revert(); time.Since(start) > time.Minute {
			t.Fatalf("there is no Event after the writes %q", m.Writes.About("PATCH", namespace))
		}
	}
	event := provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "slice", wire.ReflectionQuarantinedReason)
	assert.Contains(t, event.Note, `"diverter" (Update)`)
	assert.Contains(t, event.Note, "/endpoints")
	before := len(m.Writes.About("PATCH", namespace))
	for range 60 {
		revert()
		time.Sleep(100 * time.Millisecond)
	}
	if writes := len(m.Writes.About("PATCH", namespace)) - before; writes > 5 {
		t.Errorf("%d corrections within six seconds of a quarantine", writes)
	}
	awaitSlice(t, namespace, "slice", "the endpoints to be back", func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) == 3 })
}
