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

// What is remembered is bounded, however many different parts there are.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	p := NewParts()
	for n := range 3 * partsMost / 400 { // a map takes more than that
		p.Share(pod(fmt.Sprint(n), map[string]any{"number": int64(n)}))
		if p.bytes > partsMost+partMost || len(p.known) > partsMost/200 {
			t.Fatalf("after %d objects %d bytes and %d parts are remembered", n, p.bytes, len(p.known))
		}
	}
	text := strings.Repeat("x", textMost+1)
	large := []any{map[string]any{"text": strings.Repeat("y", 2*partMost)}, make([]any, partMost)}
	p.Share(pod("x", map[string]any{"text": text, "large": large}))
	for _, known := range p.known {
		if value, ok := known.(string); ok && value == text || reflect.DeepEqual(known, large[0]) || reflect.DeepEqual(known, large[1]) {
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

// Two values may have one hash: what differs anywhere is not the same.
func TestIdentical(t *testing.T) {
	t.Parallel()
	list := func(x any) any { return []any{"a", x} }
	for name, pair := range map[string][2]any{
		"elements": {list("b"), list("c")}, "lengths": {list("b"), []any{"a"}}, "keys": {map[string]any{"a": "x"}, map[string]any{"b": "x"}},
		"values": {map[string]any{"a": list("x")}, map[string]any{"a": list("y")}}, "sizes": {map[string]any{"a": "x"}, map[string]any{}},
	} {
		if identical(pair[0], pair[1]) {
			t.Errorf("%s: %v and %v are identical", name, pair[0], pair[1])
		}
	}
	if !identical(list(map[string]any{"a": list(1.5)}), list(map[string]any{"a": list(1.5)})) {
		t.Error("equal values are not identical")
	}
}
