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

// listTimeout is the deadline of one list. A watch ends by itself, and its pings detect a dead connection.
const listTimeout = time.Minute

// Selection selects objects.
type Selection struct {
	Namespace, Labels, Fields string
}

// Source is a cluster whose objects are watched. With a Breaker, watches wait while the cluster is unreachable, and
// resume at once when it is back.
type Source struct {
	Client   dynamic.Interface
	Metadata metadata.Interface // nil if no Fence is needed
	Breaker  *breaker.Breaker
	Strings  *Strings
}

// observeLists calls listed with the results of a ListWatch.
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

// ListWatch lists and watches a selection. With a Breaker, it does so only while the cluster is reachable.
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

// onOwnStack returns the result of request, which runs in its own goroutine. Requests nest deeply, and their stack
// would stay with the goroutine of the watch for hours: Go shrinks a stack only to four times the used size. A virtual
// kubelet has ten watches for each namespace.
func onOwnStack[T any](request func() (T, error)) (result T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = request()
	}()
	<-done
	return result, err
}
