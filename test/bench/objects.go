// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/lab"
)

// parallel is how many requests the benchmark itself has under way.
const parallel = 8

// kind is what of a kind the benchmark makes, and how many.
type kind struct {
	name           string
	source, target schema.GroupVersionResource
	count          int
	content        map[string]any // of each object, besides its metadata
	// ours are the writes of all our processes that one object takes at its creation and at a change: what the provider's
	// controllers make of the copy is one of them.
	ours float64
}

var services = corev1.SchemeGroupVersion.WithResource("services")

// kinds returns those that are reflected as they are; the first is the Service.
func (b *bench) kinds() []*kind {
	const few = 100
	core := func(resource string) schema.GroupVersionResource {
		return corev1.SchemeGroupVersion.WithResource(resource)
	}
	ports := []any{map[string]any{"name": "http", "port": int64(80)}}
	backend := map[string]any{"service": map[string]any{"name": "service-0000", "port": map[string]any{"name": "http"}}}
	endpoint := map[string]any{"addresses": []any{"10.244.250.1"}, "conditions": map[string]any{"ready": true}, "nodeName": "home-kwok-0"}
	return []*kind{
		{name: "Service", source: services, count: b.services, content: map[string]any{"spec": map[string]any{"ports": ports}}, ours: 1},
		{name: "ConfigMap", source: core("configmaps"), count: b.services, content: map[string]any{"data": map[string]any{"mode": "fast"}}, ours: 1},
		{name: "Secret", source: core("secrets"), count: b.services, content: map[string]any{"stringData": map[string]any{"key": "value"}}, ours: 1},
		{name: "Ingress", source: networkingv1.SchemeGroupVersion.WithResource("ingresses"), count: min(few, b.services), ours: 1,
			content: map[string]any{"spec": map[string]any{"defaultBackend": backend}}},
		{name: "EndpointSlice", source: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), target: offloadingv1beta1.ShadowEndpointSliceGVR, count: min(few, b.services), ours: 2,
			content: map[string]any{"addressType": "IPv4", "endpoints": []any{endpoint}, "ports": ports}},
	}
}

func (k *kind) copies() schema.GroupVersionResource {
	if k.target.Resource != "" {
		return k.target
	}
	return k.source
}

func (k *kind) object(i int) string { return fmt.Sprintf("%s-%04d", strings.ToLower(k.name), i) }

// label is on everything of the benchmark's, so that nobody else's objects are counted.
const label = "bench"

func (b *bench) create(ctx context.Context, k *kind, name string) error {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range k.content {
		object.Object[key] = value
	}
	object.SetName(name)
	object.SetLabels(map[string]string{label: "yes"})
	gvk := map[string]string{"Ingress": "networking.k8s.io/v1", "EndpointSlice": "discovery.k8s.io/v1"}[k.name]
	if gvk == "" {
		gvk = "v1"
	}
	object.SetAPIVersion(gvk)
	object.SetKind(k.name)
	_, err := b.Consumer.Dynamic.Resource(k.source).Namespace(namespace).Create(ctx, object.DeepCopy(), metav1.CreateOptions{})
	return err
}

// change changes one object by a label.
func (b *bench) change(ctx context.Context, k *kind, name, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{"changed":%q}}}`, value)
	_, err := b.Consumer.Dynamic.Resource(k.source).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (b *bench) delete(ctx context.Context, k *kind, name string) error {
	return b.Consumer.Dynamic.Resource(k.source).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// each does something with a range of the objects of a kind.
func (b *bench) each(ctx context.Context, k *kind, from, to int, do func(context.Context, *kind, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(ctx, k, k.object(i)) })
	}
	return group.Wait()
}

// await returns when the provider holds just n copies that match the selector.
func (b *bench) await(ctx context.Context, k *kind, n int, selector string) error {
	selectors := []string{wire.OriginLabel + "=" + lab.ConsumerID, label + "=yes"}
	if selector != "" {
		selectors = append(selectors, selector)
	}
	return b.Wait(ctx, fmt.Sprintf("%d copies of kind %s", n, k.name), func(ctx context.Context) (string, error) {
		list, err := b.Provider.Dynamic.Resource(k.copies()).Namespace(twin).List(ctx, metav1.ListOptions{LabelSelector: strings.Join(selectors, ",")})
		if err != nil {
			return "", err
		}
		if len(list.Items) != n {
			return fmt.Sprintf("there are %d", len(list.Items)), nil
		}
		return "", nil
	})
}

// reflected creates, and then changes, all objects of each kind, and counts what that took.
func (b *bench) reflected(ctx context.Context) error {
	for _, k := range b.kinds() {
		progress("%d of kind %s", k.count, k.name)
		begun := time.Now()
		if err := b.each(ctx, k, 0, k.count, b.create); err != nil {
			return err
		}
		created := time.Since(begun)
		if err := b.await(ctx, k, k.count, ""); err != nil {
			return err
		}
		b.found(fmt.Sprintf("%d of kind %s created, then all reflected", k.count, k.name), "%.1f s, then %.1f s", created.Seconds(), (time.Since(begun) - created).Seconds())
		if err := b.perObject(ctx, k, "creation"); err != nil {
			return err
		}
		err := b.each(ctx, k, 0, k.count, func(ctx context.Context, k *kind, name string) error { return b.change(ctx, k, name, "yes") })
		if err != nil {
			return err
		}
		if err := b.await(ctx, k, k.count, "changed=yes"); err != nil {
			return err
		}
		if err := b.perObject(ctx, k, "change"); err != nil {
			return err
		}
	}
	return nil
}

// perObject records the writes since the last count, those of Events apart.
func (b *bench) perObject(ctx context.Context, k *kind, what string) error {
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	n := events(writes)
	b.atMost(fmt.Sprintf("our writes per %s, %s", k.name, what), float64(len(writes)-n)/float64(k.count), k.ours, "")
	b.atMost(fmt.Sprintf("our Events per %s, %s", k.name, what), float64(n)/float64(k.count), 1, "")
	return nil
}

// copyOf returns the copy of an object, nil when there is none.
func (b *bench) copyOf(ctx context.Context, k *kind, name string) (*unstructured.Unstructured, error) {
	object, err := b.Provider.Dynamic.Resource(k.copies()).Namespace(twin).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
