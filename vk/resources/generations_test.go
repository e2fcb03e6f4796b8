// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// observer acts as an operator on the provider. It also reads in this cluster which generation the operator has
// observed.
type observer struct {
	*lab
	gvr schema.GroupVersionResource
}

// observes writes a status with the given generation of the remote object to all fields that operators use for this.
// marker identifies the status.
func (o observer) observes(marker string, generation int64) {
	o.Helper()
	o.patch(o.remote, o.gvr, o.remoteNamespace, "x", fmt.Sprintf(`status: {marker: %[1]s, observedGeneration: %[2]d, rollout: {observedGeneration: "%[2]d", revision: "7"}, conditions: [
		{type: Ready, status: "True", observedGeneration: %[2]d}, {type: Old, status: "True", observedGeneration: 1}]}`, marker, generation), "status")
}

// generation returns the generation of the remote object.
func (o observer) generation() int64 {
	o.Helper()
	return must(o.remote.dynamic.Resource(o.gvr).Namespace(o.remoteNamespace).Get(o.Context(), "x", metav1.GetOptions{}))(o.T).GetGeneration()
}

// shows waits until the local status contains the marker, and compares the generations in the status.
func (o observer) shows(marker string, own, observed, old int64) {
	o.Helper()
	o.sees(o.local, o.gvr, o.shop, "x", func(object *unstructured.Unstructured) string {
		status, _ := object.Object["status"].(map[string]any)
		if status["marker"] != marker {
			return fmt.Sprintf("status %v, want that of %s", status, marker)
		}
		want := fmt.Sprintf("generation %d: %d %d %d %d", own, observed, observed, observed, old)
		conditions, _ := status["conditions"].([]any)
		rollout, _ := status["rollout"].(map[string]any)
		said := fmt.Sprintf("generation %d: %v %v %v %v", object.GetGeneration(), status["observedGeneration"], rollout["observedGeneration"],
			conditions[0].(map[string]any)["observedGeneration"], conditions[1].(map[string]any)["observedGeneration"])
		if said != want {
			return said + ", want " + want
		}
		return ""
	})
}

// TestObservedGenerations checks that a reflected status refers to generations of the local object. They differ from
// the generations of the remote object, which may have been created later, and whose spec the provider's controllers
// may change.
func TestObservedGenerations(t *testing.T) {
	l := newLab(t).withEngine().start()
	const group, name = "generations.example.org", "widgets.generations.example.org"
	l.grant(group)
	for _, side := range []*cluster{l.local, l.remote} {
		l.define(side, strings.Replace(widgets(group, "Namespaced"), "served: true,", "served: true, subresources: {status: {}},", 1))
	}
	o := observer{l, schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}}
	l.eventually(func() error {
		_, err := l.local.dynamic.Resource(o.gvr).List(t.Context(), metav1.ListOptions{})
		return err
	})
	l.create(l.local, o.gvr, l.shop, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: x}, spec: {size: 1}}")
	l.patch(l.local, o.gvr, l.shop, "x", "spec: {size: 2}")
	l.patch(l.local, o.gvr, l.shop, "x", "spec: {size: 3}")
	l.reflect(name, "{group: "+group+", version: v1, resource: widgets, statusBack: true}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.sees(l.remote, o.gvr, l.remoteNamespace, "x", func(*unstructured.Unstructured) string { return "" })

	// The generation of the remote object must be lower, because it was created later.
	require.EqualValues(t, 1, o.generation())
	o.observes("first", 1)
	o.shows("first", 3, 3, 3)

	// The provider's operator changes the remote spec. The local object does not change, so its observed generation
	// must not change either.
	for _, fill := range []string{"a", "b", "c", "d"} {
		l.patch(l.remote, o.gvr, l.remoteNamespace, "x", "spec: {free: {"+fill+": 1}}")
	}
	o.observes("filled", 4)
	o.shows("filled", 3, 3, 3)
	o.observes("all", 5)
	o.shows("all", 3, 3, 3)

	// After a local change, the status must refer to the previous generation until the operator has observed the
	// change, even though the remote generation is higher.
	l.patch(l.local, o.gvr, l.shop, "x", "spec: {size: 9}")
	l.sees(l.remote, o.gvr, l.remoteNamespace, "x", func(copied *unstructured.Unstructured) string {
		size, _, _ := unstructured.NestedInt64(copied.Object, "spec", "size")
		return map[bool]string{false: fmt.Sprintf("size %d", size)}[size == 9]
	})
	o.observes("behind", 5)
	o.shows("behind", 4, 3, 3)
	o.observes("up to date", o.generation())
	o.shows("up to date", 4, 4, 3)

	// The remote generation must not change because of a label, or because the local spec gets a value that the remote
	// spec already has.
	before := must(l.remote.dynamic.Resource(o.gvr).Namespace(l.remoteNamespace).Get(t.Context(), "x", metav1.GetOptions{}))(t)
	l.patch(l.local, o.gvr, l.shop, "x", "metadata: {labels: {internal.example.org/cost: '7'}}")
	l.patch(l.local, o.gvr, l.shop, "x", "spec: {free: {a: 1}}")
	o.shows("up to date", 5, 5, 3)
	after := must(l.remote.dynamic.Resource(o.gvr).Namespace(l.remoteNamespace).Get(t.Context(), "x", metav1.GetOptions{}))(t)
	require.Equal(t, before.GetGeneration(), after.GetGeneration())
}

