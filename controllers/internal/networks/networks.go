// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package networks maps the addresses of other clusters to the addresses that this cluster uses for them.
//
// If the networks of two clusters overlap, Liqo's network module remaps the ranges of the other cluster, and publishes
// the mapping in a Configuration. This package watches Configurations. If the network module is not installed, the API
// server does not serve Configurations, and addresses are not mapped. Its installation is detected within a minute. An
// unknown mapping is an error that describes what is missing; an address is never guessed.
package networks

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/optionalapi"
)

// Everybody is passed to followers instead of a cluster ID. It means that the networks of all clusters may have
// changed.
const Everybody = ""

// Reasons why an address cannot be mapped. An incomplete or malformed Configuration causes other errors.
var (
	// ErrUnknown means that the cluster has no Configuration.
	ErrUnknown = errors.New("its network is not known here")
	// ErrOutside means that no pod range of the cluster contains the address.
	ErrOutside = errors.New("it is in no pod range of that cluster")
	// ErrForeign means that no range of the cluster contains the address.
	ErrForeign = errors.New("it is in no range of that cluster's Configuration")
	// ErrNotYet means that the Configurations have not been read yet.
	ErrNotYet = errors.New("they are being read")
)

// Networks watches the Configurations of this cluster. It is safe for concurrent use.
type Networks struct {
	informer cache.SharedIndexInformer
	heard    cache.ResourceEventHandlerRegistration
	// answered is closed when the Configurations have been read for the first time, or when an attempt to read them has
	// failed.
	answered chan struct{}
	close    func()

	mu        sync.RWMutex
	resource  state
	refusal   error              // error of the last attempt to read, or nil after a success
	networks  map[string]network // keyed by cluster ID
	followers []func(cluster string)

	seen            map[string]seenRanges // keyed by the namespace and name of the Configuration
	rangesFollowers []func()
	pending         *time.Timer // timer of the next notification of rangesFollowers, or nil if none is due
}

// state records whether this cluster serves Configurations.
type state int

const (
	unread state = iota
	served
	absent
)

// byCluster is the index of Configurations by cluster.
const byCluster = "cluster"

// New returns Networks that watch the Configurations in the cluster that config describes, after a manager has started
// them.
func New(config *rest.Config) (*Networks, error) {
	n := &Networks{answered: make(chan struct{}), networks: map[string]network{}, seen: map[string]seenRanges{}}
	n.close = sync.OnceFunc(func() { close(n.answered) })
	var err error
	n.informer, err = optionalapi.NewInformer(config, configurations, optionalapi.Options{Indexers: cache.Indexers{byCluster: indexByCluster}, Observe: n.note})
	if err != nil {
		return nil, err
	}
	n.heard, err = n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { n.changed(object) },
		// The two versions may belong to different clusters, so the networks of both clusters are updated.
		UpdateFunc: func(before, now any) { n.changed(before); n.changed(now) },
		DeleteFunc: func(object any) { n.changed(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the watch of Configurations, %w", err)
	}
	return n, nil
}

func indexByCluster(object any) ([]string, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return []string{u.GetLabels()[wire.RemoteClusterIDLabel]}, nil
	}
	return nil, nil
}

// Start watches Configurations until ctx is done. Replicas that are not the leader watch them, too.
func (n *Networks) Start(ctx context.Context) error {
	go func() {
		if cache.WaitFor(ctx, "", n.heard.HasSyncedChecker()) {
			n.close()
		}
	}()
	n.informer.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (n *Networks) NeedLeaderElection() bool { return false }

// Follow registers a function that is called with the ID of each cluster whose network has changed, or with Everybody.
// It must not block.
func (n *Networks) Follow(f func(cluster string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.followers = append(n.followers, f)
}

// awaitConfigurations waits until the Configurations have been read, or an attempt to read them has failed. remapped is
// false if this cluster has no network module, so that addresses are not remapped. It returns an error while the
// Configurations are unknown.
func (n *Networks) awaitConfigurations(ctx context.Context) (remapped bool, err error) {
	select {
	case <-n.answered:
	case <-ctx.Done():
		return false, fmt.Errorf("waiting for Configurations: %w", ErrNotYet)
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	switch {
	case n.resource == absent:
		return false, nil
	case n.resource == unread && n.refusal != nil:
		return false, fmt.Errorf("reading the Configurations of %s, %w", configurations.Group, n.refusal)
	case n.resource == unread || !n.heard.HasSynced():
		return false, fmt.Errorf("waiting for Configurations: %w", ErrNotYet)
	}
	return true, nil
}

// note records the result of an attempt to read the Configurations.
func (n *Networks) note(err error) {
	n.mu.Lock()
	before := n.resource
	n.refusal = err
	switch {
	case err == nil:
		n.resource = served
	case apierrors.IsNotFound(err):
		n.resource, n.refusal = absent, nil
	}
	changed := before != n.resource && before != unread
	if changed {
		n.scheduleRangesNotification()
	}
	n.mu.Unlock()
	if err != nil {
		n.close()
	}
	if changed {
		n.notify(Everybody)
	}
}

// changed updates the network of the cluster to which a Configuration belongs.
func (n *Networks) changed(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	n.updateSeen(u)
	cluster := u.GetLabels()[wire.RemoteClusterIDLabel]
	found, err := n.informer.GetIndexer().ByIndex(byCluster, cluster)
	if err != nil || cluster == "" {
		return
	}
	if n.set(cluster, found) {
		n.notify(cluster)
	}
}

// set updates the network of a cluster, and reports whether it has changed.
func (n *Networks) set(cluster string, found []any) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.networks[cluster]
	if len(found) == 0 {
		delete(n.networks, cluster)
		return known
	}
	now := readAll(found)
	n.networks[cluster] = now
	return !known || !reflect.DeepEqual(before, now)
}

// readAll reads the Configurations of a cluster. Several Configurations are an error, because they may contradict each
// other. However, if one of them is configured, the others are ignored. Otherwise anybody who may create Configurations
// in the tenant namespace of one cluster could cut off another cluster.
func readAll(found []any) network {
	if slices.ContainsFunc(found, isConfigured) {
		found = slices.DeleteFunc(slices.Clone(found), func(object any) bool { return !isConfigured(object) })
	}
	var names []string
	var last network
	for _, object := range found {
		u := object.(*unstructured.Unstructured)
		names = append(names, u.GetNamespace()+"/"+u.GetName())
		last = read(u)
	}
	if len(names) > 1 {
		slices.Sort(names)
		return network{fault: fmt.Errorf("choosing among the Configurations %q of one cluster: delete all but one", names)}
	}
	return last
}

func (n *Networks) notify(cluster string) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, f := range n.followers {
		f(cluster)
	}
}
