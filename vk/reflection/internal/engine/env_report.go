// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/internal/ipmap"
)

// Reporter reports to users, in Events about an object of this cluster. Safe for concurrent use.
type Reporter struct{ r *reflector }

// Warn writes an Event of type Warning about an object of this cluster.
func (e Reporter) Warn(object *unstructured.Unstructured, reason, message string) {
	e.r.m.events.Warn(e.r.kind.Name, object, reason, message)
}

// Note writes an Event of type Normal.
func (e Reporter) Note(object *unstructured.Unstructured, reason, message string) {
	e.r.m.events.Note(e.r.kind.Name, object, reason, message)
}

// OK resets the Events of an object: earlier warnings are over, and are written again if they recur.
func (e Reporter) OK(uid types.UID) { e.r.m.events.OK(e.r.kind.Name, uid) }

// EventDropped counts an Event that is not written because of the rate limit.
func (e Reporter) EventDropped() { e.r.m.metrics.eventsDropped.Inc() }

// IsNotAllowed reports whether nothing of the provider can have an address. known are the possible ranges; an empty
// value allows all ranges.
func (e Reporter) IsNotAllowed(address string, known ipmap.Ranges) bool {
	return e.r.m.notAllowed(address, known)
}

// WarnOfAddresses warns about addresses that are not shown.
func (e Reporter) WarnOfAddresses(w *Worker, object *unstructured.Unstructured, addresses []string) {
	w.Warned = true
	e.Warn(object, AddressNotAllowedReason, e.r.m.addressNote(addresses))
}
