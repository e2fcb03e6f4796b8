// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/homeaddress"
)

// Consumer describes the consumer whose names are resolved.
type Consumer struct {
	// ClusterID is the ID of the consumer's cluster.
	ClusterID string
	// TenantNamespace is the namespace with the NamespaceMap of the consumer.
	TenantNamespace string
	// Domain is the domain of the DNS of the consumer's cluster.
	Domain string
	// TranslatesAddresses is true if the nodes of this cluster translate the cluster IPs that Services have in the consumer's cluster.
	// Names of Services then have these addresses.
	TranslatesAddresses bool
}

// Source provides the Names of a consumer. It follows the NamespaceMap.
type Source struct {
	consumer      Consumer
	clusterDomain string
	metrics       *Metrics
	cache         cache.Cache
	kinds         []client.Object
	names         atomic.Pointer[Names]
	pods          atomic.Pointer[map[netip.Addr]bool] // addresses of the consumer's pods
	synced        chan struct{}
	// changed receives a value when objects have changed.
	changed chan struct{}
}

// NewSource returns a source that reads NamespaceMaps from the API server of config. It sends no request.
func NewSource(config *rest.Config, consumer Consumer, clusterDomain string, metrics *Metrics) (*Source, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(offloading.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{offloading.NamespaceMapKind, offloading.NamespaceMapKind + "List"} {
		mapper.AddSpecific(offloading.GroupVersion.WithKind(kind), offloading.GroupVersion.WithResource("namespacemaps"), offloading.GroupVersion.WithResource("namespacemap"), meta.RESTScopeNamespace)
	}
	kinds := map[client.Object]cache.ByObject{&offloading.NamespaceMap{}: {
		Namespaces: map[string]cache.Config{consumer.TenantNamespace: {}},
		// The namespace may also contain the map of the namespaces that this cluster offloads to the peer.
		Label: labels.SelectorFromSet(labels.Set{wire.OriginIDLabel: consumer.ClusterID}),
	}}
	if consumer.TranslatesAddresses {
		kinds[&corev1.Service{}] = cache.ByObject{Transform: shrinkService}
		offloaded := labels.SelectorFromSet(labels.Set{wire.ManagedByLabel: wire.ManagedByShadowPod})
		kinds[&corev1.Pod{}] = cache.ByObject{Label: offloaded, Transform: shrinkPod}
		group := corev1.SchemeGroupVersion
		for kind, resource := range map[string]string{"Service": "service", "ServiceList": "service", "Pod": "pod", "PodList": "pod"} {
			mapper.AddSpecific(group.WithKind(kind), group.WithResource(resource+"s"), group.WithResource(resource),
				meta.RESTScopeNamespace)
		}
	}
	objects, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, ReaderFailOnMissingInformer: true,
		DefaultTransform: cache.TransformStripManagedFields(), ByObject: kinds,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the caches of NamespaceMaps and Services, %w", err)
	}
	s := &Source{consumer: consumer, clusterDomain: clusterDomain, metrics: metrics, cache: objects,
		synced: make(chan struct{}), changed: make(chan struct{}, 1)}
	for kind := range kinds {
		s.kinds = append(s.kinds, kind)
	}
	return s, nil
}

// IsTranslated reports whether the client is a pod of the consumer whose address is in the API server. The node of the pod then has
// it, too, and translates. Before, the pod could not connect to the addresses of its own cluster.
func (s *Source) IsTranslated(client netip.Addr) bool {
	pods := s.pods.Load()
	return pods != nil && (*pods)[client]
}

// Names returns the current names. It must not be called before Synced is closed.
func (s *Source) Names() *Names { return s.names.Load() }

// Synced returns a channel that is closed when the NamespaceMap has been read. While the API server is unreachable
// later, the last names remain in use.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Run follows the NamespaceMap until ctx is done. It returns an error if the first NamespaceMap cannot be used.
func (s *Source) Run(ctx context.Context) error {
	for _, kind := range s.kinds {
		// Before the start of the cache, GetInformer does not wait for the API server.
		informer, err := s.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watching %T, %w", kind, err)
		}
		notify := func(any) {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: notify, UpdateFunc: func(_, new any) { notify(new) }, DeleteFunc: notify,
		}); err != nil {
			return fmt.Errorf("watching %T, %w", kind, err)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.cache.Start(ctx) }()
	if !s.cache.WaitForCacheSync(ctx) {
		return <-stopped
	}
	if err := s.update(ctx); err != nil {
		return err
	}
	close(s.synced)
	for {
		select {
		case err := <-stopped:
			return err
		case <-s.changed:
			// After an error, the former names remain in use.
			if err := s.update(ctx); err != nil && ctx.Err() == nil {
				slog.Error("The names of namespaces are not updated", "consumer", s.consumer.ClusterID, "err", err)
			}
		}
	}
}

