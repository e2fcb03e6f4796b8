// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// source makes decisions based on the fuzzer's bytes, and on zeros when these are used up. Its texts reuse the same
// memory, as in a guest.
type source struct {
	data   []byte
	memory *[4][256]byte
	texts  int // number of texts of the current operation
}

func (s *source) place(text string) string {
	b := s.memory[s.texts][:]
	s.texts++
	return unsafe.String(&b[0], copy(b, text))
}

func (s *source) n(limit int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % limit
}

var fuzzKeys = []string{"a", "b", "c", "0", "x.y/z", "br]ack", "*", "-"}

func (s *source) value(depth int) any {
	switch s.n(10) {
	case 0:
		return nil
	case 1:
		return int64(s.n(4))
	case 2:
		return s.n(2) == 1
	case 3:
		return float64(s.n(8)) / 2
	case 4:
		return []string{"", "s", "ü\n\"", "long text"}[s.n(4)]
	case 5, 6:
		if depth == 0 {
			return "leaf"
		}
		l := make([]any, s.n(5))
		for i := range l {
			l[i] = s.value(depth - 1)
		}
		return l
	}
	if depth == 0 {
		return int64(7)
	}
	return s.object(depth - 1)
}

func (s *source) object(depth int) map[string]any {
	m := map[string]any{}
	for range s.n(5) {
		m[fuzzKeys[s.n(len(fuzzKeys))]] = s.value(depth)
	}
	// Sometimes the map is large: with 40 entries it has an index.
	if s.n(16) == 1 {
		for i := range 40 {
			m["key"+string(rune('A'+i))] = int64(i)
		}
	}
	return m
}

// path returns a path as text and as segments of the model.
func (s *source) path() (string, []modelSeg) {
	var b strings.Builder
	var segs []modelSeg
	for i := range 1 + s.n(4) {
		text := fuzzKeys[s.n(len(fuzzKeys))]
		if s.n(3) == 0 {
			text = []string{"0", "1", "2", "keyA", "keyZ"}[s.n(5)]
		}
		verbatim := s.n(4) == 0 || !plainKey(text) && text != "*" && text != "-"
		if verbatim {
			b.WriteString("[" + strings.ReplaceAll(text, "]", "]]") + "]")
		} else {
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(text)
		}
		segs = append(segs, modelSeg{text, verbatim})
	}
	return s.place(b.String()), segs
}

// fuzzOp runs one operation on the Document and on the model. It returns the changed model, how many values were
// removed from the Document and from the model, and the errors of the Document and of the model.
func fuzzOp(s *source, d *Document, model any) (any, int, int, error, error) {
	s.texts = 0
	path, segs := s.path()
	root := d.Root()
	var docErr, modelErr error
	var n, m int
	next := model
	switch s.n(9) {
	case 0:
		docErr = root.SetString(path, "set")
		next, modelErr = modelSet(model, segs, "set")
	case 1:
		docErr = root.SetInt(path, 3)
		next, modelErr = modelSet(model, segs, int64(3))
	case 2:
		_, docErr = root.SetMap(path)
		next, modelErr = modelSet(model, segs, map[string]any{})
	case 3:
		_, docErr = root.SetList(path)
		next, modelErr = modelSet(model, segs, []any{})
	case 4:
		n, docErr = root.Remove(path)
		next, m = modelRemove(model, segs)
	case 5:
		n, docErr = root.Remove(s.place(path + "\n" + path))
		next, m = modelRemove(model, segs)
		again, k := modelRemove(next, segs)
		next, m = again, m+k
	case 6:
		v := s.value(2)
		docErr = root.Assign(path, v)
		next, modelErr = modelSet(model, segs, runtime.DeepCopyJSONValue(v))
	case 7:
		from, fromSegs := s.path()
		src, err := root.At(from)
		v, ok, err2 := modelGet(model, fromSegs)
		if err != nil || err2 != nil || !ok {
			return model, 0, 0, err, err2
		}
		docErr = root.Copy(path, src)
		next, modelErr = modelSet(model, segs, runtime.DeepCopyJSONValue(v))
	// This operation writes through a node that an earlier Get has returned.
	case 8:
		node, err := root.Get(path)
		v, ok, err2 := modelGet(model, segs)
		if err != nil || err2 != nil || !ok || kindOf(v) != Map {
			return model, 0, 0, err, err2
		}
		docErr = node.SetBool("via", true)
		next, modelErr = modelSet(model, append(segs, modelSeg{text: "via"}), true)
	}
	return next, n, m, docErr, modelErr
}

