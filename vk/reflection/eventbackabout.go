// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// involved is the object of this cluster that one of the provider's Events is about.
type involved struct {
	kind   *Kind
	object *unstructured.Unstructured
	// sure: it is about the very copy of the object, not about something else that bears, or bore, the name there.
	sure bool
	// waits: that cannot be known before the objects of the kind are.
	waits bool
}

// involved finds out what an Event is about; nil when it is nothing that this virtual kubelet reflects. Events are shown by
// whoever reflects the object, so it takes no other agreement between virtual kubelets.
func (r *reflector) involved(t *extension, event *unstructured.Unstructured) *involved {
	reference, _ := event.Object["involvedObject"].(map[string]any)
	text := func(field string) string { value, _ := reference[field].(string); return value }
	group, _ := schema.ParseGroupVersion(text("apiVersion"))
	kind := schema.GroupKind{Group: group.Group, Kind: text("kind")}
	of := r.m.meant(kind)
	var c *copies
	if of != nil {
		c = t.of(of.kind.Name)
	}
	switch {
	case c == nil:
		r.missed(t, kind)
		return nil
	case !of.kind.PerNode && !r.m.leading.Load():
		r.missed(t, shared)
		return nil
	case !c.ready.Load():
		return &involved{kind: &of.kind, waits: true}
	}
	key := Key{Namespace: t.local, Name: of.localName(text("name"))}
	object := of.localObject(c, key)
	if object == nil {
		return nil
	}
	copied, _ := of.remoteObject(c, t, key.Name)
	if routine(event, kind, copied) {
		return nil
	}
	v := belongs{uid: text("uid"), at: eventTime(event), object: object, copy: copied, derived: of.kind.Name == EndpointSliceKind && kind.Kind == EndpointSliceKind}
	if c.pods != nil {
		v.pod = informer.Get(c.pods, t.remote, text("name"))
	}
	possible, sure := v.decide()
	if !possible {
		return nil
	}
	return &involved{kind: &of.kind, object: object, sure: sure}
}

func (r *reflector) missed(t *extension, kind schema.GroupKind) {
	if c := t.of(r.kind.Name); c != nil {
		c.inbox.miss(kind)
	}
}

// meant returns the reflector of the objects that the provider has under a kind, or nil.
func (m *Manager) meant(kind schema.GroupKind) *reflector {
	for _, r := range m.all() {
		if r.kind.means(kind) {
			return r
		}
	}
	return nil
}

// means reports whether the provider has what is reflected under that kind: as the copy is stored, and for shadows what the
// provider's controllers make of them.
func (k *Kind) means(kind schema.GroupKind) bool {
	if k.Reverse || k.PerNode && k.Name != PodKind {
		return false
	}
	if k.TargetKind.Kind != "" && k.TargetKind.GroupKind() == kind {
		return true
	}
	return (k.TargetKind.Kind == "" || k.TargetKind.Group == offloadingv1beta1.GroupVersion.Group) && k.sourceKind() == kind.Kind && k.Source.Group == kind.Group
}

// sourceKind is the kind of the objects here, without the group.
func (k *Kind) sourceKind() string {
	kind, _, _ := strings.Cut(k.Name, ".")
	return kind
}

// belongs is what there is to tell whether an Event is about the copy of an object.
type belongs struct {
	uid     string
	at      time.Time // the last that the Event tells of
	object  *unstructured.Unstructured
	copy    *unstructured.Unstructured
	pod     *unstructured.Unstructured // that was made from a ShadowPod
	derived bool                       // it is about something made from the copy that is not watched
}

// decide compares uids, and times only of the provider's own clock. A uid that is not known may become so in a moment, unless
// the Event is older than the copy: then it is about an earlier object of the name.
func (b *belongs) decide() (possible, sure bool) {
	is := func(candidate *unstructured.Unstructured) bool {
		return candidate != nil && b.uid != "" && string(candidate.GetUID()) == b.uid
	}
	switch {
	case is(b.pod), is(b.copy):
		for _, candidate := range []*unstructured.Unstructured{b.pod, b.copy} {
			if is(candidate) && standsForAnother(candidate, b.object) {
				return false, false
			}
		}
		return true, true
	case b.copy == nil || standsForAnother(b.copy, b.object) || b.at.Before(b.copy.GetCreationTimestamp().Time):
		return false, false
	default:
		return true, b.uid == "" || b.derived
	}
}

// atOnce is how soon after a ShadowPod its pod is there when all goes well.
const atOnce = 10 * time.Second

// routine tells the Events that say of each object that all went as it should. The copy may be unknown.
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

// eventTime is the last time that an Event tells of, by the provider's clock; zero when it tells none.
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