// update reads the NamespaceMap and the Services from the caches.
func (s *Source) update(ctx context.Context) error {
	names, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.names.Store(names)
	s.metrics.namespaces.Set(float64(names.Len()))
	return nil
}

func (s *Source) read(ctx context.Context) (*Names, error) {
	list := &offloading.NamespaceMapList{}
	if err := s.cache.List(ctx, list, client.InNamespace(s.consumer.TenantNamespace)); err != nil {
		return nil, fmt.Errorf("listing NamespaceMaps, %w", err)
	}
	remote := map[string]string{}
	for i := range list.Items {
		maps.Copy(remote, acceptedNamespaces(&list.Items[i]))
	}
	names, err := NewNames(s.consumer.Domain, s.clusterDomain, remote)
	if err != nil || !s.consumer.TranslatesAddresses {
		return names, err
	}
	services, pods := &corev1.ServiceList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{services, pods} {
		if err := s.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T, %w", list, err)
		}
	}
	known := podAddresses(pods.Items, names)
	s.pods.Store(&known)
	return names.WithAddresses(addressesOf(services.Items, names)), nil
}

// addressesOf returns the addresses of the Services in the namespaces of the consumer. The newest Services come first.
func addressesOf(services []corev1.Service, names *Names) (addresses []ServiceAddress) {
	ordered := slices.Clone(services)
	slices.SortFunc(ordered, func(a, b corev1.Service) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	for i := range ordered {
		service := &ordered[i]
		home, ok := homeaddress.Of(service)
		if _, offloaded := names.homeNamespaces[service.Namespace]; !ok || !offloaded {
			continue
		}
		for _, text := range service.Spec.ClusterIPs {
			if cluster, err := netip.ParseAddr(text); err == nil && cluster.Is4() {
				addresses = append(addresses, ServiceAddress{Home: home, Cluster: cluster})
			}
		}
	}
	return addresses
}

// podAddresses returns the addresses of the consumer's pods.
func podAddresses(pods []corev1.Pod, names *Names) map[netip.Addr]bool {
	addresses := map[netip.Addr]bool{}
	for i := range pods {
		if _, offloaded := names.homeNamespaces[pods[i].Namespace]; !offloaded {
			continue
		}
		if address, ok := homeaddress.OfPod(&pods[i]); ok {
			addresses[address] = true
		}
	}
	return addresses
}

// shrinkPod removes everything that is not read from a pod before it is cached.
func shrinkPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return homeaddress.ShrinkPod(p), nil
}

// shrinkService removes everything that is not read from a Service before it is cached.
func shrinkService(object any) (any, error) {
	s, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	return homeaddress.ShrinkService(s), nil
}

// acceptedNamespaces returns the remote namespaces of a map by the namespaces of the consumer. The consumer writes the
// spec. Only the status, which this cluster writes, says which namespaces belong to the consumer.
func acceptedNamespaces(nm *offloading.NamespaceMap) map[string]string {
	accepted := map[string]string{}
	for home, status := range nm.Status.CurrentMapping {
		if status.Phase == offloading.MappingAccepted && status.RemoteNamespace != "" {
			accepted[lower(home)] = lower(status.RemoteNamespace)
		}
	}
	return accepted
}

// ReadResolvConf returns the addresses of the DNS servers of the pod with the given resolv.conf, with ports, and the
// domain of its cluster. The pod must have the DNS policy ClusterFirst.
func ReadResolvConf(path string) (servers []string, domain string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) < 2:
		case fields[0] == "nameserver":
			servers = append(servers, net.JoinHostPort(fields[1], "53"))
		case fields[0] == "search":
			if at := slices.IndexFunc(fields, func(field string) bool { return strings.HasPrefix(field, "svc.") }); at > 0 {
				domain = strings.TrimPrefix(fields[at], "svc.")
			}
		}
	}
	if len(servers) == 0 || domain == "" {
		return servers, domain, errors.New(path + " has no nameserver, or no search domain that begins with svc.: use the DNS policy ClusterFirst")
	}
	return servers, domain, nil
}
