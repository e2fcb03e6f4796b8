// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/breaker"
)

// listTimeout is the deadline of a list. Watches need no deadline: they end by themselves, and pings detect a dead
// connection.
const listTimeout = time.Minute

// Selection selects the objects to list and watch.
type Selection struct {
	Namespace, Labels, Fields string
}

// Source is a cluster whose objects are watched. If it has a Breaker, watches wait while the cluster is unreachable,
// and are resumed when it is reachable again.
type Source struct {
	Client   dynamic.Interface
	Metadata metadata.Interface // may be nil if no Fence is used
	Breaker  *breaker.Breaker
	Strings  *Strings
}

// observeLists makes a ListWatch call listed with the result of each list, and of each start of a watch.
func observeLists(source *cache.ListWatch, listed func(error)) {
	list, watched := source.ListWithContextFunc, source.WatchFuncWithContext
	source.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		found, err := list(ctx, o)
		listed(err)
		return found, err
	}
	source.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		started, err := watched(ctx, o)
		listed(err)
		return started, err
	}
}

// ListWatch returns a ListWatch for the selected objects. If the Source has a Breaker, requests wait until the cluster
// is reachable.
func (s *Source) ListWatch(resource schema.GroupVersionResource, selected Selection) *cache.ListWatch {
	of := s.Client.Resource(resource).Namespace(selected.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = selected.Labels, selected.Fields
			return onOwnStack(func() (runtime.Object, error) {
				return breaker.Do(ctx, s.Breaker, func() (runtime.Object, error) {
					ctx, cancel := context.WithTimeout(ctx, listTimeout)
					defer cancel()
					return of.List(ctx, o)
				})
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = selected.Labels, selected.Fields
			return onOwnStack(func() (watch.Interface, error) {
				return breaker.Do(ctx, s.Breaker, func() (watch.Interface, error) { return of.Watch(ctx, o) })
			})
		},
	}
}

// onOwnStack calls request in a separate goroutine, and returns its result. Requests need a large stack. The goroutine
// of a watch would keep such a stack for hours, because Go shrinks a stack only if less than a quarter of it is used.
// This matters because a virtual kubelet has ten watches per namespace.
func onOwnStack[T any](request func() (T, error)) (result T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = request()
	}()
	<-done
	return result, err
}
