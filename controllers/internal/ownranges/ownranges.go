// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownranges determines the addresses that belong to this cluster.
//
// A consumer must not be able to direct this cluster's traffic to the cluster's own pods, Services and nodes. On a
// provider, pods of consumers must not reach the provider's own pods. Administrators can configure the ranges
// (--own-cidrs). The ranges that the API server knows are added: the pod ranges and addresses of nodes, the ranges of
// Services (ServiceCIDRs, since Kubernetes 1.33), the cluster IPs of the Service kubernetes, and the addresses of the
// API server. If the network plugin does not use spec.podCIDRs of nodes, its ranges must be configured.
package ownranges

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
)

// refreshInterval is how often the ranges of Services and the addresses of the API server are read. They hardly ever
// change. Nodes are watched instead.
const refreshInterval = time.Minute

// notifyDelay is how long changes are collected until followers are notified.
const notifyDelay = 2 * time.Second

// ErrNotRead is returned until the ranges have been read for the first time.
var ErrNotRead = errors.New("the ranges of this cluster are being read")

// Ranges tracks the address ranges of this cluster. It is safe for concurrent use.
type Ranges struct {
	configured ipmap.Ranges
	reader     client.Reader
	nodes      cache.SharedIndexInformer

	mu sync.RWMutex
	// services and servers are nil until they have been read.
	services, servers []netip.Prefix
	// pods and addresses are the ranges and addresses of the nodes, by node name.
	pods, addresses map[string][]netip.Prefix
	known           ipmap.Ranges // union of all ranges
	synced          bool
	lastError       error // error of the last attempt to read, nil after a success
	followers       []func()
	pending         *time.Timer // timer of the next notification, or nil if no notification is due
}

// New returns Ranges that contain the configured ranges. After a manager has started them, they also contain the ranges
// that the API server knows. reader must not be cached.
func New(configured ipmap.Ranges, clientset kubernetes.Interface, reader client.Reader) (*Ranges, error) {
	r := &Ranges{configured: configured, reader: reader, pods: map[string][]netip.Prefix{}, addresses: map[string][]netip.Prefix{}}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithTransform(trimNode),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = wire.TypeLabel + "!=" + wire.VirtualNodeType }))
	r.nodes = factory.Core().V1().Nodes().Informer()
	_, err := r.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.setNode,
		UpdateFunc: func(_, node any) { r.setNode(node) },
		DeleteFunc: r.removeNode,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the watch of Nodes, %w", err)
	}
	return r, nil
}

// trimNode is a cache transform that removes everything except the ranges and addresses of a node.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}, nil
}

// Start keeps the ranges up to date until ctx is done.
func (r *Ranges) Start(ctx context.Context) error {
	go r.nodes.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), r.nodes.HasSynced) {
		return nil
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := r.read(ctx)
		r.mu.Lock()
		r.lastError = err
		r.mu.Unlock()
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot read the ranges of this cluster")
		}
	}, refreshInterval)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *Ranges) NeedLeaderElection() bool { return false }

// Follow registers a function that is called after the ranges have changed. It must not block.
func (r *Ranges) Follow(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followers = append(r.followers, f)
}

// All returns the ranges of pods, Services and nodes, and the addresses of the API server. If they are unknown, it
// returns an error, which is ErrNotRead before the first attempt to read them. The caller must not modify the result.
func (r *Ranges) All() (ipmap.Ranges, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case r.synced:
		return r.known, nil
	case r.lastError != nil:
		return nil, fmt.Errorf("the ranges of this cluster are unknown: %w", r.lastError)
	}
	return nil, ErrNotRead
}

// Nodes returns the real nodes, with their UIDs, addresses and pod ranges. The second result is false until all of them are known. The caller
// must not modify the nodes.
func (r *Ranges) Nodes() (nodes []*corev1.Node, isKnown bool) {
	if !r.nodes.HasSynced() {
		return nil, false
	}
	for _, object := range r.nodes.GetStore().List() {
		if node, ok := object.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
	}
	return nodes, true
}

