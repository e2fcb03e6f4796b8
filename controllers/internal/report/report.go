// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package report reports the problems of an object to users, in Events about the object. Each problem is reported once.
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

// Warn writes a Warning Event about object, unless the same Event was written since the last call of Clear. The note
// contains the problem and the remedy. action is the action that failed, a word in UpperCamelCase.
func (r *Reporter) Warn(object client.Object, reason, action, note string) {
	r.reported.WriteOnce(client.ObjectKeyFromObject(object), string(object.GetUID())+reason, note, func(note string) bool {
		r.recorder.Eventf(object, nil, corev1.EventTypeWarning, reason, action, "%s", note)
		return true
	})
}

// Tell writes a Normal Event about object. related is the related object of the Event. It may be nil.
func (r *Reporter) Tell(object, related client.Object, reason, action, note string) {
	r.recorder.Eventf(object, related, corev1.EventTypeNormal, reason, action, "%s", eventrecorder.Shorten(note))
}

// Clear records that the object with this key has no problem any more. If the same problem occurs again, it is reported
// again.
func (r *Reporter) Clear(key types.NamespacedName) { r.reported.Clear(key) }