func FuzzEdits(f *testing.F) {
	f.Add([]byte("\x04\x01\x05\x02\x08\x03\x01\x02\x03\x04\x05\x06\x07\x08\x09\x00\x01\x02"))
	f.Add([]byte("refract mutates what crosses the boundary between two media"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, memory := New(), new([4][256]byte)
		// The operations run three times, because the first run learns the paths, and later runs use the known paths.
		for range 3 {
			fuzzEdits(t, &source{data: data, memory: memory}, d)
		}
	})
}

func fuzzEdits(t *testing.T, s *source, d *Document) {
	base := s.object(3)
	before := runtime.DeepCopyJSONValue(base)
	d.Reset(base)
	// The budget is needed because copies of copies would otherwise grow without limit.
	d.SetBudget(1<<12, 1<<12)
	model := runtime.DeepCopyJSONValue(base)
	committed := model
	for steps := 0; len(s.data) > 0 && steps < 60; steps++ {
		if s.n(12) == 0 {
			d.Commit()
			// The model takes over the state of the Document, because an operation that failed may have left empty
			// maps behind.
			committed = runtime.DeepCopyJSONValue(d.Value())
			model = runtime.DeepCopyJSONValue(committed)
		}
		next, n, m, docErr, modelErr := fuzzOp(s, d, model)
		if overBudget(docErr) {
			modelErr = docErr
		}
		if (docErr != nil) != (modelErr != nil) || n != m {
			t.Fatalf("document: %d %v, model: %d %v", n, docErr, m, modelErr)
		}
		if docErr != nil {
			d.Rollback()
			model = committed
		} else {
			model = next
		}
		if s.n(24) == 1 {
			d.Rollback()
			model = committed
		}
		compare(t, d, model, committed)
	}
	if !reflect.DeepEqual(base, before) {
		t.Fatal("the base was modified")
	}
}

func overBudget(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == TooManyBytes || e.Code == TooManyNodes)
}

func compare(t *testing.T, d *Document, model, base any) {
	t.Helper()
	got := d.Value()
	if !reflect.DeepEqual(normal(got), normal(model)) {
		t.Fatalf("value\n got %#v\nwant %#v", got, model)
	}
	if d.Hash() != Hash(model) || d.Hash() != Hash(got) {
		t.Fatal("hashes differ")
	}
	if !d.Root().View().Equal(Of(model)) || !Covers(d.Root(), model) || !equalViews(rawView(model), d.Root().View()) {
		t.Fatalf("not equal: %v %v %v\n%#v\n%#v", d.Root().View().Equal(Of(model)), Covers(d.Root(), model), equalViews(rawView(model), d.Root().View()), got, model)
	}
	var decoded any
	text := d.Root().View().AppendJSON(nil)
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if !d.Root().View().Equal(Of(decoded)) {
		t.Fatalf("JSON %s is not %#v", text, model)
	}
	var edits []string
	for e := range d.Edits {
		v, ok, err := modelGet(model, segments(e.Path))
		if err != nil || ok == e.Removed || ok && !e.Value.Equal(Of(v)) {
			t.Fatalf("edit %v (removed %t) is not in the model", e.Path, e.Removed)
		}
		edits = append(edits, e.Path.String())
	}
	slices.Sort(edits)
	if want := slices.Sorted(slices.Values(modelDiff(nil, "", base, true, model, true))); !slices.Equal(edits, want) {
		t.Fatalf("edits\n got %q\nwant %q", edits, want)
	}
	if !d.Edited() && len(edits) > 0 {
		t.Fatal("edits although not edited")
	}
}

func segments(p fieldpath.Path) []modelSeg {
	var out []modelSeg
	for _, s := range p {
		if s.Index >= 0 {
			out = append(out, modelSeg{text: string(rune('0' + s.Index))})
		} else {
			out = append(out, modelSeg{text: s.Key, verbatim: true})
		}
	}
	return out
}

// normal converts floats without a fraction to ints, because the Document may keep either of two equal numbers.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, e := range v {
			m[k] = normal(e)
		}
		return m
	case []any:
		l := []any{}
		for _, e := range v {
			l = append(l, normal(e))
		}
		return l
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}