// read reads the ranges of Services and the addresses of the API server.
func (r *Ranges) read(ctx context.Context) error {
	services, err := r.readServices(ctx)
	if err != nil {
		return err
	}
	servers, err := r.readServers(ctx)
	if err != nil {
		return err
	}
	r.change(func() {
		r.services, r.servers, r.synced = services, servers, true
	})
	return nil
}

func (r *Ranges) readServices(ctx context.Context) (ranges []netip.Prefix, err error) {
	all := &networkingv1.ServiceCIDRList{}
	err = r.reader.List(ctx, all)
	if err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("listing ServiceCIDRs, %w", err)
	}
	for i := range all.Items {
		ranges = appendPrefixes(ranges, all.Items[i].Spec.CIDRs)
	}
	kubernetes := &corev1.Service{}
	if err := r.reader.Get(ctx, apiServer, kubernetes); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Service %s, %w", apiServer, err)
	}
	return appendAddresses(ranges, kubernetes.Spec.ClusterIPs), nil
}

// apiServer is the key of the API server's Service, and of the EndpointSlice that the API server maintains for it.
var apiServer = client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

func (r *Ranges) readServers(ctx context.Context) (ranges []netip.Prefix, err error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := r.reader.Get(ctx, apiServer, slice); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting EndpointSlice %s, %w", apiServer, err)
	}
	for i := range slice.Endpoints {
		ranges = appendAddresses(ranges, slice.Endpoints[i].Addresses)
	}
	return ranges, nil
}

func (r *Ranges) setNode(object any) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	var addresses []netip.Prefix
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			addresses = appendAddresses(addresses, []string{address.Address})
		}
	}
	pods := appendPrefixes(nil, append(slices.Clone(node.Spec.PodCIDRs), node.Spec.PodCIDR))
	r.mu.RLock()
	same := slices.Equal(r.pods[node.Name], pods) && slices.Equal(r.addresses[node.Name], addresses)
	r.mu.RUnlock()
	if same {
		return // most updates to a Node change neither its ranges nor its addresses
	}
	r.change(func() { r.pods[node.Name], r.addresses[node.Name] = pods, addresses })
}

func (r *Ranges) removeNode(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if node, ok := object.(*corev1.Node); ok {
		r.change(func() { delete(r.pods, node.Name); delete(r.addresses, node.Name) })
	}
}

// change calls apply, and schedules a notification of the followers if the ranges have changed.
func (r *Ranges) change(apply func()) {
	r.mu.Lock()
	wasSynced := r.synced
	apply()
	if !r.synced { // the ranges are incomplete until read has succeeded
		r.mu.Unlock()
		return
	}
	all := slices.Concat(r.configured, r.services, r.servers)
	for _, byNode := range []map[string][]netip.Prefix{r.pods, r.addresses} {
		for _, ranges := range byNode {
			all = append(all, ranges...)
		}
	}
	before := r.known
	r.known = all.Summarize()
	changed := !wasSynced || !slices.Equal(before, r.known)
	if changed && r.pending == nil {
		// Notifications are delayed and combined, because many nodes may come and go at once, and each notification may
		// lead to a write in every namespace of a consumer.
		delay := notifyDelay
		if !wasSynced {
			delay = 0
		}
		r.pending = time.AfterFunc(delay, r.notify)
	}
	r.mu.Unlock()
}

func (r *Ranges) notify() {
	r.mu.Lock()
	followers := r.followers
	r.pending = nil
	r.mu.Unlock()
	for _, follow := range followers {
		follow()
	}
}

// appendPrefixes appends the valid CIDRs to ranges.
func appendPrefixes(ranges []netip.Prefix, cidrs []string) []netip.Prefix {
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			ranges = append(ranges, prefix.Masked())
		}
	}
	return ranges
}

// appendAddresses appends the valid addresses to ranges. Loopback addresses occur in test clusters. They are omitted,
// because they do not lead to another machine.
func appendAddresses(ranges []netip.Prefix, addresses []string) []netip.Prefix {
	for _, address := range addresses {
		if ip, err := netip.ParseAddr(address); err == nil && !ip.IsLoopback() {
			ip = ip.Unmap().WithZone("")
			ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return ranges
}
