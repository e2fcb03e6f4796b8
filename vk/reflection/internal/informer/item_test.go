// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

func (i *Informer) packedOnes(t *testing.T) (names []string) {
	t.Helper()
	for _, kept := range i.indexer.List() {
		if kept := kept.(*item); kept.object.Load() == nil {
			names = append(names, kept.Name)
		}
	}
	return names
}

func byVersion(kept any) ([]string, error) {
	return []string{kept.(*unstructured.Unstructured).GetResourceVersion()}, nil
}

func TestUnusedObjectsArePacked(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Selection: Selection{Namespace: "shop"}})
	require.NoError(t, i.Put(object("used", "1")))
	require.NoError(t, i.Put(object("unused", "1")))
	for range 3 {
		i.Pack()
		i.Get("shop", "used")
	}
	if packed := i.packedOnes(t); !reflect.DeepEqual(packed, []string{"unused"}) {
		t.Errorf("packed are %v, want the one that is not used", packed)
	}
	if i.All(); len(i.packedOnes(t)) != 1 {
		t.Error("listing all objects unpacks them for good")
	}
	want := object("unused", "1")
	DropManagedFields(want)
	for range 2 { // The first use unpacks the object, and the second use finds it unpacked.
		if got := i.Get("shop", "unused"); !reflect.DeepEqual(got, want) {
			t.Errorf("%v was kept as %v", want, got)
		}
	}
	if packed := i.packedOnes(t); packed != nil {
		t.Errorf("packed are %v, just used", packed)
	}
}

// TestPackedObjectsChangeLikeOthers checks that handlers and indexes get the same values whether or not an object was
// packed.
func TestPackedObjectsChangeLikeOthers(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Indexers: cache.Indexers{"version": byVersion}})
	var heard told
	i.OnEvent(heard.handle)
	rest := func() { i.Pack(); i.Pack() }
	require.NoError(t, i.Put(object("a", "1")))
	require.NoError(t, i.Put(object("b", "1")))
	rest()
	require.NoError(t, i.Put(object("a", "2")))
	rest()
	require.NoError(t, (*store)(i).Replace([]any{object("a", "2")}, ""))
	heard.want(t, "a ->1 false", "b ->1 false", "a 1>2 false", "b ->1 true")
	if len(i.By("version", "1")) != 0 || len(i.By("version", "2")) != 1 || len(i.In("shop")) != 1 {
		t.Errorf("the indexes show %v", i.All())
	}
	rest()
	require.NoError(t, (*store)(i).Delete(object("a", "2")))
	if len(i.By("version", "2")) != 0 || i.HasIn("shop") || i.Len() != 0 {
		t.Errorf("the indexes show %v after the end", i.All())
	}
}

func TestIndexesRefuseBadObjects(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Indexers: cache.Indexers{"version": func(any) ([]string, error) { return nil, fmt.Errorf("no version") }}})
	if err := i.Put(object("a", "1")); err == nil || !strings.Contains(err.Error(), "index version of shop/a, no version") {
		t.Errorf("the error is %v", err)
	}
}

// TestPackingWhileInUse packs, uses and replaces the objects of an informer concurrently. No object may be missing at
// any time. With the race detector, it also checks that accesses are synchronized.
func TestPackingWhileInUse(t *testing.T) {
	t.Parallel()
	i := newInformer(t, Options{Selection: Selection{Namespace: "shop"}})
	require.NoError(t, i.Put(object("a", "1")))
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for range 500 {
				switch n {
				case 0:
					i.Pack()
				case 1:
					if err := i.Put(object("a", "2")); err != nil {
						t.Error(err)
					}
				default:
					if got := i.Get("shop", "a"); got.GetUID() != "uid-a" || len(i.All()) != 1 {
						t.Errorf("object a is %v", got)
					}
				}
			}
		})
	}
	wg.Wait()
}
