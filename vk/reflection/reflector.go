// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Key names an object of this cluster; the copy has the same name in the remote namespace.
type Key = cache.ObjectName

const (
	// backoffFirst and backoffMost bound the wait before an object is tried again. There is no limit over all objects:
	// one that fails must not slow down those that do not.
	backoffFirst = 5 * time.Millisecond
	backoffMost  = 30 * time.Second
	// serviceIndex finds the EndpointSlices of a Service.
	serviceIndex = "service"
)

// reflector reflects one kind.
type reflector struct {
	m     *Manager
	kind  Kind
	chain string            // the name of its plugin chains
	owned map[string]string // labels by which copies are known
	added map[string]string // those and Kind.Labels
	// selects the copies, by all of that
	selects labels.Selector
	// there and here translate the names of copies that are not those of their objects
	there, here map[string]string
	queue       workqueue.TypedRateLimitingInterface[Key]
	cancel      func()         // ends the workers
	wg          sync.WaitGroup // of the workers
	// pods of this node, in whichever namespace; nil for kinds that are watched in each extended namespace
	pods  cache.SharedIndexInformer
	heard cache.ResourceEventHandlerRegistration // of pods
	// volumes behind the claims; kind PersistentVolumeClaim only
	volumes *volumes

	localWrites *mutationcache.Cache
	statuses    *oscillation.Memory
	paces       paces    // of the statuses that come back
	states      sync.Map // Key to *podState, or *tokenState
	mounting    sync.Map // Key to mounting; kind ServiceAccount only
	reconcile   func(context.Context, *worker, Key) error
	schedule    *schedule     // of kinds that come from the provider
	evaluated   atomic.Uint64 // objects so far

	mu     sync.Mutex
	parked map[Key]struct{} // wait for the provider
}

// worker is what one goroutine reuses from object to object.
type worker struct {
	doc    *document.Document
	env    host.Env
	keys   []string
	result string // for metrics
	warned bool   // a plugin warned of something
}

func (m *Manager) newReflector(kind Kind) (*reflector, error) {
	r := &reflector{
		m: m, kind: kind, chain: kind.Chain(), owned: m.options.ownership(kind), added: m.options.ownership(kind), parked: map[Key]struct{}{},
		localWrites: mutationcache.New(m.options.Clock), statuses: oscillation.New(m.options.Clock),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[Key](backoffFirst, backoffMost),
			workqueue.TypedRateLimitingQueueConfig[Key]{Clock: m.options.Clock}),
	}
	var err error
	if r.selects, err = labels.Parse(r.selector()); err != nil {
		return nil, fmt.Errorf("selecting the copies of kind %s, %w", kind.Name, err)
	}
	for key, value := range kind.Labels {
		r.added[key] = value
	}
	if kind.StatusBack {
		r.kind.DropAnnotations = append(slices.Clone(kind.DropAnnotations), StatusFromAnnotation, StatusHashAnnotation)
	}
	if kind.Rename != nil {
		r.there, r.here = kind.Rename(m.options.LocalClusterID), map[string]string{}
		for local, remote := range r.there {
			r.here[remote] = local
		}
	}
	r.reconcile = r.reconcileObject
	if kind.Reverse {
		r.reconcile, r.schedule = r.reconcileEvent, newSchedule()
	}
	if kind.Name == ClaimKind {
		r.reconcile = r.reconcileClaim
		return r, r.watchVolumes()
	}
	if !kind.PerNode {
		return r, nil
	}
	changed := r.podChanged
	r.reconcile = r.reconcilePod
	if kind.Name == ServiceAccountKind {
		r.reconcile, changed = r.reconcileTokens, r.tokenPodChanged
	}
	s := informer.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", m.options.NodeName).String()}
	if r.pods, err = m.informer(kind.Source, s, nil); err != nil {
		return nil, err
	}
	r.heard, err = informer.OnEvent(r.pods, changed)
	return r, err
}

// remoteName is the name of the copy of an object.
func (r *reflector) remoteName(local string) string {
	if name, ok := r.there[local]; ok {
		return name
	}
	return local + r.kind.Suffix
}

// localName is the name of the object of a copy.
func (r *reflector) localName(remote string) string {
	if name, ok := r.here[remote]; ok {
		return name
	}
	return strings.TrimSuffix(remote, r.kind.Suffix)
}

// podChanged enqueues a pod of this node.
func (r *reflector) podChanged(before, pod *unstructured.Unstructured, deleted bool) {
	t := r.m.extension(pod.GetNamespace())
	switch {
	case t != nil:
		if c := t.of(r.kind.Name); c != nil {
			r.localChanged(t, c, before, pod, deleted)
		}
	case !r.localWrites.Seen(raw.Key(pod), before, pod, deleted):
		r.queue.Add(raw.Key(pod))
	}
}

// localChanged enqueues an object of this cluster, unless the event only echoes our own write.
func (r *reflector) localChanged(t *extension, c *copies, before, object *unstructured.Unstructured, deleted bool) {
	key := raw.Key(object)
	if deleted {
		r.m.events.OK(r.kind.Name, object.GetUID())
	}
	if !r.localWrites.Seen(key, before, object, deleted) {
		r.enqueue(t, c, key)
	}
}

func indexByService(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	return []string{u.GetNamespace() + "/" + serviceOf(u)}, nil
}

// serviceChanged looks again at the slices of a Service, whose annotations decide about them. Those that are its own go
// with it: without it they would be judged by the policy alone, and may cross just before they are gone.
func (r *reflector) serviceChanged(t *extension, c *copies, before, service *unstructured.Unstructured, deleted bool) {
	if before != nil && !deleted && raw.Equal(raw.Annotations(before.Object), raw.Annotations(service.Object)) {
		return
	}
	for _, slice := range informer.ByIndex(c.local, serviceIndex, service.GetNamespace()+"/"+service.GetName()) {
		if !deleted || !ownedBy(slice, service) {
			r.enqueue(t, c, raw.Key(slice))
		}
	}
}

func ownedBy(object, owner *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}
