// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// commitValue is the reference implementation of Commit: it builds the value and makes it the base.
func (d *Document) commitValue() {
	if d.Edited() {
		d.setBase(d.Value())
	}
}

// change makes one random change, or only visits nodes, and returns a description of the result.
func change(s *source, d *Document) string {
	s.texts = 0
	path, _ := s.path()
	root := d.Root()
	var err error
	var result any
	switch s.n(16) {
	case 0:
		err = root.SetString(path, []string{"set", "", "other"}[s.n(3)])
	case 1:
		err = root.SetFloat(path, float64(s.n(4))/2)
	case 2:
		_, err = root.SetMap(path)
	case 3:
		_, err = root.SetList(path)
	case 4:
		_, err = root.EnsureMap(path)
	case 5, 6:
		result, err = root.Remove(path)
	case 7:
		err = root.Assign(path, s.value(2))
	case 8:
		from, _ := s.path()
		var src View
		if src, err = root.At(from); err == nil {
			err = root.Copy(path, src)
		}
	case 9:
		result, err = root.RemoveKeysGlob(path, []string{"*", "a", "key?", "?"}[s.n(4)], "")
	case 10:
		var n Node
		if n, err = root.Get(path); err == nil {
			err = n.RemoveElem(s.n(3))
		}
	case 11, 12:
		pointer := "/" + strings.ReplaceAll(fuzzKeys[s.n(4)], "/", "~1") + "/" + []string{"0", "1", "-", "a", "keyA"}[s.n(5)]
		err = d.Patch(map[string]any{"op": []string{"add", "remove", "replace", "move"}[s.n(4)], "path": pointer, "value": s.value(1), "from": "/a"})
	case 13:
		var n Node
		if n, err = root.Get(path); err == nil && n.ID() != 0 {
			err = n.SetBool("via", s.n(2) == 1)
		}
	case 14:
		var n Node
		n, err = root.Get(path)
		result = n.ID() != 0
	case 15:
		var v View
		v, err = root.At(path)
		result = string(v.AppendJSON(nil))
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(result)
}

// describe returns the complete state of a document: value, base and edits.
func describe(d *Document) string {
	var edits []string
	for e := range d.Edits {
		edits = append(edits, fmt.Sprintf("%v %t %s", e.Path, e.Removed, e.Value.AppendJSON(nil)))
	}
	slices.Sort(edits)
	value, base := d.Root().View(), d.Base()
	return fmt.Sprintf("%t %t %s %x %s %x %q", d.Edited(), d.EditsWithin(func(key string) bool { return key == "a" }),
		value.AppendJSON(nil), value.Hash(), base.AppendJSON(nil), base.Hash(), edits)
}

// isPlace reports whether the value is a map or a list. Only these are tested as nodes, because scalars that were not
// visited have no node.
func isPlace(v View) bool { return v.Kind() == Map || v.Kind() == List }

// checkBase compares the base, read with all read functions, with a plain value.
func checkBase(t *testing.T, base View, want any) {
	t.Helper()
	if !reflect.DeepEqual(normal(base.Value()), normal(want)) {
		t.Fatalf("base\n got %#v\nwant %#v", base.Value(), want)
	}
	if plain := Of(want); !base.Equal(plain) || !plain.Equal(base) || !base.CoveredBy(plain) || base.Hash() != plain.Hash() || base.Len() != plain.Len() ||
		!slices.Equal(base.Keys(nil), plain.Keys(nil)) || isPlace(base) && !base.Is(base) {
		t.Fatalf("base %s is not %#v", base.AppendJSON(nil), want)
	}
	if m, ok := want.(map[string]any); ok {
		for _, k := range append(slices.Collect(func(yield func(string) bool) {
			for k := range m {
				if !yield(k) {
					return
				}
			}
		}), "absent") {
			if e, there := m[k]; there {
				checkBase(t, base.Field(k), e)
			} else if base.Field(k).Kind() != Absent {
				t.Fatalf("%s is there", k)
			}
		}
	}
	if l, ok := want.([]any); ok {
		for i, e := range l {
			checkBase(t, base.Index(i), e)
		}
		if base.Index(len(l)).Kind() != Absent {
			t.Fatal("an element after the last one")
		}
	}
}

// FuzzUndo checks that the same changes have the same results in two documents, one that keeps its nodes at each
// Commit and one that builds the value.
func FuzzUndo(f *testing.F) {
	f.Add([]byte("\x04\x01\x05\x02\x08\x03\x01\x02\x03\x04\x05\x06\x07\x08\x09\x00\x01\x02"))
	f.Add([]byte("refract mutates what crosses the boundary between two media"))
	f.Add([]byte(strings.Repeat("\x03\x07\x01\x02\x0b\x05\x00\x0a\x04\x09\x06\x08", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept, built, memory := New(), New(), new([4][256]byte)
		for range 2 {
			fuzzUndo(t, &source{data: data, memory: memory}, &source{data: data, memory: new([4][256]byte)}, kept, built)
		}
	})
}

func fuzzUndo(t *testing.T, s, r *source, kept, built *Document) {
	object := s.object(3)
	before := runtime.DeepCopyJSONValue(object)
	kept.Reset(object)
	built.Reset(r.object(3))
	kept.Begin(nil, 1<<12, 1<<12)
	built.Begin(nil, 1<<12, 1<<12)
	var committed any = runtime.DeepCopyJSONValue(object)
	for steps := 0; len(s.data) > 0 && steps < 80; steps++ {
		// Sometimes the changes are committed or rolled back, as the host does after each plugin.
		switch s.n(8) {
		case 0:
			kept.Commit()
			built.commitValue()
			committed = runtime.DeepCopyJSONValue(built.Value())
			kept.Begin(nil, 1<<12, 1<<12)
			built.Begin(nil, 1<<12, 1<<12)
		case 1:
			kept.Rollback()
			built.Rollback()
		}
		r.n(8)
		a, b := change(s, kept), change(r, built)
		if strings.Contains(a+b, "than the limit allows") {
			// The Documents cannot be compared any further: one of them can hit the limit before the other, because
			// places that an earlier plugin has visited are counted only once.
			return
		}
		if a != b {
			t.Fatalf("%s, want %s", a, b)
		}
		if a, b := describe(kept), describe(built); a != b {
			t.Fatalf("\n got %s\nwant %s", a, b)
		}
		checkBase(t, kept.Base(), committed)
	}
	if !reflect.DeepEqual(object, before) {
		t.Fatal("the base was modified")
	}
	text, err := json.Marshal(kept.Value())
	if again, err2 := json.Marshal(built.Value()); err != nil || err2 != nil || string(text) != string(again) {
		t.Fatalf("%v %v\n got %s\nwant %s", err, err2, text, again)
	}
}

// TestCommitKeepsTheNodes checks that an element, an entry and a string have the right values, and the right edits,
// over several commits.
func TestCommitKeepsTheNodes(t *testing.T) {
	d := New()
	d.Reset(map[string]any{"m": map[string]any{"a": "1", "b": "2"}, "l": []any{"x", map[string]any{"k": "v"}, "z"}})
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for e := range d.Edits {
			got = append(got, e.Path.String()+"="+string(e.Value.AppendJSON(nil)))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("edits %q, want %q", got, want)
		}
	}
	root := d.Root()
	_, err := root.Remove("m.a\nl[0]")
	do(err, root.SetString("m.c", "3"))
	expect(`l=[{"k":"v"},"z"]`, "m.a=null", `m.c="3"`)
	d.Commit()
	expect()
	// Setting a value back to its old value must not count as an edit. Removing a value and setting it again must
	// count as an edit.
	do(root.SetString("m.c", "4"), root.SetString("m.c", "3"), root.SetString("m.a", "1"), root.SetString("l[0].k", "w"))
	expect(`l[0].k="w"`, `m.a="1"`)
	if got := string(d.Base().AppendJSON(nil)); got != `{"l":[{"k":"v"},"z"],"m":{"b":"2","c":"3"}}` {
		t.Errorf("base %s", got)
	}
	d.Rollback()
	expect()
	do(root.SetString("l[1]", "y"))
	d.Commit()
	do(root.SetString("l.-", "end"))
	expect(`l=[{"k":"v"},"y","end"]`)
	d.Rollback()
	if got := string(d.Root().View().AppendJSON(nil)); got != `{"l":[{"k":"v"},"y"],"m":{"b":"2","c":"3"}}` {
		t.Errorf("value %s", got)
	}
}

// TestCommitOfManyNodes checks that Commit drops the nodes if there are many.
func TestCommitOfManyNodes(t *testing.T) {
	d, list := New(), make([]any, 2*mostKept)
	for i := range list {
		list[i] = map[string]any{"k": "v"}
	}
	for _, edit := range []bool{false, true} {
		d.Reset(map[string]any{"l": list, "e": "0"})
		if err := d.Root().SetString("e", "1"); err != nil {
			t.Fatal(err)
		}
		d.Commit()
		small := d.Nodes()
		for i := range list {
			n, err := d.Root().Get(fmt.Sprintf("l[%d]", i))
			if err == nil && edit {
				err = n.SetString("k", "w")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := string(d.Root().View().AppendJSON(nil))
		if d.Commit(); d.Nodes() > small || d.Edited() || string(d.Root().View().AppendJSON(nil)) != want || !d.Base().Equal(d.Root().View()) {
			t.Errorf("edited %t: %d nodes", edit, d.Nodes())
		}
	}
}

// TestCommitAllocatesNothing checks that the steps of a chain allocate no memory in a document that was used before.
func TestCommitAllocatesNothing(t *testing.T) {
	d, object := New(), map[string]any{"m": map[string]any{"a": "1", "b": "2"}, "l": []any{"x", "y"}}
	allocs := testing.AllocsPerRun(100, func() {
		d.Reset(object)
		for _, text := range []string{"1", "2", "3"} {
			_, err := d.Root().Remove("l[0]")
			if err != nil || d.Root().SetString("m.c", text) != nil {
				t.Error("not set")
			}
			edits := 0
			d.Edits(func(Edit) bool { edits++; return true })
			if edits == 0 {
				t.Error("no edits")
			}
			d.Commit()
			if d.Root().SetString("m.a", "other") != nil {
				t.Error("not set")
			}
			d.Rollback()
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
