// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package report reports problems of an object to users, as Events on the object. Each problem is reported once.
package report

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/eventrecorder"
)

// Reporter writes Events. It is safe for concurrent use.
type Reporter struct {
	recorder events.EventRecorder
	reported eventrecorder.Memory[types.NamespacedName]
}

// New returns a Reporter that writes through recorder.
func New(recorder events.EventRecorder) *Reporter { return &Reporter{recorder: recorder} }

// Warn writes a Warning Event on object, unless the same Event was written since the last call of Clear. The note has
// the problem and the remedy. action is the attempted action, one word in UpperCamelCase.
func (r *Reporter) Warn(object client.Object, reason, action, note string) {
	r.reported.WriteOnce(client.ObjectKeyFromObject(object), string(object.GetUID())+reason, note, func(note string) bool {
		r.recorder.Eventf(object, nil, corev1.EventTypeWarning, reason, action, "%s", note)
		return true
	})
}

// Tell writes a Normal Event on object. related is the Event's related object and may be nil.
func (r *Reporter) Tell(object, related client.Object, reason, action, note string) {
	r.recorder.Eventf(object, related, corev1.EventTypeNormal, reason, action, "%s", eventrecorder.Shorten(note))
}

// Clear drops the reports about key, whose problem is over. If the same problem occurs again, it is reported again.
func (r *Reporter) Clear(key types.NamespacedName) { r.reported.Clear(key) }
