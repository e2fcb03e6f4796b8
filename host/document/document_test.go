// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func pod() map[string]any {
	return map[string]any{
		"kind":     "Pod",
		"metadata": map[string]any{"name": "web", "labels": map[string]any{"app": "shop", "vendor.example.com/a": "1"}},
		"spec": map[string]any{
			"nodeName":   "milan",
			"containers": []any{map[string]any{"name": "c0", "image": "i0"}, map[string]any{"name": "c1", "image": "i1"}},
			"volumes":    []any{map[string]any{"name": "v", "secret": map[string]any{"secretName": "s"}}},
			"weights":    []any{int64(1), 2.5, nil, true},
		},
	}
}

func reset(root map[string]any) *Document {
	d := New()
	d.Reset(root)
	return d
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func TestUntouchedSubtreesAreShared(t *testing.T) {
	base := pod()
	d := reset(base)
	if got := d.Value(); reflect.ValueOf(got).Pointer() != reflect.ValueOf(base).Pointer() {
		t.Error("without an edit the value is not the base itself")
	}
	must[View](t)(d.Root().At("spec.volumes[0].secret.secretName"))
	must[Node](t)(d.Root().Get("spec.volumes[0].secret"))
	require.NoError(t, d.Root().SetString("spec.containers[1].image", "other"))
	got := d.Value()
	shared := func(path ...any) bool {
		a, b := any(base), any(got)
		for _, p := range path {
			if i, ok := p.(int); ok {
				a, b = a.([]any)[i], b.([]any)[i]
			} else {
				a, b = a.(map[string]any)[p.(string)], b.(map[string]any)[p.(string)]
			}
		}
		return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	for _, path := range [][]any{{"metadata"}, {"spec", "volumes"}, {"spec", "weights"}, {"spec", "containers", 0}} {
		if !shared(path...) {
			t.Errorf("%v was copied", path)
		}
	}
	for _, path := range [][]any{{"spec"}, {"spec", "containers"}, {"spec", "containers", 1}} {
		if shared(path...) {
			t.Errorf("%v is the base's although something in it was edited", path)
		}
	}
}

// TestBaseIsNeverModified checks, in particular under the race detector, that the base is not modified when many
// Documents edit it while other goroutines read it.
func TestBaseIsNeverModified(t *testing.T) {
	base := pod()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			d := New()
			for n := range 200 {
				d.Reset(base)
				root := d.Root()
				err := errors.Join(
					root.SetString("metadata.labels.worker", fmt.Sprint(worker, n)),
					root.SetInt("spec.weights[0]", int64(n)),
					root.SetNull("spec.volumes.-"),
					root.Assign("spec.containers[0]", map[string]any{"name": "c0", "env": []any{}}),
				)
				if _, removeErr := root.Remove("spec.nodeName\nspec.containers.*.image"); err != nil || removeErr != nil {
					t.Error(err, removeErr)
				}
				value := d.Value()
				// This must be permitted, because the caller owns the first level of the map.
				value["mine"] = worker
				if !reflect.DeepEqual(base, pod()) {
					t.Error("the base was modified")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	base, d := pod(), New()
	steps := map[string]func() error{
		"reads": func() error {
			v, err := d.Root().At("spec.containers[1].image")
			if s, _ := v.Text(); s != "i1" {
				t.Errorf("image %q", s)
			}
			return err
		},
		"places":  func() error { _, err := d.Root().Get("spec.containers[1]"); return err },
		"strings": func() error { return d.Root().SetString("metadata.annotations[x/y]", "value") },
		"numbers": func() error { return d.Root().SetInt("spec.priority", 7) },
		"removals": func() error {
			_, err := d.Root().Remove("spec.nodeName\nspec.containers.*.image\nspec.none")
			return err
		},
		"globs":      func() error { _, err := d.Root().RemoveKeysGlob("metadata.labels", "vendor.*", ""); return err },
		"hash":       func() error { d.Hash(); return nil },
		"comparison": func() error { Covers(d.Root(), base); return nil },
		"edits":      func() error { d.Edits(func(Edit) bool { return true }); return nil },
	}
	for name, step := range steps {
		run := func() {
			d.Reset(base)
			assert.NoError(t, errors.Join(d.Root().SetBool("spec.first", true)))
			assert.NoError(t, step())
		}
		run()
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestErrors(t *testing.T) {
	d := reset(pod())
	d.Mount(ContextRoot, map[string]any{"m": map[string]any{}})
	d.SetBudget(100, 1000)
	root := d.Root()
	context, _ := d.Node(ContextRoot, 0)
	gone := must[Node](t)(root.Get("spec.volumes[0]"))
	require.NoError(t, must[Node](t)(root.Get("spec.volumes")).RemoveElem(0))
	failing := func(f func() error) error { return f() }
	for name, c := range map[string]struct {
		err  error
		code Code
	}{
		"malformed":     {root.SetInt("a..b", 1), BadPath},
		"open bracket":  {root.SetInt("a[b", 1), BadPath},
		"stray bracket": {root.SetInt("a]b", 1), BadPath},
		"text behind":   {root.SetInt("a[b]c", 1), BadPath},
		"dot at end":    {root.SetInt("a.", 1), BadPath},
		"wildcard":      {root.SetInt("a.*", 1), BadPath},
		"long":          {root.SetInt(strings.Repeat("k", 1025), 1), BadPath},
		"scalar":        {root.SetInt("kind.x", 1), BadKind},
		"index":         {root.SetInt("spec.containers[7].x", 1), BadIndex},
		"no number":     {root.SetInt("spec.containers.x", 1), BadIndex},
		"NaN":           {root.SetFloat("x", math.NaN()), BadValue},
		"UTF-8":         {root.SetString("x", "\xff"), BadValue},
		"read-only":     {context.SetInt("x", 1), ReadOnly},
		"removed":       {gone.SetInt("x", 1), Gone},
		"absent":        {Node{}.SetInt("x", 1), Gone},
		"Go type":       {root.Assign("x", struct{}{}), BadValue},
		"root":          {root.Assign("", []any{}), BadKind},
		"bytes":         {root.SetString("x", strings.Repeat("x", 1001)), TooManyBytes},
		"depth": {failing(func() error {
			n, err := root.EnsureMap("deep")
			for err == nil {
				d.SetBudget(100, 1000)
				n, err = n.EnsureMap("d")
			}
			return err
		}), TooDeep},
		"nodes": {failing(func() error {
			d.SetBudget(5, 1000)
			for n := 0; ; n++ {
				if err := root.SetInt(fmt.Sprint("k", n), 1); err != nil {
					return err
				}
			}
		}), TooManyNodes},
		"work": {failing(func() error {
			d.SetWorkLimit(1)
			_, err := root.RemoveKeysGlob("metadata.labels", "*a*b*c*\n*d*\n*e*", "")
			return err
		}), TooMuchWork},
	} {
		var e *Error
		if !errors.As(c.err, &e) || e.Code != c.code || e.Error() == "" {
			t.Errorf("%s: %v, want code %d", name, c.err, c.code)
		}
	}
}

func TestPlaces(t *testing.T) {
	d := reset(pod())
	second := must[Node](t)(d.Root().Get("spec.containers[1]"))
	spec := must[Node](t)(d.Root().Get("spec"))
	require.NoError(t, must[Node](t)(d.Root().Get("spec.containers")).RemoveElem(0))
	require.NoError(t, second.SetString("image", "moved"))
	if v := must[View](t)(d.Root().At("spec.containers[0].image")); !v.Equal(Of("moved")) {
		t.Error("a node does not follow its element")
	}
	must[Node](t)(d.Root().SetMap("spec"))
	if spec.Len() != 0 || spec.Kind() != Map {
		t.Error("a node does not see the replacement")
	}
	if second.Kind() != Absent {
		t.Error("what was below a replaced map is still there")
	}
	must[int](t)(d.Root().Remove("spec"))
	if spec.Kind() != Absent {
		t.Error("a removed place is not absent")
	}
}

func TestNumbers(t *testing.T) {
	if !reset(map[string]any{"n": int64(2)}).Root().View().Equal(Of(map[string]any{"n": 2.0})) || Hash(int64(2)) != Hash(2.0) {
		t.Error("2 is not 2.0")
	}
	if Hash(2.5) == Hash(int64(2)) || reset(map[string]any{"n": 2.5}).Root().View().Equal(Of(map[string]any{"n": int64(2)})) {
		t.Error("2.5 is 2")
	}
	for f, want := range map[float64]string{0.000001: "0.000001", 1e-7: "1e-7", 1e21: "1e+21", 1.5: "1.5", -0.25: "-0.25"} {
		if got := string(Of(f).AppendJSON(nil)); got != want {
			t.Errorf("%v is %s", f, got)
		}
	}
}

// TestHashIsStable checks that hashes do not change, because they are stored in annotations and compared by later
// versions of the program.
func TestHashIsStable(t *testing.T) {
	if got, want := Hash(pod()), uint64(0x6fa71910b91836a4); got != want {
		t.Errorf("the hash changed: %#x, want %#x", got, want)
	}
}

func TestCovers(t *testing.T) {
	for name, c := range map[string]struct {
		have, remote any
		want         bool
	}{
		"equal":           {pod(), pod(), true},
		"defaulted":       {map[string]any{"a": int64(1)}, map[string]any{"a": int64(1), "b": "default"}, true},
		"missing":         {map[string]any{"a": nil}, map[string]any{}, false},
		"different":       {map[string]any{"a": "x"}, map[string]any{"a": "y"}, false},
		"element":         {map[string]any{"l": []any{map[string]any{}}}, map[string]any{"l": []any{map[string]any{"d": true}}}, true},
		"longer list":     {map[string]any{"l": []any{}}, map[string]any{"l": []any{"x"}}, false},
		"of another kind": {map[string]any{"a": []any{}}, map[string]any{"a": map[string]any{}}, false},
		"absent remote":   {map[string]any{"a": true}, nil, false},
	} {
		d := reset(c.have.(map[string]any))
		if got := Covers(d.Root(), c.remote); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		glob, s string
		want    bool
	}{
		{"", "", true}, {"*", "", true}, {"*", "anything/at.all", true}, {"a*", "b", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*.liqo.io/*", "offloading.liqo.io/x", true}, {"*a*b", "xaxb", true}, {"*a*b", "xaxbx", false}, {"[a]", "a", false},
	} {
		if Match(c.glob, c.s) != c.want {
			t.Errorf("%q %q: %t", c.glob, c.s, !c.want)
		}
	}
}

func BenchmarkDocument(b *testing.B) {
	base, d := pod(), New()
	edit := func() {
		d.Reset(base)
		_ = d.Root().SetString("spec.containers[1].image", "other")
	}
	b.Run("edit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			edit()
		}
	})
	b.Run("materialise", func(b *testing.B) {
		b.ReportAllocs()
		edit()
		for b.Loop() {
			d.Value()
		}
	})
	b.Run("hash", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Hash()
		}
	})
	b.Run("covers", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Covers(d.Root(), base)
		}
	})
}

// TestPathsThatBeginAlike checks that a path is read through the remembered map of the previous path only if whole
// segments are equal, and only until the next write.
func TestPathsThatBeginAlike(t *testing.T) {
	d := New()
	d.Reset(map[string]any{"ab": map[string]any{"x": "1"}, "abc": map[string]any{"x": "2"}, "ab.c": map[string]any{"x": "3"}})
	for _, step := range []struct{ path, want string }{
		{"ab[x]", "1"}, {"abc.x", "2"}, {"ab.x", "1"}, {"abc.x", "2"}, {"[ab.c].x", "3"}, {"ab.c.x", ""}, {"ab.x", "1"},
	} {
		v, err := d.Root().At(step.path)
		if got, _ := v.Text(); got != step.want || err != nil && step.want != "" {
			t.Errorf("%s reads %q (%v), want %q", step.path, got, err, step.want)
		}
	}
	require.NoError(t, d.Root().SetString("ab.x", "new"))
	if n, err := d.Root().Remove("abc.none\nabc.x\nabc.x\nab.none"); n != 1 || err != nil {
		t.Errorf("removed %d (%v), want 1", n, err)
	}
	if v, _ := d.Root().At("ab.x"); v.Value() != "new" {
		t.Errorf("ab.x reads %v after it was set", v.Value())
	}
	if v, _ := d.Root().At("abc.x"); v.Kind() != Absent {
		t.Errorf("abc.x reads %v after it was removed", v.Value())
	}
	d.Reset(map[string]any{"ab": map[string]any{"x": "other"}})
	if v, _ := d.Root().At("ab.x"); v.Value() != "other" {
		t.Errorf("ab.x reads %v in another object", v.Value())
	}
}

func TestGlobsKeepAPrefix(t *testing.T) {
	d := New()
	d.Reset(map[string]any{"labels": map[string]any{"sys/a": "1", "b": "2"}, "globs": []any{"*"}})
	if n, err := d.Root().RemoveKeysGlob("labels", "*", "sys/"); n != 1 || err != nil {
		t.Errorf("removed %d (%v), want 1", n, err)
	}
	if n, err := d.Root().RemoveKeysListed("labels", d.Root(), "globs", "sys/"); n != 0 || err != nil {
		t.Errorf("removed %d (%v), want none", n, err)
	}
	if n, err := d.Root().RemoveKeysListed("labels", d.Root(), "globs", ""); n != 1 || err != nil {
		t.Errorf("removed %d (%v), want 1", n, err)
	}
}

func TestLargeNumbers(t *testing.T) {
	const big = int64(1)<<53 + 1
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{big, float64(1 << 53), false}, {int64(1) << 53, float64(1 << 53), true}, {big, big, true}, {big, big - 1, false},
		{int64(1), 1.0, true}, {int64(1), 1.5, false}, {int64(math.MaxInt64), float64(math.MaxInt64), false}, {int64(math.MinInt64), float64(math.MinInt64), true},
	} {
		if got := Of(c.a).Equal(Of(c.b)); got != c.want || Of(c.b).Equal(Of(c.a)) != c.want {
			t.Errorf("%v = %v: %t", c.a, c.b, got)
		}
		if c.want && Hash(c.a) != Hash(c.b) {
			t.Errorf("%v and %v are equal but have two hashes", c.a, c.b)
		}
	}
}

func TestEnsureMapAppends(t *testing.T) {
	d := New()
	d.Reset(map[string]any{"list": []any{"x"}})
	n, err := d.Root().EnsureMap("list.-")
	require.NoError(t, err)
	require.NoError(t, n.SetBool("new", true))
	if want := map[string]any{"list": []any{"x", map[string]any{"new": true}}}; !reflect.DeepEqual(d.Value(), want) {
		t.Errorf("%v", d.Value())
	}
	if _, err := d.Root().EnsureMap("list.a-"); err == nil {
		t.Error("a key of a list is taken")
	}
}

// TestMemoryOfAnOutlierIsGivenBack checks that a Document frees the memory for a huge object when it is reused for
// small objects.
func TestMemoryOfAnOutlierIsGivenBack(t *testing.T) {
	d := New()
	list, keys := make([]any, 200_000), map[string]any{}
	for n := range 50_000 {
		keys["key-"+strconv.Itoa(n)] = "v"
	}
	d.Reset(map[string]any{"list": list, "keys": keys})
	_, err := d.Root().Remove("keys.*\nlist.0")
	require.NoError(t, err)
	require.NoError(t, d.Root().SetString("text", strings.Repeat("x", 1<<20)))
	d.Root().View().AppendJSON(nil)
	d.Reset(map[string]any{"small": true})
	kept := cap(d.nodes)*int(unsafe.Sizeof(node{})) + cap(d.arena) + cap(d.keys)*16
	for _, l := range d.lists {
		kept += 4 * cap(l)
	}
	if kept > 1<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// TestCopyOverZeroValues checks that a copy that replaces zero, an empty string or false is an edit.
func TestCopyOverZeroValues(t *testing.T) {
	for to, from := range map[string]any{"int": int64(25), "text": "x", "bool": true, "float": 0.5} {
		d := New()
		d.Reset(map[string]any{"int": int64(0), "text": "", "bool": false, "float": 0.0, "from": from, "list": []any{map[string]any{"int": int64(0), "text": "", "bool": false, "float": 0.0}}})
		for _, path := range []string{to, "list.0." + to} {
			src, err := d.Root().At("from")
			require.NoError(t, err)
			require.NoError(t, d.Root().Copy(path, src))
			if v, err := d.Root().At(path); err != nil || !v.Equal(src) {
				t.Errorf("%s: got %v, %v, want %v", path, v.Value(), err, from)
			}
		}
	}
}

// TestAppendingMakesTheList checks that every setter that appends to a list creates the list if it is missing. The
// key "-" of a map must be written in brackets, or must be a key of an existing map.
func TestAppendingMakesTheList(t *testing.T) {
	for name, set := range map[string]struct {
		with func(n Node, path string) error
		want any
	}{
		"SetString": {func(n Node, path string) error { return n.SetString(path, "x") }, "x"},
		"SetInt":    {func(n Node, path string) error { return n.SetInt(path, 1) }, int64(1)},
		"SetNull":   {func(n Node, path string) error { return n.SetNull(path) }, nil},
		"SetMap":    {func(n Node, path string) error { _, err := n.SetMap(path); return err }, map[string]any{}},
		"SetList":   {func(n Node, path string) error { _, err := n.SetList(path); return err }, []any{}},
		"EnsureMap": {func(n Node, path string) error { _, err := n.EnsureMap(path); return err }, map[string]any{}},
		"Assign":    {func(n Node, path string) error { return n.Assign(path, []any{"y"}) }, []any{"y"}},
		"Copy": {func(n Node, path string) error {
			source, err := n.At("source")
			if err != nil {
				return err
			}
			return n.Copy(path, source)
		}, map[string]any{"k": "v"}},
	} {
		for path, want := range map[string]any{
			"absent.-":   map[string]any{"absent": []any{set.want}},
			"null.-":     map[string]any{"null": []any{set.want}},
			"a.b.-":      map[string]any{"a": map[string]any{"b": []any{set.want}}},
			"list.-":     map[string]any{"list": []any{"one", set.want}},
			"absent.[-]": map[string]any{"absent": map[string]any{"-": set.want}},
			"map.-":      map[string]any{"map": map[string]any{"-": set.want}},
		} {
			object := map[string]any{"source": map[string]any{"k": "v"}, "null": nil, "list": []any{"one"}, "map": map[string]any{}}
			d := New()
			d.Reset(object)
			if err := set.with(d.Root(), path); err != nil {
				t.Errorf("%s(%s): %v", name, path, err)
				continue
			}
			result := d.Value()
			for key, value := range want.(map[string]any) {
				if !reflect.DeepEqual(result[key], value) {
					t.Errorf("%s(%s) made %s %#v, want %#v", name, path, key, result[key], value)
				}
			}
		}
	}
	d := New()
	d.Reset(map[string]any{"null": nil})
	for _, path := range []string{"absent.-.name", "null.-.name"} {
		if err := d.Root().SetString(path, "x"); err == nil {
			t.Errorf("%s leads through an element that is not there, and made %v", path, d.Value())
		}
	}
}

// TestWorkCountsRemovedEntries checks that removed entries of a map count as work each time they are visited.
func TestWorkCountsRemovedEntries(t *testing.T) {
	const entries = 10_000
	base := map[string]any{}
	for n := range entries {
		base[strconv.Itoa(n)] = "x"
	}
	for name, operation := range map[string]func(d *Document) error{
		"assign": func(d *Document) error { return d.Root().Assign("data", map[string]any{}) },
		"patch": func(d *Document) error {
			return d.Patch(map[string]any{"op": "replace", "path": "/data", "value": map[string]any{}})
		},
		"test": func(d *Document) error {
			return d.Patch(map[string]any{"op": "test", "path": "/data", "value": map[string]any{"k": "v"}})
		},
		"remove all": func(d *Document) error { _, err := d.Root().Remove("data.*"); return err },
		"glob":       func(d *Document) error { _, err := d.Root().RemoveKeysGlob("data", "*", ""); return err },
		"keys": func(d *Document) error {
			v, err := d.Root().At("data")
			v.Keys(nil)
			return err
		},
	} {
		d := New()
		d.Reset(map[string]any{"data": base})
		require.NoError(t, d.Root().Assign("data", map[string]any{}))
		require.NoError(t, d.Root().SetString("data.k", "v"))
		d.TakeWork()
		if err := operation(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if work := d.TakeWork(); work < workEntry*entries {
			t.Errorf("%s: %d units of work for going through %d entries", name, work, entries)
		}
	}
}
