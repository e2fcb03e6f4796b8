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
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/eventrecorder"
)

// InvalidReason is the reason of Events about invalid maps.
const InvalidReason = "InvalidNamespaceMap"

// Handler is called when the reflection of a namespace starts or stops. Calls are made one after the other, and must
// not wait for the provider.
type Handler interface {
	StartNamespace(local, remote string)
	StopNamespace(local string)
	// NamespacesChanged is called once for each change of the map, after all other calls for this change.
	NamespacesChanged()
}

// Options are the options of a Mapper. All except Log are required.
type Options struct {
	Client          dynamic.Interface // client of this cluster
	TenantNamespace string
	RemoteClusterID string
	Handler         Handler
	Events          record.EventRecorder
	Log             *slog.Logger
	// Grace is how long a namespace is still reflected after a new map, which does not contain the namespace, has
	// replaced the previous map. A grace period is needed because a recreated map is filled step by step. 0 means one
	// minute.
	Grace time.Duration
	Clock clock.Clock // nil means the system clock
}

// Mapper watches the NamespaceMap of a provider. It is safe for concurrent use.
type Mapper struct {
	options  Options
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration

	mu        sync.RWMutex
	known     bool // whether there is a valid map with the name of the provider
	table     table
	uid       types.UID       // UID of the current map
	createdAt time.Time       // when the current map was created
	named     map[string]bool // namespaces that the current map contains or has contained
	running   map[string]string
	reported  map[types.UID]string
	// evaluated contains the resourceVersion of each NamespaceMap that was last evaluated, by UID.
	evaluated map[types.UID]string

	timers chan time.Duration // receives the delay until the end of a new map's grace period
}

const (
	// defaultGrace is how long a namespace is reflected after it has disappeared from the map. With a shorter time,
	// reflection stops when the map is deleted and recreated.
	defaultGrace = time.Minute
	// timerDelay is added to a timer, so that it fires after the end of a grace period and never just before.
	timerDelay = time.Second
)

// New returns a Mapper. Run starts it.
func New(options Options) (*Mapper, error) {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.Grace == 0 {
		options.Grace = defaultGrace
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(options.Client, offloadingv1beta1.NamespaceMapGVR, options.TenantNamespace, 0,
		cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = mapSelector(options.RemoteClusterID) }).Informer()
	m := &Mapper{options: options, informer: informer, running: map[string]string{}, reported: map[types.UID]string{}, named: map[string]bool{}, timers: make(chan time.Duration, 1)}
	var err error
	m.handled, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { m.evaluateMaps() },
		UpdateFunc: func(any, any) { m.evaluateMaps() },
		DeleteFunc: func(any) { m.evaluateMaps() },
	})
	if err != nil {
		return nil, fmt.Errorf("watching NamespaceMaps, %w", err)
	}
	return m, nil
}

// Run watches the map until ctx is done.
func (m *Mapper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.endGraces(ctx) })
	m.informer.RunWithContext(ctx)
}

// endGraces notifies the handler at the end of the grace period of a new map, because the state of missing namespaces
// then becomes certain.
func (m *Mapper) endGraces(ctx context.Context) {
	var end <-chan time.Time
	for {
		select {
		case left := <-m.timers:
			end = m.options.Clock.After(left)
		case <-end:
			m.options.Handler.NamespacesChanged()
			end = nil
		case <-ctx.Done():
			return
		}
	}
}

// Synced reports whether the map has been read and the reflection of its namespaces has been started.
func (m *Mapper) Synced() bool { return m.handled.HasSynced() }

// SyncedChecker returns a checker that is done when Synced returns true.
func (m *Mapper) SyncedChecker() cache.DoneChecker { return m.handled.HasSyncedChecker() }

// Remote returns the remote namespace of a namespace of this cluster. It returns false if the namespace is not being
// reflected.
func (m *Mapper) Remote(local string) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	remote, ok := m.running[local]
	return remote, ok
}

// Running returns the namespaces that are being reflected, with their remote namespaces.
func (m *Mapper) Running() map[string]string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.running)
}

// State returns the offloading state of a namespace. It is Unknown until the map has been read.
func (m *Mapper) State(local string) State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case m.running[local] != "":
		return Mapped
	case m.Synced() && m.isCertain(local):
		return NotOffloaded
	default:
		return Unknown
	}
}

// Names reads the maps from the API server, and reports whether one of them contains, or may contain, the namespace.
// Call Names before an irreversible action for a namespace that is missing from the cached map, because the cache is
// outdated for some seconds after a restore of etcd.
func (m *Mapper) Names(ctx context.Context, local string) (bool, error) {
	maps, err := m.listStored(ctx)
	if err != nil {
		return false, err
	}
	for i := range maps.Items {
		if parsed, _, err := parseMap(&maps.Items[i]); err != nil || parsed.named[local] {
			return true, nil //nolint:nilerr // the intent of an invalid map is unknown
		}
	}
	return false, nil
}

func (m *Mapper) listStored(ctx context.Context) (*unstructured.UnstructuredList, error) {
	maps, err := m.options.Client.Resource(offloadingv1beta1.NamespaceMapGVR).Namespace(m.options.TenantNamespace).List(ctx, metav1.ListOptions{LabelSelector: mapSelector(m.options.RemoteClusterID)})
	if err != nil {
		return nil, fmt.Errorf("listing NamespaceMaps in %s, %w", m.options.TenantNamespace, err)
	}
	return maps, nil
}