// TestGenerationsOfStatusesThatAreNoSubresource checks that generations are not reflected for a kind without a status
// subresource. For such a kind, every status write increases the generation. If generations were reflected, each write
// would cause another write.
func TestGenerationsOfStatusesThatAreNoSubresource(t *testing.T) {
	l := newLab(t).withEngine().start()
	const group, name = "whole.example.org", "widgets.whole.example.org"
	l.grant(group)
	for _, side := range []*cluster{l.local, l.remote} {
		l.define(side, widgets(group, "Namespaced"))
	}
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	l.eventually(func() error {
		_, err := l.local.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		return err
	})
	l.create(l.local, gvr, l.shop, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: x}, spec: {size: 1}}")
	l.reflect(name, "{group: "+group+", version: v1, resource: widgets, statusBack: true}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.sees(l.remote, gvr, l.remoteNamespace, "x", func(*unstructured.Unstructured) string { return "" })
	l.patch(l.remote, gvr, l.remoteNamespace, "x", `status: {phase: Ready, observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 2}]}`)
	var generation int64
	l.sees(l.local, gvr, l.shop, "x", func(object *unstructured.Unstructured) string {
		status, _ := object.Object["status"].(map[string]any)
		generation = object.GetGeneration()
		if status["phase"] != "Ready" || strings.Contains(fmt.Sprint(status), "observedGeneration") {
			return fmt.Sprintf("status %v", status)
		}
		return ""
	})
	l.patch(l.remote, gvr, l.remoteNamespace, "x", "status: {phase: Steady}")
	l.sees(l.local, gvr, l.shop, "x", func(object *unstructured.Unstructured) string {
		status, _ := object.Object["status"].(map[string]any)
		if status["phase"] != "Steady" || object.GetGeneration() != generation+1 {
			return fmt.Sprintf("generation %d, was %d, status %v", object.GetGeneration(), generation, status)
		}
		return ""
	})
}

// TestAStatusComesBackWhileTheSpecIsRefused checks that the status of a custom resource is still reflected while the
// provider rejects an update. The status must then refer to the earlier generation.
func TestAStatusComesBackWhileTheSpecIsRefused(t *testing.T) {
	l := newLab(t).withEngine().start()
	const group, name = "refusals.example.org", "widgets.refusals.example.org"
	l.grant(group)
	definition := strings.Replace(widgets(group, "Namespaced"), "served: true,", "served: true, subresources: {status: {}},", 1)
	l.define(l.local, definition)
	l.define(l.remote, strings.Replace(definition, "type: object,", "type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {size: {type: integer, maximum: 2}}}},", 1))
	o := observer{l, schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}}
	l.eventually(func() error {
		_, err := l.local.dynamic.Resource(o.gvr).List(t.Context(), metav1.ListOptions{})
		return err
	})
	l.create(l.local, o.gvr, l.shop, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: x}, spec: {size: 1}}")
	l.reflect(name, "{group: "+group+", version: v1, resource: widgets, statusBack: true}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.sees(l.remote, o.gvr, l.remoteNamespace, "x", func(*unstructured.Unstructured) string { return "" })
	o.observes("before", 1)
	o.shows("before", 1, 1, 1)

	l.patch(l.local, o.gvr, l.shop, "x", "spec: {size: 3}")
	l.eventually(func() error {
		events, err := l.local.core.CoreV1().Events(l.shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=x,type=Warning"})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, "spec.size") {
				return nil
			}
		}
		return fmt.Errorf("the refusal is in none of %d Events", len(events.Items))
	})
	o.observes("during", 1)
	o.shows("during", 2, 1, 1)
	require.EqualValues(t, 1, o.generation())
	l.patch(l.local, o.gvr, l.shop, "x", "spec: {size: 2}")
	l.sees(l.remote, o.gvr, l.remoteNamespace, "x", func(object *unstructured.Unstructured) string {
		if size, _, _ := unstructured.NestedInt64(object.Object, "spec", "size"); size != 2 {
			return fmt.Sprintf("size %d, want 2", size)
		}
		return ""
	})
}

