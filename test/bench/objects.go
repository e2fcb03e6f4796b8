// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/figures"
	"github.com/refract-project/refract/test/support/lab"
)

// parallel is the number of concurrent requests that the benchmark sends.
const parallel = 8

// label is set on all objects of the benchmark. Other objects are not counted.
const label = "bench"

// ends returns a client for the objects of a kind, and a client for their copies.
func (b *bench) ends(k *kind) (sources, copies dynamic.ResourceInterface) {
	home, away := b.Consumer.Dynamic, b.Provider.Dynamic
	if k.plain != nil {
		alone := k.plain.Dynamic.Resource(k.source).Namespace(plainNamespace)
		return alone, alone
	}
	if k.back {
		return away.Resource(k.source).Namespace(remoteNamespace), home.Resource(k.copies()).Namespace(namespace)
	}
	return home.Resource(k.source).Namespace(namespace), away.Resource(k.copies()).Namespace(remoteNamespace)
}

func (b *bench) create(ctx context.Context, k *kind, name string) error {
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(k.content)}
	object.SetName(name)
	object.SetLabels(map[string]string{label: "yes"})
	object.SetAPIVersion(k.source.GroupVersion().String())
	object.SetKind(k.name)
	sources, _ := b.ends(k)
	_, err := sources.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// change changes one object.
