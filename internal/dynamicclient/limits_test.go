// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	ordinary = `{"apiVersion":"v1","kind":"Shadow","metadata":{"name":"a","uid":"u","labels":{"a":"b"}},"spec":{"pod":{"env":[{"name":"A"}],"n":1}},"status":{"phase":"Running"}}`
	identity = `{"apiVersion":"v1","kind":"Shadow","status":{"phase":"Running"},"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",` +
		`"generation":2,"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-02T00:00:00Z"`
)

// large returns an object with the given spec, and with labels of the given size.
func large(spec string, labelBytes int) string {
	return fmt.Sprintf(`%s,"labels":{"a":%q},"ownerReferences":[{"name":"o"}]},"spec":%s}`, identity, strings.Repeat("x", labelBytes), spec)
}

func TestLimits(t *testing.T) {
	options := Options{DropManagedFields: true, Text: []string{"spec"}, Limits: Limits{Bytes: 4000, Values: 100, MetadataBytes: 1000}}
	ours := negotiated{dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer, &parsers{options: options}}.SupportedMediaTypes()[0].Serializer
	managed := strings.Replace(ordinary, `"uid"`, `"managedFields":[{"manager":"`+strings.Repeat("x", 2000)+`"}],"uid"`, 1)
	documents := map[string]struct{ text, excess string }{
		"ordinary":          {ordinary, ""},
		"managed":           {managed, ""},
		"many values":       {large(`{"pod":[`+strings.Repeat("{},", 60)+`{}]}`, 1), "it has more than 100 values"},
		"large metadata":    {large(`{}`, 1200), "its metadata have more than 1000 bytes"},
		"many bytes":        {large(`{"pod":"`+strings.Repeat("x", 4000)+`"}`, 1), "it has more than 4000 bytes"},
		"ordinary, at last": {ordinary, ""}, // The same parser has parsed the objects above.
	}
	check := func(t *testing.T, object *unstructured.Unstructured, excess string) {
		t.Helper()
		assert.Equal(t, excess, Excess(object))
		if excess == "" {
			assert.Equal(t, `{"pod":{"env":[{"name":"A"}],"n":1}}`, object.Object["spec"])
			value, err := Value(object.Object["spec"].(string))
			require.NoError(t, err)
			assert.Equal(t, map[string]any{"pod": map[string]any{"env": []any{map[string]any{"name": "A"}}, "n": int64(1)}}, value)
			assert.Equal(t, map[string]string{"a": "b"}, object.GetLabels())
			assert.Empty(t, object.GetManagedFields())
			return
		}
		want := &unstructured.Unstructured{}
		require.NoError(t, want.UnmarshalJSON([]byte(identity+"}}")))
		want.Object[excessField] = excess
		assert.Empty(t, gocmp.Diff(want.Object, object.Object))
	}
	for name, document := range documents {
		t.Run(name, func(t *testing.T) {
			object, _, err := ours.Decode([]byte(document.text), nil, &unstructured.Unstructured{})
			require.NoError(t, err)
			check(t, object.(*unstructured.Unstructured), document.excess)
		})
		t.Run("list of "+name, func(t *testing.T) {
			text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ShadowList","metadata":{"resourceVersion":"9"},"items":[%s,%s]}`, document.text, ordinary)
			list := &unstructured.UnstructuredList{}
			_, kind, err := ours.Decode([]byte(text), nil, list)
			require.NoError(t, err)
			assert.Equal(t, "ShadowList", kind.Kind)
			assert.Equal(t, "9", list.GetResourceVersion())
			require.Len(t, list.Items, 2)
			check(t, &list.Items[0], document.excess)
			check(t, &list.Items[1], "")
		})
	}
}

// TestItemsOfListsHaveAKind checks that a list whose items have no kind is decoded in the same way as by client-go.
func TestItemsOfListsHaveAKind(t *testing.T) {
	theirs, _ := serializers()
	ours := negotiated{dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer, &parsers{options: Options{Limits: Limits{Bytes: 1 << 20}}}}.SupportedMediaTypes()[0].Serializer
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1","continue":"x"},"items":[{"metadata":{"name":"a"}}]}`,
		`{"apiVersion":"v1","kind":"PodList","items":[]}`, `{"apiVersion":"v1","kind":"PodList","items":null}`, `{"apiVersion":"v1","kind":"PodList"}`,
		`{"apiVersion":"v1","kind":"Status","code":404}`, `{"items":[]}`, `{`,
	} {
		want, got := &unstructured.UnstructuredList{}, &unstructured.UnstructuredList{}
		_, _, wantErr := theirs.Serializer.Decode([]byte(text), nil, want)
		_, _, gotErr := ours.Decode([]byte(text), nil, got)
		assert.Equal(t, wantErr == nil, gotErr == nil, "%s: %v, %v", text, wantErr, gotErr)
		if wantErr == nil {
			assert.Len(t, got.Items, len(want.Items), text)
			assert.Equal(t, want.GetContinue(), got.GetContinue(), text)
			assert.Equal(t, want.GroupVersionKind(), got.GroupVersionKind(), text)
			for i := range want.Items {
				assert.Empty(t, gocmp.Diff(want.Items[i].Object, got.Items[i].Object), text)
			}
		}
	}
}

// TestLongKeysAreForgotten checks that a parser does not remember long keys, because authors of objects choose the
// keys.
func TestLongKeysAreForgotten(t *testing.T) {
	p := &parsers{}
	for i := range 100 {
		_, err := p.parseObject(fmt.Appendf(nil, `{"%s%d":1}`, strings.Repeat("k", 1000), i))
		require.NoError(t, err)
	}
	known, _ := p.idle.Get().(*parser)
	if known != nil { // a sync.Pool may drop its objects at any time
		assert.Empty(t, known.keys)
	}
}
