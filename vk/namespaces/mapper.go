// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// InvalidReason is the reason of the Events about maps that make no sense.
const InvalidReason = "InvalidNamespaceMap"

// Handler is told what starts and stops. Calls come one at a time and must not block on the provider.
type Handler interface {
	StartNamespace(local, remote string)
	StopNamespace(local string)
	// NamespacesChanged is called after each change of the map, when the calls above are done.
	NamespacesChanged()
}

// Options of a Mapper; all but Log are required.
type Options struct {
	Client          dynamic.Interface // of this cluster
	TenantNamespace string
	RemoteClusterID string
	Handler         Handler
	Events          record.EventRecorder
	Log             *slog.Logger
	// Grace is how long the silence of a new map about a namespace means nothing: a map that was deleted and made
	// again is filled over time. 0 = one minute.
	Grace time.Duration
}

// Mapper follows the NamespaceMap. Safe for concurrent use.
type Mapper struct {
	options  Options
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration

	mu       sync.RWMutex
	known    bool // there is exactly one usable map
	table    table
	uid      types.UID            // of that map
	born     time.Time            // of that map
	spoken   map[string]types.UID // the map that named a namespace last
	running  map[string]string
	reported map[types.UID]string
}

// New prepares a mapper; Run makes it work.
func New(options Options) (*Mapper, error) {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.Grace == 0 {
		options.Grace = time.Minute
	}
	selector := labels.Set{wire.RemoteClusterIDLabel: options.RemoteClusterID}.String()
	informer := dynamicinformer.NewFilteredDynamicInformer(options.Client, offloadingv1beta1.NamespaceMapGVR, options.TenantNamespace, 0,
		cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
	m := &Mapper{options: options, informer: informer, running: map[string]string{}, reported: map[types.UID]string{}, spoken: map[string]types.UID{}}
	var err error
	m.handled, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { m.evaluate() },
		UpdateFunc: func(any, any) { m.evaluate() },
		DeleteFunc: func(any) { m.evaluate() },
	})
	if err != nil {
		return nil, fmt.Errorf("watching NamespaceMaps, %w", err)
	}
	return m, nil
}

// Run follows the map until ctx ends.
func (m *Mapper) Run(ctx context.Context) { m.informer.RunWithContext(ctx) }

// Synced reports whether the map has been read and acted upon.
func (m *Mapper) Synced() bool { return m.handled.HasSynced() }

// SyncedChecker is done when Synced.
func (m *Mapper) SyncedChecker() cache.DoneChecker { return m.handled.HasSyncedChecker() }

// Remote returns the twin of a running namespace.
func (m *Mapper) Remote(local string) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	remote, ok := m.running[local]
	return remote, ok
}

// Running returns the namespaces that are extended, each with its twin.
func (m *Mapper) Running() map[string]string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.running)
}

// State tells what is known about a namespace. Before the map has been read everything is Unknown.
func (m *Mapper) State(local string) State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case m.running[local] != "":
		return Mapped
	case !m.known || m.table.named[local] || !m.Synced():
		return Unknown
	case m.spoken[local] == m.uid || time.Since(m.born) > m.options.Grace:
		return NotOffloaded
	default:
		return Unknown
	}
}

// evaluate compares what the store holds now with what runs. The informer calls it from one goroutine.
func (m *Mapper) evaluate() {
	defer m.options.Handler.NamespacesChanged()
	object, absent := m.choose()
	if object == nil && !absent {
		m.mu.Lock()
		m.known = false
		m.mu.Unlock()
		return
	}
	next, known := table{}, false
	if object != nil {
		parsed, problems, err := parse(object)
		if err != nil {
			problems = []string{err.Error()}
		}
		m.report(object, problems)
		if err != nil {
			m.mu.Lock()
			m.known = false
			m.mu.Unlock()
			return
		}
		next, known = parsed, true
	}
	m.mu.Lock()
	m.table, m.known = next, known
	if object != nil {
		m.remember(object, next)
	}
	todo := diff(m.running, next)
	for _, local := range todo.stop {
		delete(m.running, local)
	}
	maps.Copy(m.running, todo.start)
	m.mu.Unlock()
	m.tell(todo)
}

// remember notes who named which namespace. When the grace of a new map ends, its silence is looked at again.
func (m *Mapper) remember(object *unstructured.Unstructured, next table) {
	if object.GetUID() != m.uid {
		m.uid, m.born = object.GetUID(), object.GetCreationTimestamp().Time
		if left := m.options.Grace - time.Since(m.born); left > 0 {
			time.AfterFunc(left+time.Second, m.options.Handler.NamespacesChanged)
		}
	}
	for local := range next.named {
		m.spoken[local] = m.uid
	}
}

func (m *Mapper) tell(todo change) {
	for _, local := range todo.stop {
		m.options.Log.Info("namespace is no longer extended", "namespace", local)
		m.options.Handler.StopNamespace(local)
	}
	for _, local := range slices.Sorted(maps.Keys(todo.start)) {
		m.options.Log.Info("namespace is extended", "namespace", local, "remoteNamespace", todo.start[local])
		m.options.Handler.StartNamespace(local, todo.start[local])
	}
}

// choose picks the map to follow: the only one, or the one that bears the provider's id. Neither: nil, and absent
// tells whether there is none at all.
func (m *Mapper) choose() (chosen *unstructured.Unstructured, absent bool) {
	var all []*unstructured.Unstructured
	for _, item := range m.informer.GetStore().List() {
		if object, ok := item.(*unstructured.Unstructured); ok {
			all = append(all, object)
		}
	}
	if len(all) == 1 {
		return all[0], false
	}
	for _, object := range all {
		if object.GetName() == m.options.RemoteClusterID {
			chosen = object
		}
	}
	for _, object := range all {
		if object != chosen {
			m.report(object, []string{fmt.Sprintf("there are %d NamespaceMaps for cluster %s; only the one of that name is followed: delete the others",
				len(all), m.options.RemoteClusterID)})
		}
	}
	return chosen, len(all) == 0
}

// report writes one Event for the same problems on the same map, however often it is evaluated.
func (m *Mapper) report(object *unstructured.Unstructured, problems []string) {
	text := strings.Join(problems, "; ")
	m.mu.Lock()
	repeated := m.reported[object.GetUID()] == text
	m.reported[object.GetUID()] = text
	m.mu.Unlock()
	if repeated || text == "" {
		return
	}
	m.options.Log.Warn("NamespaceMap makes no sense", "name", object.GetName(), "problems", text)
	m.options.Events.Event(object, corev1.EventTypeWarning, InvalidReason, text)
}
