// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
)

func wrapped(value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Wrapped", "metadata": map[string]any{"name": "a", "labels": map[string]any{"app": "shop"}},
		"spec":   map[string]any{"inner": map[string]any{"kept": "yes", "value": value}, "other": "field"},
		"status": map[string]any{"phase": "Ready"},
	}}
}

// TestTrimmedObjectsKeepTheirHash checks that an object that is cached without its content has the hash of the content,
// the fields to keep, and its status.
func TestTrimmedObjectsKeepTheirHash(t *testing.T) {
	t.Parallel()
	keep := func(content map[string]any) map[string]any { return map[string]any{"kept": content["kept"]} }
	for name, c := range map[string]struct {
		path []string
		keep func(map[string]any) map[string]any
		spec any
	}{
		"below a path":       {[]string{"spec", "inner"}, keep, map[string]any{"inner": map[string]any{"kept": "yes"}}},
		"at the top":         {nil, KeepNothing, nil},
		"a field at the top": {nil, func(content map[string]any) map[string]any { return map[string]any{"spec": content["spec"]} }, wrapped("a").Object["spec"]},
	} {
		trimmed := wrapped("a")
		trim := Trimmer(c.keep, c.path)
		trim(trimmed)
		assert.Equal(t, c.spec, trimmed.Object["spec"], name)
		assert.Equal(t, map[string]any{"phase": "Ready"}, trimmed.Object["status"], name)
		assert.Equal(t, Hash(wrapped("a"), c.path), Hash(trimmed, c.path), name)
		assert.NotEqual(t, Hash(wrapped("b"), c.path), Hash(trimmed, c.path), name)
		again := trimmed.DeepCopy()
		trim(again)
		assert.Equal(t, trimmed, again, "%s: an object is trimmed once", name)
	}
	assert.Nil(t, Trimmer(nil, nil))
	_, isTrimmed := DigestOf(wrapped("a"))
	assert.False(t, isTrimmed)
	forged := wrapped("a")
	forged.Object[digestField] = "1"
	_, isTrimmed = DigestOf(forged)
	assert.False(t, isTrimmed, "a field of an API server counts as the hash")
}

// TestIntentsAreFreeOfBookkeeping checks that labels and annotations that Refract itself writes do not change the hash
// of the intent.
func TestIntentsAreFreeOfBookkeeping(t *testing.T) {
	t.Parallel()
	intent := IntentHash(wrapped("a"))
	booked := wrapped("a")
	booked.SetAnnotations(map[string]string{wire.Bookkeeping()[0]: "written here"})
	assert.Equal(t, intent, IntentHash(booked))
	annotated := wrapped("a")
	annotated.SetAnnotations(map[string]string{"example.com/of": "a user"})
	assert.NotEqual(t, intent, IntentHash(annotated))
	assert.NotEqual(t, intent, IntentHash(wrapped("b")))
}

// TestFields checks that Merge, Set and RemoveField change only the given fields of an object.
func TestFields(t *testing.T) {
	t.Parallel()
	base := map[string]any{"a": "1", "b": "2"}
	assert.Equal(t, map[string]any{"b": "3", "c": "4"}, Merge(base, map[string]string{"b": "3", "c": "4"}, []string{"a"}))
	assert.Equal(t, map[string]any{"a": "1", "b": "2"}, base, "the base is shared")
	object := map[string]any{}
	Set(object, []string{"spec", "inner"}, "value")
	assert.Equal(t, map[string]any{"spec": map[string]any{"inner": "value"}}, object)
	listed := map[string]any{"ports": []any{map[string]any{"port": int64(1), "nodePort": int64(2)}, map[string]any{"port": int64(3)}}}
	RemoveField(listed, []string{"ports", "nodePort"})
	assert.Equal(t, map[string]any{"ports": []any{map[string]any{"port": int64(1)}, map[string]any{"port": int64(3)}}}, listed)
	RemoveField(listed, []string{"absent", "field"})
	assert.Len(t, listed, 1)
}
