// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Key identifies an object of this cluster. The copy has the same name in the remote namespace.
type Key = cache.ObjectName

const (
	// backoffFirst and backoffMost limit the delay before an object is tried again.
	backoffFirst = 5 * time.Millisecond
	backoffMost  = 30 * time.Second
)

// reflector reflects one kind.
type reflector struct {
	m       *Manager
	kind    Kind
	owned   map[string]string // labels that identify copies
	added   map[string]string // owned and Copy.Labels
	mute    bool              // no status is shown, and a status shown earlier is removed; see Options.WithoutStatus
	selects labels.Selector   // selects the copies by their labels
	// there and here translate the names of copies that differ from the names of their objects.
	there, here map[string]string
	trimCopy    informer.Trim
	handler     Handler
	queue       workqueue.TypedDelayingInterface[Key]
	retries     retries
	arrivals    *arrivals // times of the waiting objects

	pluginRetries retries                         // see newPluginRetries
	partRetries   workqueue.TypedRateLimiter[Key] // see retryPart
	cancel        func()                          // stops the workers
	wg            sync.WaitGroup                  // running workers
	// ofNode has the objects of this node in all namespaces. It is nil for kinds that are watched in each offloaded
	// namespace.
	ofNode *informer.Informer
	// informers has the informers that the handler uses in all namespaces.
	informers []*informer.Informer

	localWrites *mutationcache.Cache
	statuses    acceptances             // statuses as stored by this cluster's API server
	shown       *oscillation.Guard[Key] // guards the statuses that are reflected back
	strangers   strangers
	paces       paces         // paces the statuses that are reflected back
	evaluated   atomic.Uint64 // number of evaluated objects
	swaps       atomic.Uint64 // number of swaps of its chains

	mu     sync.Mutex
	parked map[Key]struct{} // objects that wait for the provider
}

// Unchanged is the result of a Worker that has not written anything.
const Unchanged = "unchanged"

// Worker has the state that one goroutine reuses for each object.
type Worker struct {
	Doc    *document.Document // the document that is mutated
	Result string             // label of the metrics: unchanged, written or deleted
	Warned bool               // a warning about the object was written
	env    host.Env
	keys   []string
	out    bool // something was written on the provider
	back   bool // something was written in this cluster
	// matched is the generation of the copy that has the desired state, or 0 if no copy was compared or written.
	matched int64

	scope  *Scope // scope of the object, if the kind is tracked
	turn   uint64 // turn of the object when its evaluation began; see steps
	inStep bool   // the copy has the desired state
	chains chainRuns
}

// NewWorker returns a Worker with its own document.
func NewWorker(log *slog.Logger) *Worker {
	return &Worker{Doc: document.New(), env: host.Env{Measure: true, Logger: log}}
}

func (m *Manager) newReflector(kind Kind) (*reflector, error) {
	r := &reflector{
		m: m, kind: kind, mute: slices.Contains(m.options.WithoutStatus, kind.Name), owned: m.options.ownership(kind), added: m.options.ownership(kind), parked: map[Key]struct{}{},
		localWrites: mutationcache.New(m.options.Clock), shown: oscillation.New[Key](m.options.Clock, oscillation.Standard),
	}
	r.arrivals, r.retries, r.pluginRetries = newArrivals(), newRetries(), newPluginRetries()
	r.partRetries = workqueue.NewTypedItemExponentialFailureRateLimiter[Key](FirstPartRetry, mostPartRetry)
	r.queue = newQueue(m.options.Clock, r.isUrgent, r.arrived)
	r.trimCopy = trimmer(kind.Cache.Copies, kind.Copy.Into)
	var err error
	if r.selects, err = labels.Parse(r.selector()); err != nil {
		return nil, fmt.Errorf("selecting the copies of kind %s, %w", kind.Name, err)
	}
	for key, value := range kind.Copy.Labels {
		r.added[key] = value
	}
	r.kind.Copy.DropLabels = append(slices.Clone(kind.Copy.DropLabels), wire.Bookkeeping()...)
	r.kind.Copy.DropAnnotations = append(slices.Clone(kind.Copy.DropAnnotations), wire.Bookkeeping()...)
	if kind.Copy.Rename != nil {
		r.there, r.here = kind.Copy.Rename(m.options.LocalClusterID), map[string]string{}
		for local, remote := range r.there {
			r.here[remote] = local
		}
	}
	env := newEnv(r)
	r.handler = Base{env}
	if kind.Handler != nil {
		if r.handler, err = kind.Handler(env); err != nil {
			return nil, fmt.Errorf("preparing kind %s, %w", kind.Name, err)
		}
	}
	if !kind.PerNode {
		return r, nil
	}
	r.ofNode = m.informer(kind.Source, informer.Options{Selection: informer.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", m.options.NodeName).String()}})
	r.ofNode.OnEvent(r.ofNodeChanged)
	return r, nil
}

// remoteName returns the name of the copy of an object.
func (r *reflector) remoteName(local string) string {
	if name, ok := r.there[local]; ok {
		return name
	}
	return local + r.kind.Copy.Suffix
}

// localName returns the name of the object of a copy.
func (r *reflector) localName(remote string) string {
	if name, ok := r.here[remote]; ok {
		return name
	}
	return strings.TrimSuffix(remote, r.kind.Copy.Suffix)
}

// ofNodeChanged enqueues an object of this node.
func (r *reflector) ofNodeChanged(before, object *unstructured.Unstructured, deleted bool) {
	if t := r.m.extension(object.GetNamespace()); t != nil {
		if s := t.of(r.kind.Name); s != nil {
			s.objectChanged(before, object, deleted)
		}
		return
	}
	if r.m.standing.Load() {
		return
	}
	if !r.localWrites.Seen(raw.Key(object), before, object, deleted) && (deleted || r.handler.ObjectMatters(before, object)) {
		r.queue.Add(raw.Key(object))
	}
}
