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
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// involved is the object of this cluster that one of the provider's Events is about.
type involved struct {
	kind   *engine.Kind
	object *unstructured.Unstructured
	// sure: it is about the very copy of the object, not about something else that bears, or bore, the name there.
	sure bool
	// waits: that cannot be known before the objects of the kind are.
	waits bool
}

// involved finds out what an Event is about; nil when it is nothing that this virtual kubelet reflects. Events are shown by
// whoever reflects the object, so it takes no other agreement between virtual kubelets.
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

// belongs is what decides whether an Event is about the copy of an object.
type belongs struct {
	uid       string
	at        time.Time // the last time that the Event names
	object    *unstructured.Unstructured
	copy      *unstructured.Unstructured
	made      *unstructured.Unstructured // of the copy, by the provider's controllers
	unwatched bool                       // it is about something made of the copy that is not watched
}

// decide compares uids, and times only of the provider's own clock. A uid that is not known may become so in a moment, unless
// the Event is older than the copy: then it is about an earlier object of the name.
func (b *belongs) decide() (possible, sure bool) {
	is := func(candidate *unstructured.Unstructured) bool {
		return candidate != nil && b.uid != "" && string(candidate.GetUID()) == b.uid
	}
	switch {
	case is(b.made), is(b.copy):
		for _, candidate := range []*unstructured.Unstructured{b.made, b.copy} {
			if is(candidate) && engine.StandsForAnother(candidate, b.object) {
				return false, false
			}
		}
		return true, true
	case b.copy == nil:
		return true, false // it may be on its way: the provider can be faster than the answer to its creation
	case engine.StandsForAnother(b.copy, b.object) || b.at.Before(b.copy.GetCreationTimestamp().Time):
		return false, false
	default:
		return true, b.uid == "" || b.unwatched
	}
}

// atOnce is how soon after a ShadowPod its pod is there when all goes well.
const atOnce = 10 * time.Second

// routine reports whether an Event says no more than that all went as it should. The copy may be unknown.
func routine(event *unstructured.Unstructured, kind schema.GroupKind, copied *unstructured.Unstructured) bool {
	if event.Object["type"] != corev1.EventTypeNormal {
		return false
	}
	reason, _ := event.Object["reason"].(string)
	switch {
	case strings.HasPrefix(reason, "Successful") && strings.HasSuffix(reason, "Reflection"):
		return true // the provider offloads in its turn
	case reason == wire.CreatedPodReason && kind.Kind == offloadingv1beta1.ShadowPodKind && copied != nil:
		return eventTime(event).Before(copied.GetCreationTimestamp().Add(atOnce))
	}
	return false
}

// eventTime is the last time that an Event names, by the provider's clock; zero when it names none.
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
