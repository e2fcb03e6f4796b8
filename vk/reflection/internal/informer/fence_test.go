// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// storing defines which objects the API server of an informer stores, as pairs of name and version.
func (i *Informer) storing(now string, objects ...string) {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: now}}
	for n := 0; n < len(objects); n += 2 {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: objects[n], ResourceVersion: objects[n+1]}})
	}
	i.stored = func(context.Context) (*metav1.PartialObjectMetadataList, error) { return list, nil }
}

func behind(t *testing.T, f *Fence, want string) {
	t.Helper()
	object, err := f.Behind(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, object)
}

func TestFence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		shown, stored []string
		want          string
		later         []string // objects that the watch adds
		gone          string   // object whose deletion the watch delivers
	}{
		"nothing at all":              {},
		"as it is stored":             {shown: []string{"a", "9"}, stored: []string{"a", "9"}},
		"newer, and of another width": {shown: []string{"a", "10"}, stored: []string{"a", "9"}},
		"older":                       {shown: []string{"a", "9"}, stored: []string{"a", "10"}, want: "shop/a", later: []string{"a", "10"}},
		"not seen yet":                {stored: []string{"a", "9"}, want: "shop/a", later: []string{"a", "9"}},
		"deleted":                     {shown: []string{"a", "9"}, want: "shop/a", gone: "a"},
		"made after the list":         {shown: []string{"a", "101"}},
		"not a number":                {shown: []string{"a", "x"}, stored: []string{"a", "y"}, want: "shop/a", later: []string{"a", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInformer(t, Options{Selection: Selection{Namespace: "shop"}})
			put := func(objects []string) {
				for n := 0; n < len(objects); n += 2 {
					require.NoError(t, i.Put(object(objects[n], objects[n+1])))
				}
			}
			put(test.shown)
			i.storing("100", test.stored...)
			f := i.Fence()
			behind(t, f, test.want)
			behind(t, f, test.want)
			put(test.later)
			if test.gone != "" {
				require.NoError(t, (*store)(i).Delete(&unstructured.Unstructured{Object: object(test.gone, "9").Object}))
			}
			behind(t, f, "")
		})
	}
}

// TestFenceDoesNotMove checks that the informer of a busy API server passes a fence, because only the objects that were
// stored at the fence are considered.
func TestFenceDoesNotMove(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Selection: Selection{Namespace: "shop"}})
	require.NoError(t, i.Put(object("busy", "1")))
	require.NoError(t, i.Put(object("ends", "1")))
	i.storing("10", "busy", "5", "ends", "6", "short", "7")
	f := i.Fence()
	object1, err := f.Behind(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, object1)
	require.NoError(t, i.Put(object("busy", "5")))
	// The API server now stores only these two objects. The objects ends and short have been deleted.
	i.storing("20", "busy", "15", "new", "16")
	behind(t, f, "shop/ends")
	require.NoError(t, (*store)(i).Delete(object("ends", "18")))
	behind(t, f, "")
}

func TestFenceCannotBeRead(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{})
	i.stored = func(context.Context) (*metav1.PartialObjectMetadataList, error) { return nil, errors.New("no answer") }
	f := i.Fence()
	_, err := f.Behind(t.Context())
	require.ErrorContains(t, err, "listing configmaps, no answer")
	require.NoError(t, i.Put(object("a", "1")))
	i.storing("2", "a", "2")
	behind(t, f, "shop/a")
}
