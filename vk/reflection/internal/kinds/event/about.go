// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// involved is the object of this cluster that an Event of the provider belongs to.
type involved struct {
	kind   *engine.Kind
	object *unstructured.Unstructured
	// sure means that the Event is about the copy of this object, and not about another object with the same name,
	// which exists or existed before.
	sure bool
	// waits means that the Event must wait, because the objects of this kind have not been read yet.
	waits bool
}

// involved returns the object of an Event, or nil if this virtual kubelet does not reflect the object. Each Event is
// shown by the virtual kubelet that reflects its object, so virtual kubelets need no other coordination.
func (h *handler) involved(s *engine.Scope, event *unstructured.Unstructured) *involved {
	reference := raw.Map(event.Object["involvedObject"])
	text := func(field string) string { value, _ := reference[field].(string); return value }
	group, _ := schema.ParseGroupVersion(text("apiVersion"))
	kind := schema.GroupKind{Group: group.Group, Kind: text("kind")}
	subject, absence := h.Subject(s, kind, text("name"))
	switch absence {
	case engine.NoAbsence:
	case engine.NoKind:
		inboxOf(s).miss(kind)
		return nil
	case engine.NotOurs:
		inboxOf(s).miss(shared)
		return nil
	case engine.NotKnownYet:
		return &involved{waits: true}
	default:
		return nil
	}
	if routine(event, kind, subject.Copy) {
		return nil
	}
	v := belongs{uid: text("uid"), at: eventTime(event), object: subject.Object, copy: subject.Copy, made: subject.Derived, unwatched: subject.Unwatched}
	possible, sure := v.decide()
	if !possible {
		return nil
	}
	return &involved{kind: subject.Kind, object: subject.Object, sure: sure}
}

// belongs contains the inputs for the decision whether an Event is about the copy of an object.
type belongs struct {
	uid       string
	at        time.Time // latest time in the Event
	object    *unstructured.Unstructured
	copy      *unstructured.Unstructured
	made      *unstructured.Unstructured // object that the provider's controllers made from the copy
	unwatched bool                       // the Event is about an object that was made from the copy and is not watched
}

// decide compares uids, and times of the provider's clock. possible means that the Event may be about the copy: a uid
// that is unknown now may become known in a moment. This is not possible if the Event is older than the copy, because
// it is then about an earlier object with the same name.
func (b *belongs) decide() (possible, sure bool) {
	is := func(candidate *unstructured.Unstructured) bool {
		return candidate != nil && b.uid != "" && string(candidate.GetUID()) == b.uid
	}
	switch {
	case is(b.made), is(b.copy):
		for _, candidate := range []*unstructured.Unstructured{b.made, b.copy} {
			if is(candidate) && copies.StandsForAnother(candidate, b.object) {
				return false, false
			}
		}
		return true, true
	case b.copy == nil:
		// The copy may be unknown only for now: the provider's Event can arrive before the response to the creation of
		// the copy.
		return true, false
	case copies.StandsForAnother(b.copy, b.object) || b.at.Before(b.copy.GetCreationTimestamp().Time):
		return false, false
	default:
		return true, b.uid == "" || b.unwatched
	}
}

// podCreationGrace is the longest time that the provider normally needs to create the pod of a ShadowPod.
const podCreationGrace = 10 * time.Second

// routine reports whether an Event only reports normal operation. The argument copied is nil if the copy is not known.
func routine(event *unstructured.Unstructured, kind schema.GroupKind, copied *unstructured.Unstructured) bool {
	if event.Object["type"] != corev1.EventTypeNormal {
		return false
	}
	reason, _ := event.Object["reason"].(string)
	switch {
	case strings.HasPrefix(reason, "Successful") && strings.HasSuffix(reason, "Reflection"):
		// The Event comes from a virtual kubelet: the provider itself offloads the object to another cluster.
		return true
	case reason == wire.CreatedPodReason && kind.Kind == offloadingv1beta1.ShadowPodKind && copied != nil:
		return eventTime(event).Before(copied.GetCreationTimestamp().Add(podCreationGrace))
	}
	return false
}

// eventTime returns the latest time in an Event, by the provider's clock. It returns the zero time if the Event has
// none.
func eventTime(event *unstructured.Unstructured) (last time.Time) {
	series, _ := event.Object["series"].(map[string]any)
	last = event.GetCreationTimestamp().Time
	for _, value := range []any{event.Object["lastTimestamp"], event.Object["firstTimestamp"], event.Object["eventTime"], series["lastObservedTime"]} {
		text, _ := value.(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(last) {
			last = at
		}
	}
	return last
}