func (b *bench) change(ctx context.Context, k *kind, name, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{"changed":%q}}}`, value)
	if k.change != nil {
		patch = k.change(value)
	}
	sources, _ := b.ends(k)
	_, err := sources.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// changeOf returns the value that the last change has set on an object.
func changeOf(object *unstructured.Unstructured) string {
	if message, ok := object.Object["message"].(string); ok {
		return message
	}
	return object.GetLabels()["changed"]
}

// hasChange returns a function that reports whether a copy has the given value.
func hasChange(value string) func(*unstructured.Unstructured) bool {
	return func(object *unstructured.Unstructured) bool { return changeOf(object) == value }
}

// ofOurs is a label selector for the copies of the benchmark's objects.
const ofOurs = wire.OriginLabel + "=" + lab.ConsumerID + "," + label + "=yes"

func (b *bench) delete(ctx context.Context, k *kind, name string) error {
	sources, _ := b.ends(k)
	return sources.Delete(ctx, name, metav1.DeleteOptions{})
}

// each calls do for the objects of a kind whose numbers are at least from and less than to.
func (b *bench) each(ctx context.Context, k *kind, from, to int, do func(context.Context, *kind, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(ctx, k, k.object(i)) })
	}
	return group.Wait()
}

// await waits until exactly n copies meet the condition holds. If holds is nil, all copies meet it. await uses a watch,
// because listing all objects repeatedly would affect the measurement.
func (b *bench) await(ctx context.Context, k *kind, n int, holds func(*unstructured.Unstructured) bool) error {
	_, copies := b.ends(k)
	selector := ofOurs
	if k.plain != nil {
		selector = label + "=yes"
	}
	found := map[string]bool{}
	return b.Wait(ctx, fmt.Sprintf("%d copies of kind %s", n, k.name), func(ctx context.Context) (string, error) {
		clear(found)
		list, err := copies.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return "", err
		}
		note := func(object *unstructured.Unstructured, gone bool) {
			delete(found, object.GetName())
			if !gone && (holds == nil || holds(object)) {
				found[object.GetName()] = true
			}
		}
		for i := range list.Items {
			note(&list.Items[i], false)
		}
		if len(found) == n {
			return "", nil
		}
		events, err := copies.Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return "", err
		}
		defer events.Stop()
		for event := range events.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Error {
				note(object, event.Type == watch.Deleted)
			}
			if len(found) == n {
				return "", nil
			}
		}
		return fmt.Sprintf("there are %d", len(found)), ctx.Err()
	})
}

// plainObjects creates Services without reflection, first in one cluster and then in both at the same time, and
// measures their updates.
func (b *bench) plainObjects(ctx context.Context) error {
	progress("%d Services, and updates, without reflection", b.services)
	if err := b.plainServicesOnce(ctx); err != nil {
		return err
	}
	var err error
	if b.plain.both.creation, err = b.plainServices(ctx, "the same in both clusters at once", b.Consumer, b.Provider); err != nil {
		return err
	}
	_, used := b.plain.both.creation.ratio(b.plain.creation)
	b.found("ratio to one, in processor time", "%.2f", used)
	configMap := *b.kinds()[1]
	configMap.plain = b.Consumer
	if err := b.created(ctx, &configMap); err != nil {
		return err
	}
	delays, err := b.updates(ctx, &configMap)
	if err != nil {
		return err
	}
	b.plain.slowestUpdates = percentile(delays, 99)
	return nil
}

// plainServicesOnce measures only the Services on the consumer.
func (b *bench) plainServicesOnce(ctx context.Context) error {
	c, err := b.plainServices(ctx, fmt.Sprintf("%d Services where nothing is reflected", b.services), b.Consumer)
	b.plain.creation = append(b.plain.creation, c)
	return err
}

// plainServices creates the Services in each of the given clusters, and then deletes them.
func (b *bench) plainServices(ctx context.Context, what string, sides ...*lab.Side) (c cost, err error) {
	all := make([]*kind, 0, len(sides))
	for _, side := range sides {
		services := *b.kinds()[0]
		services.plain = side
		all = append(all, &services)
	}
	b.found(what, "")
	if c.used, err = b.phase(ctx, func(ctx context.Context) error { return b.created(ctx, all...) }); err != nil {
		return c, err
	}
	for _, services := range all {
		if err := b.each(ctx, services, 0, services.count, b.delete); err != nil {
			return c, err
		}
	}
	_, err = b.settled(ctx)
	return c, err
}

// created creates all objects of the given kinds at the same time, and waits until their copies exist and all
// processes are done.
func (b *bench) created(ctx context.Context, kinds ...*kind) error {
	group, bounded := errgroup.WithContext(ctx)
	for _, k := range kinds {
		group.Go(func() error {
			if err := b.each(bounded, k, 0, k.count, b.create); err != nil {
				return err
			}
			return b.await(bounded, k, k.count, nil)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err := b.settled(ctx)
	return err
}

// reflected measures all kinds.
func (b *bench) reflected(ctx context.Context) error {
	for _, k := range b.kinds() {
		if err := b.createdAndChanged(ctx, k); err != nil {
			return err
		}
		if err := b.kubelet(); err != nil {
			return err
		}
	}
	return nil
}

// reflectedServices measures only Services.
func (b *bench) reflectedServices(ctx context.Context) error {
	return errors.Join(b.createdAndChanged(ctx, b.kinds()[0]), b.kubelet())
}

// createdAndChanged creates and then changes all objects of a kind, and records the cost.
func (b *bench) createdAndChanged(ctx context.Context, k *kind) error {
	progress("%d of kind %s", k.count, k.name)
	var writes []lab.Write
	var created, took time.Duration
	at := len(b.table.Figures)
	used, err := b.phase(ctx, func(ctx context.Context) (err error) {
		begun := time.Now()
		if err := b.each(ctx, k, 0, k.count, b.create); err != nil {
			return err
		}
		created = time.Since(begun)
		if err := b.await(ctx, k, k.count, nil); err != nil {
			return err
		}
		took = time.Since(begun)
		writes, err = b.settled(ctx)
		return err
	})
	if err != nil {
		return err
	}
	b.table.Figures = slices.Insert(b.table.Figures, at, figures.Figure{
		What:  fmt.Sprintf("%d of kind %s: created; all reflected", k.count, k.name),
		Value: fmt.Sprintf("%.1f s; %.2f times that", created.Seconds(), took.Seconds()/created.Seconds())})
	isService := k.name == b.kinds()[0].name
	if isService && b.compared() {
		if err := b.plainServicesOnce(ctx); err != nil {
			return err
		}
		reflected := cost{used: used}
		_, ratio := reflected.ratio(b.plain.creation)
		b.atMostTime("ratio to the mean of Services that are not reflected, in processor time", ratio, 2, "")
		b.againstBoth(reflected, b.plain.both.creation)
	}
	b.perObject(writes, k, "creation", k.onCreation)
	if isService {
		if err := b.memory(ctx); err != nil {
			return err
		}
	}
	err = b.each(ctx, k, 0, k.count, func(ctx context.Context, k *kind, name string) error { return b.change(ctx, k, name, "yes") })
	if err != nil {
		return err
	}
	if err := b.await(ctx, k, k.count, hasChange("yes")); err != nil {
		return err
	}
	if writes, err = b.settled(ctx); err != nil {
		return err
	}
	b.perObject(writes, k, "change", k.onChange)
	return nil
}

// perObject records the number of writes per object. Writes of Events are recorded separately, unless the objects
// themselves are Events.
func (b *bench) perObject(writes []lab.Write, k *kind, what string, goal float64) {
	n := 0
	if !k.back {
		n = events(writes)
		b.atMost(fmt.Sprintf("our Events per %s, %s", k.name, what), float64(n)/float64(k.count), 1, "")
	}
	b.atMost(fmt.Sprintf("our writes per %s, %s", k.name, what), float64(len(writes)-n)/float64(k.count), goal, "")
	if b.table.Figures[len(b.table.Figures)-1].Missed {
		b.tally(writes, 1)
	}
}

// copyOf returns the copy of an object, or nil if none exists.
func (b *bench) copyOf(ctx context.Context, k *kind, name string) (*unstructured.Unstructured, error) {
	_, copies := b.ends(k)
	object, err := copies.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
