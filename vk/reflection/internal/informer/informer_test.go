// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func newInformer(t *testing.T, o Options) *Informer {
	t.Helper()
	// The client is not used, so its address does not matter.
	client, err := dynamic.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	return (&Source{Client: client, Strings: NewStrings()}).New(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, o)
}

func object(name, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": "shop", "name": name, "uid": "uid-" + name, "resourceVersion": version, "managedFields": []any{},
		},
		"spec": map[string]any{"x": "y"},
	}}
}

// told records the calls of an EventFunc.
type told []string

func (l *told) handle(before, object *unstructured.Unstructured, deleted bool) {
	from := "-"
	if before != nil {
		from = before.GetResourceVersion()
	}
	*l = append(*l, fmt.Sprintf("%s %s>%s %v", object.GetName(), from, object.GetResourceVersion(), deleted))
}

func (l *told) want(t *testing.T, want ...string) {
	t.Helper()
	if got := []string(*l); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("told of %q, want %q", got, want)
	}
	*l = nil
}

func TestHandlersAreToldOfChangesOnce(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Selection: Selection{Namespace: "shop"}})
	s := (*store)(i)
	var heard, late told
	i.OnEvent(heard.handle)
	if i.HasSynced() {
		t.Error("synced before anything was listed")
	}
	require.NoError(t, s.Replace([]any{object("a", "1"), object("b", "2")}, "2"))
	heard.want(t, "a ->1 false", "b ->2 false")
	if !i.HasSynced() {
		t.Error("not synced after a list")
	}
	require.NoError(t, s.Update(object("a", "3")))
	require.NoError(t, s.Add(object("c", "4")))
	require.NoError(t, s.Delete(object("c", "5")))
	heard.want(t, "a 1>3 false", "c ->4 false", "c ->5 true")

	// The objects are listed again. An unchanged object must not cause an event. An object that is missing in the list
	// counts as deleted.
	require.NoError(t, s.Replace([]any{object("a", "3"), object("d", "6")}, "6"))
	heard.want(t, "d ->6 false", "b ->2 true")

	remove := i.OnEvent(late.handle)
	if len(late) != 2 {
		t.Errorf("a late handler was told of %q, want a and d", late)
	}
	late = nil
	remove()
	require.NoError(t, s.Update(object("a", "7")))
	heard.want(t, "a 3>7 false")
	late.want(t)

	i.Resync()
	if len(heard) != 2 {
		t.Errorf("resync told of %q, want a and d", heard)
	}
}

// TestAnotherObjectOfTheSameVersion checks that an object replaces another object with the same version. This happens
// because an API server whose storage was restored uses versions a second time.
func TestAnotherObjectOfTheSameVersion(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Selection: Selection{Namespace: "shop"}})
	require.NoError(t, (*store)(i).Replace([]any{object("a", "1")}, "1"))
	var heard told
	i.OnEvent(heard.handle)
	heard = nil
	another := object("a", "1")
	another.SetUID("another")
	require.NoError(t, (*store)(i).Replace([]any{another}, "1"))
	heard.want(t, "a 1>1 false")
	if got := i.Get("shop", "a").GetUID(); got != "another" {
		t.Errorf("object %s is kept, want the other one", got)
	}
}

// TestDeletedObjectsAreTrimmed checks that handlers get a deleted object in the form that the informer stored.
func TestDeletedObjectsAreTrimmed(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Trim: DropSpec})
	require.NoError(t, i.Put(object("a", "1")))
	var last *unstructured.Unstructured
	i.OnEvent(func(_, object *unstructured.Unstructured, _ bool) { last = object })
	require.NoError(t, (*store)(i).Delete(object("a", "2")))
	if last.GetResourceVersion() != "2" || last.Object["spec"] != nil || last.GetManagedFields() != nil {
		t.Errorf("handlers see %v of what was deleted", last)
	}
}

func TestLookingUp(t *testing.T) {
	t.Parallel()
	one, all := newInformer(t, Options{Selection: Selection{Namespace: "shop"}}), newInformer(t, Options{Trim: DropSpec})
	for _, i := range []*Informer{one, all} {
		if i.HasIn("shop") {
			t.Error("an empty informer has objects")
		}
		require.NoError(t, i.Put(object("a", "1")))
		if !i.HasIn("shop") || len(i.In("shop")) != 1 || i.Len() != 1 || i.Get("shop", "a") == nil || i.Get("shop", "b") != nil {
			t.Errorf("an informer with one object has %d in its namespace", len(i.In("shop")))
		}
		if i.Get("shop", "a").GetManagedFields() != nil {
			t.Error("managedFields are kept")
		}
	}
	if all.HasIn("other") || len(all.In("other")) != 0 {
		t.Error("objects in a namespace that has none")
	}
	if one.Get("shop", "a").Object["spec"] == nil || all.Get("shop", "a").Object["spec"] != nil {
		t.Error("the spec was kept where it is dropped, or dropped where it is kept")
	}
}
