// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"fmt"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// objects contains the caches of the objects that a process reads.
type objects struct {
	cache cache.Cache
	kinds []client.Object
	// changed receives a value when objects have changed.
	changed chan struct{}
	// synced is closed when all caches are filled.
	synced chan struct{}
}

// newObjects returns caches of the given kinds. It sends no requests, so that the process can start while the API
// server is unavailable.
func newObjects(config *rest.Config, kinds map[client.Object]cache.ByObject) (*objects, error) {
	scheme := newScheme()
	c, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: newMapper(), ByObject: kinds, ReaderFailOnMissingInformer: true,
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the caches, %w", err)
	}
	o := &objects{cache: c, changed: make(chan struct{}, 1), synced: make(chan struct{})}
	for kind := range kinds {
		o.kinds = append(o.kinds, kind)
	}
	return o, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme, networking.AddToScheme, ipam.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// newMapper returns a mapper with the resources of the kinds. client-go's mapper would read them from the API server,
// and would fail while the API server is unavailable.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(group schema.GroupVersion, kind, plural, singular string, scope meta.RESTScope) {
		// The cache also looks up the kinds of lists.
		for _, name := range []string{kind + "List", kind} {
			mapper.AddSpecific(group.WithKind(name), group.WithResource(plural), group.WithResource(singular), scope)
		}
	}
	add(corev1.SchemeGroupVersion, "Node", "nodes", "node", meta.RESTScopeRoot)
	add(corev1.SchemeGroupVersion, "Namespace", "namespaces", "namespace", meta.RESTScopeRoot)
	add(corev1.SchemeGroupVersion, "Pod", "pods", "pod", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Service", "services", "service", meta.RESTScopeNamespace)
	add(discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslices", "endpointslice", meta.RESTScopeNamespace)
	add(coordinationv1.SchemeGroupVersion, "Lease", "leases", "lease", meta.RESTScopeNamespace)
	add(networking.GroupVersion, "Configuration", "configurations", "configuration", meta.RESTScopeNamespace)
	add(networking.GroupVersion, "GatewayServer", "gatewayservers", "gatewayserver", meta.RESTScopeNamespace)
	add(networking.GroupVersion, "GatewayClient", "gatewayclients", "gatewayclient", meta.RESTScopeNamespace)
	add(networking.GroupVersion, "Connection", "connections", "connection", meta.RESTScopeNamespace)
	add(networking.GroupVersion, "PublicKey", "publickeies", "publickey", meta.RESTScopeNamespace)
	add(ipam.GroupVersion, "IP", "ips", "ip", meta.RESTScopeNamespace)
	return mapper
}

// run fills the caches, and keeps them up to date until ctx is done.
func (o *objects) run(ctx context.Context) error {
	for _, kind := range o.kinds {
		informer, err := o.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T, %w", kind, err)
		}
		notify := func() {
			select {
			case o.changed <- struct{}{}:
			default:
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		})
		if err != nil {
			return fmt.Errorf("watching %T, %w", kind, err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- o.cache.Start(ctx) }()
	if o.cache.WaitForCacheSync(ctx) {
		close(o.synced)
	}
	return <-ended
}

// followInputs sends an input when the caches are filled, and whenever it changes. Changes of objects that do not
// affect the input, such as the heartbeat of a node, are ignored. If build returns an error, nothing is sent, and the
// process continues with the last input.
func followInputs[T any](ctx context.Context, o *objects, again <-chan struct{}, build func(context.Context) (T, error), refused func(error), inputs chan<- T) error {
	select {
	case <-ctx.Done():
		return nil
	case <-o.synced:
	}
	var last T
	for sent := false; ; {
		input, err := build(ctx)
		switch {
		case err != nil:
			refused(err)
		case !sent || !reflect.DeepEqual(input, last):
			select {
			case <-ctx.Done():
				return nil
			case inputs <- input:
				last, sent = input, true
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.changed:
		case <-again:
		}
	}
}

// findOnly returns the only object in a list. If there is none, it returns nil. If there are several, it returns nil
// and a text for the user.
func findOnly[T any](kind, namespace, peer string, items []T) (*T, string) {
	switch len(items) {
	case 0:
		return nil, ""
	case 1:
		return &items[0], ""
	}
	const text = "%d objects of the kind %s in namespace %s have the label %s=%s: delete all but one of them"
	return nil, fmt.Sprintf(text, len(items), kind, namespace, wire.RemoteClusterIDLabel, peer)
}

// stripMetadata removes metadata that does not affect inputs, so that inputs can be compared. It returns the object.
func stripMetadata[T client.Object](object T) T {
	object.SetResourceVersion("")
	object.SetOwnerReferences(nil)
	object.SetAnnotations(nil)
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return object
}