// TestFieldsThatTheProviderDoesNotKnow checks the case in which a provider drops a field because it has an earlier
// definition. An Event must name the field and the version of the provider. The field must be sent again with the next
// change, and must be stored when the provider has the new definition.
func TestFieldsThatTheProviderDoesNotKnow(t *testing.T) {
	l := newLab(t).withEngine().start()
	const group, name = "dropped.example.org", "widgets.dropped.example.org"
	l.grant(group)
	l.define(l.local, widgets(group, "Namespaced"))
	const open, strict = "type: object, x-kubernetes-preserve-unknown-fields: true", "type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}"
	l.define(l.remote, strings.Replace(widgets(group, "Namespaced"), open, strict, 1))
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	l.eventually(func() error {
		_, err := l.local.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		return err
	})
	l.create(l.local, gvr, l.shop, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: x}, spec: {size: 1, colour: red}}")
	l.reflect(name, "{group: "+group+", version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.eventually(func() error {
		events, err := l.local.core.CoreV1().Events(l.shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=x,reason=FieldsDropped"})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, "spec.colour") && strings.Contains(event.Message, "(Kubernetes v1.") && event.Type == "Warning" {
				return nil
			}
		}
		return fmt.Errorf("the Events are %v", events.Items)
	})
	definition := must(l.remote.dynamic.Resource(definitionsResource).Get(t.Context(), name, metav1.GetOptions{}))(t)
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	require.NoError(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	must(l.remote.dynamic.Resource(definitionsResource).Update(t.Context(), definition, metav1.UpdateOptions{}))(t)
	for size := 2; ; size++ { // the API server applies the definition only after some time
		l.patch(l.local, gvr, l.shop, "x", fmt.Sprintf("spec: {size: %d}", size))
		l.sees(l.remote, gvr, l.remoteNamespace, "x", func(object *unstructured.Unstructured) string {
			if got, _, _ := unstructured.NestedInt64(object.Object, "spec", "size"); got != int64(size) {
				return fmt.Sprintf("size %d, want %d", got, size)
			}
			return ""
		})
		found := must(l.remote.dynamic.Resource(gvr).Namespace(l.remoteNamespace).Get(t.Context(), "x", metav1.GetOptions{}))(t)
		if colour, _, _ := unstructured.NestedString(found.Object, "spec", "colour"); colour == "red" {
			return
		}
		if size > 100 {
			t.Fatal("the field is not sent again")
		}
	}
}

// TestTheLimitOfAProviderReachesTheObject checks that an Event on an object reports if the object exceeds the
// provider's limit on the number of objects. Existing objects must be kept.
func TestTheLimitOfAProviderReachesTheObject(t *testing.T) {
	l := newLab(t).withEngine().start()
	const group, name = "counted.example.org", "widgets.counted.example.org"
	l.both(group, "Namespaced")
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	for _, c := range []*cluster{l.local, l.remote} {
		l.eventually(func() error {
			_, err := c.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	quotas := schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	limit := "hard: {count/" + name + ": \"1\"}"
	l.create(l.remote, quotas, l.remoteNamespace, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: refract-objects}, spec: {"+limit+"}}")
	l.patch(l.remote, quotas, l.remoteNamespace, "refract-objects", "status: {"+limit+", used: {count/"+name+": \"0\"}}", "status")
	l.reflect(name, "{group: "+group+", version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.create(l.local, gvr, l.shop, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: first}}")
	l.sees(l.remote, gvr, l.remoteNamespace, "first", func(*unstructured.Unstructured) string { return "" })
	l.create(l.local, gvr, l.shop, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: second}}")
	l.eventually(func() error {
		events, err := l.local.core.CoreV1().Events(l.shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=second,type=Warning"})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, "exceeded quota: refract-objects") {
				return nil
			}
		}
		return fmt.Errorf("the refusal is in none of %d Events", len(events.Items))
	})
	l.sees(l.remote, gvr, l.remoteNamespace, "first", func(*unstructured.Unstructured) string { return "" })
}
