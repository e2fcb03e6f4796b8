// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	kjson "sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
)

// decodeJSON decodes JSON as Kubernetes does: whole numbers become int64.
func decodeJSON(t testing.TB, text string) (v any) {
	t.Helper()
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &v), text)
	return v
}

// applyPatch applies operations to an object until one of them returns an error.
func applyPatch(doc *document.Document, object map[string]any, operations []any) error {
	doc.Reset(object)
	for _, operation := range operations {
		if err := doc.Patch(operation); err != nil {
			return err
		}
	}
	return nil
}

// TestPatch checks the examples in appendix A of RFC 6902, and its rules for members and paths.
func TestPatch(t *testing.T) {
	for name, c := range map[string]struct{ object, patch, want string }{
		"A.1 adding a member":         {`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`, `{"baz":"qux","foo":"bar"}`},
		"A.2 adding an element":       {`{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`, `{"foo":["bar","qux","baz"]}`},
		"A.3 removing a member":       {`{"baz":"qux","foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`, `{"foo":"bar"}`},
		"A.4 removing an element":     {`{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`, `{"foo":["bar","baz"]}`},
		"A.5 replacing":               {`{"baz":"qux","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`, `{"baz":"boo","foo":"bar"}`},
		"A.6 moving a value":          {`{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}`, `[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]`, `{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}`},
		"A.7 moving an element":       {`{"foo":["all","grass","cows","eat"]}`, `[{"op":"move","from":"/foo/1","path":"/foo/3"}]`, `{"foo":["all","cows","eat","grass"]}`},
		"A.8 testing":                 {`{"baz":"qux","foo":["a",2,"c"]}`, `[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2.0}]`, `{"baz":"qux","foo":["a",2,"c"]}`},
		"A.10 adding a nested member": {`{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}}}]`, `{"foo":"bar","child":{"grandchild":{}}}`},
		"A.11 unknown members":        {`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux","xyz":123}]`, `{"foo":"bar","baz":"qux"}`},
		"A.14 escapes":                {`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`},
		"A.16 adding a list":          {`{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc","def"]}]`, `{"foo":["bar",["abc","def"]]}`},
		"nothing":                     {`{"foo":"bar"}`, `[]`, `{"foo":"bar"}`},
		"adding what exists":          {`{"foo":{"a":1,"b":2}}`, `[{"op":"add","path":"/foo","value":{"b":2}}]`, `{"foo":{"b":2}}`},
		"a value of null":             {`{"foo":1}`, `[{"op":"add","path":"/foo","value":null},{"op":"test","path":"/foo","value":null}]`, `{"foo":null}`},
		"the whole object":            {`{"foo":1}`, `[{"op":"replace","path":"","value":{"bar":2}},{"op":"test","path":"","value":{"bar":2}}]`, `{"bar":2}`},
		"the end of a list":           {`{"a":[1]}`, `[{"op":"add","path":"/a/1","value":2},{"op":"add","path":"/a/0","value":0}]`, `{"a":[0,1,2]}`},
		"an empty key":                {`{"":1}`, `[{"op":"replace","path":"/","value":2}]`, `{"":2}`},
		"a key like an index":         {`{"a":{"0":1}}`, `[{"op":"remove","path":"/a/0"},{"op":"add","path":"/a/-","value":2}]`, `{"a":{"-":2}}`},
		"a copy of the object":        {`{"a":1}`, `[{"op":"copy","from":"","path":"/b"},{"op":"replace","path":"/b/a","value":2}]`, `{"a":1,"b":{"a":2}}`},
		"a copy is a value":           {`{"a":{"x":1}}`, `[{"op":"copy","from":"/a","path":"/b"},{"op":"remove","path":"/a/x"}]`, `{"a":{},"b":{"x":1}}`},
		"a move of what was written":  {`{"a":{}}`, `[{"op":"add","path":"/a/x","value":{"y":[1]}},{"op":"add","path":"/a/x/y/0","value":0},{"op":"move","from":"/a/x","path":"/b"}]`, `{"a":{},"b":{"y":[0,1]}}`},
		"a move to where it is":       {`{"a":{"x":1}}`, `[{"op":"move","from":"/a","path":"/a"}]`, `{"a":{"x":1}}`},
		"a move to the whole":         {`{"a":{"x":1}}`, `[{"op":"move","from":"/a","path":""}]`, `{"x":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			doc := document.New()
			object := decodeJSON(t, c.object).(map[string]any)
			require.NoError(t, applyPatch(doc, object, decodeJSON(t, c.patch).([]any)))
			require.Empty(t, cmp.Diff(decodeJSON(t, c.want), any(doc.Value())))
			require.Empty(t, cmp.Diff(decodeJSON(t, c.object), any(object)), "the base was modified")
		})
	}
}

func TestPatchNamesWhatIsWrong(t *testing.T) {
	const object = `{"a":{"b":"text","n":null},"l":[1,2]}`
	for patch, says := range map[string]string{
		`7`:                                                                  `is int, not an object with "op" and "path"`,
		`{"path":""}`:                                                        `"op" is missing`,
		`{"op":1}`:                                                           `"op" is int, not string`,
		`{"op":"Add","path":"/a","value":1}`:                                 `"op" is "Add", not add, remove`,
		`{"op":"add","value":1}`:                                             `add: "path" is missing`,
		`{"op":"add","path":null,"value":1}`:                                 `add: "path" is null, not string`,
		`{"op":"add","path":"/x"}`:                                           `add "/x": "value" is missing`,
		`{"op":"add","path":"/x","Value":1}`:                                 `add "/x": "value" is missing`,
		`{"op":"test","path":"/x"}`:                                          `test "/x": "value" is missing`,
		`{"op":"move","path":"/x"}`:                                          `move "/x": "from" is missing`,
		`{"op":"copy","path":"/x","from":3}`:                                 `copy "/x": "from" is int, not string`,
		`{"op":"add","path":"x","value":1}`:                                  `add "x": "x" is no JSON Pointer: it does not begin with /`,
		`{"op":"add","path":"/~2","value":1}`:                                `"/~2" is no JSON Pointer: ~ is written ~0`,
		`{"op":"remove","path":"/a~"}`:                                       `"/a~" is no JSON Pointer`,
		`{"op":"add","path":"/x/y","value":1}`:                               `add "/x/y": nothing is at "/x"`,
		`{"op":"add","path":"/a/n/y","value":1}`:                             `add "/a/n/y": "/a/n" is null, not a map or list`,
		`{"op":"add","path":"/a/b/y","value":1}`:                             `"/a/b" is string, not a map or list`,
		`{"op":"add","path":"/a/b/y/z","value":1}`:                           `"/a/b" is string, not a map or list`,
		`{"op":"add","path":"/l/3","value":1}`:                               `add "/l/3": the list "/l" has 2 elements`,
		`{"op":"add","path":"/l/01","value":1}`:                              `"01" is no element of the list "/l"`,
		`{"op":"add","path":"/l/x","value":1}`:                               `"x" is no element of the list "/l"`,
		`{"op":"add","path":"","value":[]}`:                                  `is list, not a map`,
		`{"op":"replace","path":"/l/2","value":1}`:                           `replace "/l/2": the list "/l" has 2 elements`,
		`{"op":"replace","path":"/l/-","value":1}`:                           `"-" is no element of the list "/l"`,
		`{"op":"replace","path":"/x","value":1}`:                             `replace "/x": nothing is at "/x"`,
		`{"op":"remove","path":""}`:                                          `the object as a whole`,
		`{"op":"remove","path":"/x"}`:                                        `remove "/x": nothing is at "/x"`,
		`{"op":"remove","path":"/l/2"}`:                                      `the list "/l" has 2 elements`,
		`{"op":"remove","path":"/l/-1"}`:                                     `"-1" is no element`,
		`{"op":"move","from":"/x","path":"/y"}`:                              `move "/y": nothing is at "/x"`,
		`{"op":"move","from":"/a","path":"/a/c"}`:                            `a value does not move into itself`,
		`{"op":"move","from":"","path":"/c"}`:                                `a value does not move into itself`,
		`{"op":"move","from":"/l/0","path":"/l/2"}`:                          `the list "/l" has 1 elements`,
		`{"op":"copy","from":"/l/5","path":"/y"}`:                            `copy "/y": the list "/l" has 2 elements`,
		`{"op":"test","path":"/a/b","value":"other"}`:                        `test "/a/b": the value there is another one`,
		`{"op":"test","path":"/a/b/c","value":"other"}`:                      `"/a/b" is string, not a map or list`,
		`{"op":"test","path":"/a/n","value":0}`:                              `test "/a/n": the value there is another one`,
		`{"op":"test","path":"/l","value":[2,1]}`:                            `test "/l": the value there is another one`,
		`{"op":"test","path":"/a/absent","value":null}`:                      `test "/a/absent": nothing is at "/a/absent"`,
		`{"op":"test","path":"/` + strings.Repeat("k", 200) + `","value":1}`: strings.Repeat("k", 100),
	} {
		doc := document.New()
		doc.Reset(decodeJSON(t, object).(map[string]any))
		err := doc.Patch(decodeJSON(t, patch))
		if err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 500 {
			t.Errorf("%s: %v, want %q", patch, err, says)
		}
	}
}

// TestPatchKeepsWhatItDoesNotTouch checks that a patch does not change other values, and that writing an equal value
// is not an edit.
func TestPatchKeepsWhatItDoesNotTouch(t *testing.T) {
	const text = `{"spec":{"quota":9223372036854775807,"id":9007199254740993,"ratio":0.1,"big":1e21,"list":[9007199254740993]},"labels":{"a":"1"}}`
	object := decodeJSON(t, text).(map[string]any)
	doc := document.New()
	require.NoError(t, applyPatch(doc, object, decodeJSON(t, `[
		{"op":"add","path":"/labels/team","value":"x"},
		{"op":"replace","path":"/labels/a","value":"1"},
		{"op":"add","path":"/spec","value":{"quota":9223372036854775807,"id":9007199254740993,"ratio":0.1,"big":1e21,"list":[9007199254740993]}},
		{"op":"move","from":"/spec/id","path":"/spec/moved"},
		{"op":"copy","from":"/spec/list","path":"/spec/copied"}]`).([]any)))
	var edits []string
	doc.Edits(func(e document.Edit) bool {
		edits = append(edits, e.Path.String())
		return true
	})
	require.ElementsMatch(t, []string{"labels.team", "spec.id", "spec.moved", "spec.copied"}, edits)
	got := string(document.Of(any(doc.Value())).AppendJSON(nil))
	require.Equal(t, `{"labels":{"a":"1","team":"x"},"spec":{"big":1e+21,"copied":[9007199254740993],"list":[9007199254740993],"moved":9007199254740993,"quota":9223372036854775807,"ratio":0.1}}`, got)
}

// TestPatchIsLimited checks that operations cannot exceed the limit of written bytes by copying values, nor the limit
// of nodes by adding list elements, and that they count as work.
func TestPatchIsLimited(t *testing.T) {
	for name, c := range map[string]struct {
		operation string
		code      document.Code
	}{
		"bytes": {`{"op":"copy","from":"","path":"/x"}`, document.TooManyBytes},
		"nodes": {`{"op":"add","path":"/list/0","value":1}`, document.TooManyNodes},
	} {
		doc := document.New()
		doc.Reset(map[string]any{"list": []any{}})
		doc.SetBudget(1000, 100_000)
		operation, n := decodeJSON(t, c.operation), 0
		var err error
		for ; err == nil && n < 100_000; n++ {
			err = doc.Patch(operation)
		}
		var e *document.Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, c.code, e.Code, "%s: %v after %d", name, err, n)
		require.Positive(t, doc.TakeWork(), name)
	}
}

// patchWriter generates random patches, mostly of existing values, for objects with few keys.
type patchWriter struct{ random *rand.Rand }

func (w *patchWriter) value(depth int) any {
	switch n := w.random.IntN(8); {
	case n < 2 && depth > 0:
		m := map[string]any{}
		for range w.random.IntN(4) {
			m[w.key()] = w.value(depth - 1)
		}
		return m
	case n < 4 && depth > 0:
		l := []any{}
		for range w.random.IntN(4) {
			l = append(l, w.value(depth-1))
		}
		return l
	case n == 4:
		return w.key()
	case n == 5:
		return nil
	}
	return int64(w.random.IntN(3))
}

func (w *patchWriter) key() string {
	return []string{"a", "b", "c", "0", "1", "a/b", "~"}[w.random.IntN(7)]
}

func (w *patchWriter) path() string {
	var b strings.Builder
	for range w.random.IntN(4) {
		k := w.key()
		if w.random.IntN(8) == 0 {
			k = "-"
		}
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k))
	}
	return b.String()
}

func (w *patchWriter) operation() map[string]any {
	o := map[string]any{"path": w.path()}
	switch o["op"] = []string{"add", "add", "remove", "replace", "move", "copy", "test"}[w.random.IntN(7)]; o["op"] {
	case "add", "replace", "test":
		o["value"] = w.value(2)
	case "move", "copy":
		o["from"] = w.path()
	}
	return o
}

// checkAgainstLibrary applies the operations of a patch one by one, and compares the result, or the operation that
// fails, with a library that works on JSON text.
func checkAgainstLibrary(t *testing.T, object map[string]any, operations []any) {
	t.Helper()
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false
	pristine := decodeJSON(t, mustJSON(t, object))
	doc := document.New()
	doc.Reset(object)
	text := mustJSON(t, object)
	for _, operation := range operations {
		patch, err := jsonpatch.DecodePatch([]byte(mustJSON(t, []any{operation})))
		require.NoError(t, err)
		want, theirs := patch.ApplyWithOptions([]byte(text), options)
		ours := doc.Patch(operation)
		if isLenient(operation) {
			return
		}
		if (ours == nil) != (theirs == nil) {
			t.Fatalf("%s of %s: %v, the library says %v", mustJSON(t, operation), text, ours, theirs)
		}
		if ours != nil {
			break
		}
		if diff := cmp.Diff(decodeJSON(t, string(want)), any(doc.Value())); diff != "" {
			t.Fatalf("%s of %s: %s", mustJSON(t, operation), text, diff)
		}
		text = string(want)
	}
	require.Empty(t, cmp.Diff(pristine, any(object)), "the base was modified")
}

// isLenient reports whether the library treats an operation differently than the RFC.
func isLenient(operation any) bool {
	o := operation.(map[string]any)
	path, _ := o["path"].(string)
	from, _ := o["from"].(string)
	if value, given := o["value"]; o["op"] == "test" && given && value == nil {
		// The results cannot be compared, because the library does not distinguish null from a missing value.
		return true
	}
	return path == "" || from == "" && (o["op"] == "move" || o["op"] == "copy") || o["op"] == "move" && strings.HasPrefix(path, from)
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func TestPatchAgreesWithLibrary(t *testing.T) {
	for seed := range uint64(4_000) {
		w := &patchWriter{rand.New(rand.NewPCG(seed, 1))}
		object := map[string]any{"a": w.value(3), "b": w.value(2), "0": []any{w.value(1), w.value(1)}}
		var operations []any
		for range 1 + w.random.IntN(6) {
			operations = append(operations, w.operation())
		}
		checkAgainstLibrary(t, object, operations)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzPatch checks that after arbitrary JSON was applied as a patch, even with an error, the Document is valid and
// the cached object is unchanged.
func FuzzPatch(f *testing.F) {
	f.Add(`{"a":{"b":[1,2]},"l":["x"]}`, `[{"op":"add","path":"/a/b/0","value":3},{"op":"move","from":"/a/b","path":"/l/-"},{"op":"copy","from":"","path":"/x"}]`)
	f.Add(`{"a":9007199254740993}`, `[{"op":"test","path":"/a","value":9007199254740993},{"op":"remove","path":"/a"},{"op":"replace","path":"","value":{}}]`)
	f.Add(`{}`, `[{"op":"add","path":"/~0~1","value":null},{"op":"replace","path":"/~0~1","value":[[]]},{"op":"add","path":"/~0~1/0/-","value":1e3}]`)
	f.Fuzz(func(t *testing.T, objectText, patchText string) {
		var object, pristine map[string]any
		var operations []any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(objectText), &object) != nil || kjson.UnmarshalCaseSensitivePreserveInts([]byte(patchText), &operations) != nil {
			t.Skip()
		}
		_ = kjson.UnmarshalCaseSensitivePreserveInts([]byte(objectText), &pristine)
		doc := document.New()
		doc.Reset(object)
		doc.SetBudget(1000, 1<<16)
		for _, operation := range operations {
			if doc.Patch(operation) != nil {
				break
			}
			// The value must equal its encoding, and itself.
			text := doc.Root().View().AppendJSON(nil)
			if value := document.Of(any(doc.Value())); doc.Value() != nil && (string(value.AppendJSON(nil)) != string(text) || !doc.Root().View().Equal(value)) {
				t.Fatalf("%s is built as %s", text, value.AppendJSON(nil))
			}
		}
		doc.Edits(func(document.Edit) bool { return true })
		if !reflect.DeepEqual(object, pristine) {
			t.Fatal("the base was modified")
		}
		doc.Rollback()
		if !reflect.DeepEqual(doc.Value(), pristine) && pristine != nil {
			t.Fatal("edits are left")
		}
	})
}
