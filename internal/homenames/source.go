// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Consumer describes the consumer whose names are resolved.
type Consumer struct {
	// ClusterID is the ID of the consumer's cluster.
	ClusterID string
	// TenantNamespace is the namespace with the NamespaceMap of the consumer.
	TenantNamespace string
	// Domain is the domain of the DNS of the consumer's cluster.
	Domain string
}

// Source provides the Names of a consumer. It follows the NamespaceMap.
type Source struct {
	consumer      Consumer
	clusterDomain string
	metrics       *Metrics
	cache         cache.Cache
	names         atomic.Pointer[Names]
	synced        chan struct{}
}

// NewSource returns a source that reads NamespaceMaps from the API server of config. It sends no request.
func NewSource(config *rest.Config, consumer Consumer, clusterDomain string, metrics *Metrics) (*Source, error) {
	scheme := runtime.NewScheme()
	if err := offloading.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{offloading.NamespaceMapKind, offloading.NamespaceMapKind + "List"} {
		mapper.AddSpecific(offloading.GroupVersion.WithKind(kind), offloading.GroupVersion.WithResource("namespacemaps"), offloading.GroupVersion.WithResource("namespacemap"), meta.RESTScopeNamespace)
	}
	maps, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, ReaderFailOnMissingInformer: true, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&offloading.NamespaceMap{}: {
			Namespaces: map[string]cache.Config{consumer.TenantNamespace: {}},
			// The namespace may also contain the map of the namespaces that this cluster offloads to the peer.
			Label: labels.SelectorFromSet(labels.Set{wire.OriginIDLabel: consumer.ClusterID}),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the cache of NamespaceMaps, %w", err)
	}
	return &Source{consumer: consumer, clusterDomain: clusterDomain, metrics: metrics, cache: maps, synced: make(chan struct{})}, nil
}

// Names returns the current names. It must not be called before Synced is closed.
func (s *Source) Names() *Names { return s.names.Load() }

// Synced returns a channel that is closed when the NamespaceMap has been read. While the API server is unreachable
// later, the last names remain in use.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Run follows the NamespaceMap until ctx is done. It returns an error if the first NamespaceMap cannot be used.
func (s *Source) Run(ctx context.Context) error {
	// Before the start of the cache, GetInformer does not wait for the API server.
	informer, err := s.cache.GetInformer(ctx, &offloading.NamespaceMap{})
	if err != nil {
		return fmt.Errorf("watching NamespaceMaps in namespace %s, %w", s.consumer.TenantNamespace, err)
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
	update := func(any) {
		// The former names remain in use.
		if err := s.update(ctx); err != nil && ctx.Err() == nil {
			slog.Error("The names of namespaces are not updated", "consumer", s.consumer.ClusterID, "err", err)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: update, UpdateFunc: func(_, new any) { update(new) }, DeleteFunc: update,
	}); err != nil {
		return fmt.Errorf("watching NamespaceMaps in namespace %s, %w", s.consumer.TenantNamespace, err)
	}
	return <-stopped
}

// update reads the NamespaceMap from the cache.
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
	return NewNames(s.consumer.Domain, s.clusterDomain, remote)
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