// Behind reads the maps from the API server. It returns the name of a map whose stored version has not been evaluated
// yet, or an empty string if there is none.
func (m *Mapper) Behind(ctx context.Context) (string, error) {
	maps, err := m.listStored(ctx)
	if err != nil {
		return "", err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for i := range maps.Items {
		if stored := &maps.Items[i]; m.evaluated[stored.GetUID()] != stored.GetResourceVersion() {
			return stored.GetName(), nil
		}
	}
	if len(m.evaluated) > len(maps.Items) {
		return "a map that was deleted", nil
	}
	return "", nil
}

// Report writes the Events about invalid maps even if they were already written.
func (m *Mapper) Report() {
	m.mu.Lock()
	clear(m.reported)
	m.mu.Unlock()
	if object, _ := m.chooseMap(); object != nil {
		_, _ = m.readMap(object)
	}
}

// readMap parses a map and reports the problems in it.
func (m *Mapper) readMap(object *unstructured.Unstructured) (table, error) {
	parsed, problems, err := parseMap(object)
	if err != nil {
		problems = []string{err.Error()}
	}
	m.reportProblems(object, problems)
	return parsed, err
}

// mapSelector selects the NamespaceMap for the provider by its labels. The selector is needed because the same
// namespace may contain the maps that the provider sends as a consumer of this cluster.
func mapSelector(remoteClusterID string) string {
	return labels.Set{wire.RemoteClusterIDLabel: remoteClusterID, wire.RemoteIDLabel: remoteClusterID, wire.ReplicationLabel: "true"}.String()
}

// isCertain reports whether a namespace that is missing from the map is no longer offloaded. Otherwise it may be
// missing because the map is new. m.mu must be locked.
func (m *Mapper) isCertain(local string) bool {
	return m.known && !m.table.named[local] && (m.named[local] || m.options.Clock.Since(m.createdAt) > m.options.Grace)
}

// evaluateMaps compares the maps in the store with the running namespaces. Only the informer calls it, in one
// goroutine.
func (m *Mapper) evaluateMaps() {
	defer m.options.Handler.NamespacesChanged()
	defer m.noteEvaluated(m.storedVersions())
	object, absent := m.chooseMap()
	if object == nil && !absent {
		m.mu.Lock()
		m.known = false
		m.mu.Unlock()
		return
	}
	next, known := table{}, false
	if object != nil {
		parsed, err := m.readMap(object)
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
		m.recordNamed(object, next)
	}
	todo := diffTable(m.running, next)
	for _, local := range todo.stop {
		delete(m.running, local)
	}
	maps.Copy(m.running, todo.start)
	m.mu.Unlock()
	m.notifyHandler(todo)
}

// storedVersions returns the versions of the maps in the store.
func (m *Mapper) storedVersions() map[types.UID]string {
	versions := map[types.UID]string{}
	for _, object := range m.storedMaps() {
		versions[object.GetUID()] = object.GetResourceVersion()
	}
	return versions
}

func (m *Mapper) noteEvaluated(versions map[types.UID]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evaluated = versions
}

// storedMaps returns the maps in the store.
func (m *Mapper) storedMaps() (all []*unstructured.Unstructured) {
	for _, item := range m.informer.GetStore().List() {
		if object, ok := item.(*unstructured.Unstructured); ok {
			all = append(all, object)
		}
	}
	return all
}

// recordNamed records the namespaces that a map contains. The age of a map that exists at the start follows from its
// creation timestamp. A map that appears later counts as new, regardless of the API server's clock. A timer makes
// endGraces notify the handler at the end of a new map's grace period.
func (m *Mapper) recordNamed(object *unstructured.Unstructured, next table) {
	if object.GetUID() != m.uid {
		if m.createdAt = m.options.Clock.Now(); !m.Synced() {
			m.createdAt = object.GetCreationTimestamp().Time
		}
		m.uid = object.GetUID()
		clear(m.named)
		if left := m.options.Grace - m.options.Clock.Since(m.createdAt); left > 0 {
			select {
			// Drop the timer of the previous map.
			case <-m.timers:
			default:
			}
			m.timers <- left + timerDelay
		}
	}
	for local := range next.named {
		m.named[local] = true
	}
}

func (m *Mapper) notifyHandler(todo namespaceChanges) {
	for _, local := range todo.stop {
		m.options.Log.Info("Namespace is no longer offloaded", "namespace", local)
		m.options.Handler.StopNamespace(local)
	}
	for _, local := range slices.Sorted(maps.Keys(todo.start)) {
		m.options.Log.Info("Namespace is offloaded", "namespace", local, "remoteNamespace", todo.start[local])
		m.options.Handler.StartNamespace(local, todo.start[local])
	}
}

// chooseMap returns the map that is named after the provider. If it returns nil, absent reports whether there is no map
// at all.
func (m *Mapper) chooseMap() (chosen *unstructured.Unstructured, absent bool) {
	all := m.storedMaps()
	for _, object := range all {
		if object.GetName() == m.options.RemoteClusterID {
			chosen = object
		}
	}
	for _, object := range all {
		if object != chosen {
			m.reportProblems(object, []string{fmt.Sprintf("ignored: only the NamespaceMap named %s is followed; delete this one", m.options.RemoteClusterID)})
		}
	}
	return chosen, len(all) == 0
}

// reportProblems writes an Event about the problems of a map. It writes only one Event as long as the problems stay the
// same, no matter how often the map is evaluated.
func (m *Mapper) reportProblems(object *unstructured.Unstructured, problems []string) {
	text := strings.Join(problems, "; ")
	m.mu.Lock()
	repeated := m.reported[object.GetUID()] == text
	m.reported[object.GetUID()] = text
	m.mu.Unlock()
	if repeated || text == "" {
		return
	}
	m.options.Log.Warn("Ignoring invalid entries of the NamespaceMap", "name", object.GetName(), "problems", text)
	m.options.Events.Event(object, corev1.EventTypeWarning, InvalidReason, eventrecorder.Shorten(text))
}
