// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// flicker changes a slice as fast rollouts do, faster than the writes complete: it creates an empty slice, fills it a
// moment later, empties it, deletes it, and creates it again. Sometimes it also deletes the copy. It returns
// whether the slice exists at the end, and the address of its endpoint, or "" if it has none.
func (l *lab) flicker(name string, dice *rand.Rand, turns int) (exists bool, last string) {
	of, context := l.Local.Of("EndpointSlice", l.Namespace), l.Context()
	for range turns {
		address := fmt.Sprintf("10.1.%d.%d", dice.IntN(200), 1+dice.IntN(200))
		var err error
		switch what := dice.IntN(10); {
		case !exists:
			object := &unstructured.Unstructured{}
			if err = yaml.Unmarshal([]byte(slice(name, "web", address)), &object.Object); err != nil {
				break
			}
			object.SetNamespace(l.Namespace)
			object.Object["endpoints"] = []any{}
			_, err = of.Create(context, object, metav1.CreateOptions{})
			exists, last = true, ""
		case what < 5:
			patch := fmt.Sprintf(`{"endpoints": [{"addresses": [%q], "conditions": {"ready": true}}]}`, address)
			_, err = of.Patch(context, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			last = address
		case what < 7:
			_, err = of.Patch(context, name, types.MergePatchType, []byte(`{"endpoints": []}`), metav1.PatchOptions{})
			last = ""
		case what < 8:
			err = of.Delete(context, name, metav1.DeleteOptions{})
			exists, last = false, ""
		case what < 9:
			if err = l.Remote.Of("ShadowEndpointSlice", l.RemoteNS).Delete(context, name, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
				err = nil
			}
		default:
			time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
		}
		assert.NoErrorf(l, err, "%s", name)
	}
	return exists, last
}

// TestNothingIsLostInAHurry checks that after random changes, the provider has copies of exactly those slices that
// exist, with their last endpoint.
func TestNothingIsLostInAHurry(t *testing.T) {
	t.Parallel()
	for _, outages := range []bool{false, true} {
		t.Run(fmt.Sprintf("outages=%t", outages), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
				o.CallTimeout, o.Log = 2*time.Second, slog.New(slog.NewTextHandler(io.Discard, nil))
			})
			cable := l.ThroughCable()
			l.Local.Create(t, l.Namespace, service("web", ""))
			l.Start()
			seed := uint64(time.Now().UnixNano())
			const names, turns = 8, 100
			var wg sync.WaitGroup
			wanted, exist := make([]string, names), make([]bool, names)
			for i := range names {
				wg.Go(func() {
					exist[i], wanted[i] = l.flicker(fmt.Sprintf("web-%d", i), rand.New(rand.NewPCG(seed, uint64(i))), turns)
				})
			}
			ended := make(chan struct{})
			go func() { wg.Wait(); close(ended) }()
			for n := 0; outages; n++ {
				select {
				case <-ended:
					outages = false
				case <-time.After(time.Second):
					cable.SetCut(n%2 == 0)
				}
			}
			<-ended
			cable.SetCut(false)
			for i, address := range wanted {
				name := fmt.Sprintf("web-%d", i)
				switch {
				case !exist[i]:
					l.Absent(l.Remote, "ShadowEndpointSlice", l.RemoteNS, name)
					continue
				case address == "":
					l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, name, withEndpoints(0))
					continue
				}
				l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, name, func(o *unstructured.Unstructured) error {
					endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "endpoints")
					if len(endpoints) != 1 || fmt.Sprint(endpoints[0].(map[string]any)["addresses"]) != "["+address+"]" {
						return fmt.Errorf("the endpoints are %v, want %s", endpoints, address)
					}
					return nil
				})
			}
			t.Logf("%d evaluations, seed %d", l.Evaluated(), seed)
		})
	}
}
