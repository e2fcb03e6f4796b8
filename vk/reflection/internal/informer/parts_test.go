// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func pod(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name, "uid": name, "labels": map[string]any{"app": "web"}},
		"spec":     spec,
	}}
}

func webSpec() map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "web", "ports": []any{map[string]any{"containerPort": int64(80)}}, "tty": true}}, "weight": 1.5, "none": nil}
}

func pointer(value any) uintptr { return reflect.ValueOf(value).Pointer() }

func TestEqualPartsAreOne(t *testing.T) {
	t.Parallel()
	p := NewParts()
	a, b := pod("a", webSpec()), pod("b", webSpec())
	p.Share(a)
	p.Share(b)
	if pointer(a.Object["spec"]) != pointer(b.Object["spec"]) {
		t.Error("equal specs are two")
	}
	labels := func(o *unstructured.Unstructured) any { return o.Object["metadata"].(map[string]any)["labels"] }
	if pointer(labels(a)) != pointer(labels(b)) {
		t.Error("equal labels are two")
	}
	if pointer(a.Object["metadata"]) == pointer(b.Object["metadata"]) || b.GetName() != "b" {
		t.Error("metadata is shared")
	}
	if !reflect.DeepEqual(b.Object["spec"], any(webSpec())) {
		t.Errorf("sharing changed a spec to %v", b.Object["spec"])
	}
}

// An int and a float of one value, and null and absent, are not the same to those who read them.
func TestPartsOfOtherTypesStayTwo(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]any{
		"int and float":    {int64(1), 1.0},
		"int and text":     {int64(1), "1"},
		"true and text":    {true, "true"},
		"null and false":   {nil, false},
		"list and element": {[]any{"x"}, "x"},
		"map and list":     {map[string]any{}, []any{}},
	} {
		p := NewParts()
		a, b := pod("a", map[string]any{"f": pair[0]}), pod("b", map[string]any{"f": pair[1]})
		p.Share(a)
		p.Share(b)
		if got := b.Object["spec"].(map[string]any)["f"]; !reflect.DeepEqual(got, pair[1]) {
			t.Errorf("%s: %#v became %#v", name, pair[1], got)
		}
	}
}

// Two values of one hash are not taken for each other: who can choose the content of objects can look for such.
func TestHashesAreNotTrusted(t *testing.T) {
	t.Parallel()
	p := NewParts()
	first, second := map[string]any{"a": "b"}, map[string]any{"c": "d"}
	p.one(first, 1, 8)
	if got := p.one(second, 1, 8); pointer(got) != pointer(second) {
		t.Errorf("%v was replaced by %v", second, got)
	}
}

func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	p := NewParts()
	for n := range 20000 {
		p.Share(pod("x", map[string]any{"text": fmt.Sprint("unique ", n), "more": map[string]any{"n": int64(n)}}))
		if p.bytes > partsMost+partMost {
			t.Fatalf("after %d objects %d bytes are remembered, want %d at most", n+1, p.bytes, partsMost)
		}
	}
	large := map[string]any{"text": strings.Repeat("x", 2*partMost)}
	p.Share(pod("x", large))
	for _, known := range p.known {
		if reflect.DeepEqual(known, any(large)) {
			t.Error("a large part is remembered")
		}
	}
}

func TestNoPartsShareNothing(t *testing.T) {
	t.Parallel()
	var p *Parts
	a, b := pod("a", webSpec()), pod("b", webSpec())
	p.Share(a)
	p.Share(b)
	if pointer(a.Object["spec"]) == pointer(b.Object["spec"]) {
		t.Error("specs became one")
	}
}

func BenchmarkShare(b *testing.B) {
	p := NewParts()
	for b.Loop() {
		p.Share(pod("a", webSpec()))
	}
}
