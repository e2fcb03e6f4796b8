// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// witness watches the pods in both clusters all the time. A pod that no user has deleted must not end, and must not be
// replaced by another pod with the same name, in either cluster. No node fails in this test, so pods have no other
// reason to end.
type witness struct {
	mu     sync.Mutex
	gone   map[types.NamespacedName]bool // pods that users have deleted
	left   map[string]bool               // namespaces that are no longer offloaded
	uids   map[types.NamespacedName]types.UID
	born   map[types.NamespacedName]time.Time // creation times of the consumer's pods
	phases map[types.UID]finish               // results of pods that have finished on the provider
	ended  map[types.NamespacedName]types.UID // UIDs of finished pods, by the name of the consumer's pod
	seen   []complaint

	evicting bool // whether the virtual node is being drained
	// excused contains pods that the API server has evicted, or that were lost when a cluster was restored.
	excused  map[types.NamespacedName]bool
	restored map[string][]span // periods whose changes a cluster has lost in a restore
}

// span is a period of time.
type span struct{ from, to time.Time }

// finish is the result of a pod, and the time when it was observed.
type finish struct {
	phase corev1.PodPhase
	at    time.Time
}

// complaint reports a pod that has ended although no user has deleted it.
type complaint struct {
	key  types.NamespacedName
	text string
	at   time.Time
}

// doubt is the time during which a complaint may still be refuted. The clusters are watched separately, and one of the
// watches may lag behind the other.
const doubt = 5 * time.Second

// watched is a store that observes the pods of a cluster. Its methods must not be called concurrently.
type watched struct {
	known  map[types.NamespacedName]*corev1.Pod
	notice func(pod *corev1.Pod, deleted bool)
	once   sync.Once
	synced chan struct{}
}

var _ cache.ReflectorStore = (*watched)(nil)

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// Add implements cache.ReflectorStore.
func (w *watched) Add(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		w.known[keyOf(pod)] = pod
		w.notice(pod, false)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (w *watched) Update(object any) error { return w.Add(object) }

// Delete implements cache.ReflectorStore.
func (w *watched) Delete(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		delete(w.known, keyOf(pod))
		w.notice(pod, true)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *watched) Replace(objects []any, _ string) error {
	gone := maps.Clone(w.known)
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			delete(gone, keyOf(pod))
			_ = w.Add(pod)
		}
	}
	for _, pod := range gone {
		_ = w.Delete(pod)
	}
	w.once.Do(func() { close(w.synced) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *watched) Resync() error { return nil }

func newWitness(ctx context.Context, l *lab.Lab) (*witness, error) {
	w := &witness{gone: map[types.NamespacedName]bool{}, left: map[string]bool{}, uids: map[types.NamespacedName]types.UID{}, born: map[types.NamespacedName]time.Time{}, phases: map[types.UID]finish{}, restored: map[string][]span{},
		ended: map[types.NamespacedName]types.UID{}, excused: map[types.NamespacedName]bool{}}
	for side, local := range map[*lab.Side]func(string) (string, bool){
		l.Consumer: func(namespace string) (string, bool) { return namespace, strings.HasPrefix(namespace, "chaos-") },
		l.Provider: func(namespace string) (string, bool) { return strings.CutSuffix(namespace, "-"+lab.ConsumerID) },
	} {
		pods := &watched{known: map[types.NamespacedName]*corev1.Pod{}, synced: make(chan struct{}), notice: func(pod *corev1.Pod, deleted bool) {
			if namespace, ours := local(pod.Namespace); ours {
				w.notice(side.ID, types.NamespacedName{Namespace: namespace, Name: pod.Name}, pod, deleted)
			}
		}}
		source := cache.NewListWatchFromClient(side.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
		// After an outage of an API server, an informer would wait for up to half a minute. A reflector with this
		// backoff continues immediately.
		reflector := cache.NewReflectorWithOptions(source, &corev1.Pod{}, pods, cache.ReflectorOptions{Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1, Steps: math.MaxInt}})
		go reflector.RunWithContext(ctx)
		select {
		case <-pods.synced:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w, nil
}

func (w *witness) notice(cluster string, key types.NamespacedName, pod *corev1.Pod, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[key] || w.left[key.Namespace] {
		return
	}
	if cluster == lab.ConsumerID {
		w.born[key] = pod.CreationTimestamp.Time
	}
	// A restored consumer may bind the pod again, so it may be replaced without any action of a user.
	if w.lost(cluster, pod.CreationTimestamp.Time) || w.lost(lab.ConsumerID, w.born[key]) {
		return
	}
	complain := func(format string, args ...any) {
		w.seen = append(w.seen, complaint{key, fmt.Sprintf("in %s, pod %s %s", cluster, key, fmt.Sprintf(format, args...)), time.Now()})
	}
	if cluster == lab.ConsumerID {
		if w.evicting && isEvicted(pod) {
			w.excused[key] = true
		}
		switch before, known := w.uids[key]; {
		case deleted:
			complain("was deleted, and by no user")
		case pod.DeletionTimestamp != nil:
			complain("is being deleted, and by no user")
		case known && before != pod.UID:
			complain("is another one")
		}
		w.uids[key] = pod.UID
		return
	}
	if pod.Labels[wire.ManagedByLabel] != wire.ManagedByShadowPod {
		return
	}
	if deleted || pod.DeletionTimestamp != nil {
		complain("was deleted, though that of the consumer goes on")
	}
	if known := w.phases[pod.UID]; known.phase != "" && pod.Status.Phase != known.phase && !w.lost(cluster, known.at) {
		complain("had finished and is %s", pod.Status.Phase)
	}
	if first := w.ended[key]; first != "" && first != pod.UID {
		complain("had finished and is run again")
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		if w.phases[pod.UID].phase == "" {
			w.phases[pod.UID] = finish{pod.Status.Phase, time.Now()}
		}
		w.ended[key] = pod.UID
	}
}

// lost reports whether a cluster was restored to a state before the given time.
func (w *witness) lost(cluster string, at time.Time) bool {
	return slices.ContainsFunc(w.restored[cluster], func(s span) bool { return !at.Before(s.from) && !at.After(s.to) })
}

// unbound is the maximum time until a new pod is bound to a node. If the cluster is restored to a state within this
// time, the pod is bound again, possibly to another node.
const unbound = 5 * time.Second

func (w *witness) wasPutBack(cluster string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.restored[cluster]) > 0
}

// putBack records that a cluster is being restored to its state at the given time. done must be called when the restore
// is complete.
func (w *witness) putBack(cluster string, to time.Time) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored[cluster] = append(w.restored[cluster], span{to.Add(-unbound), to.Add(time.Hour)})
	last := &w.restored[cluster][len(w.restored[cluster])-1]
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		last.to = time.Now()
	}
}

// remain records which pods the consumer has after a restore. The copies of all other pods will be deleted.
func (w *witness) remain(pods []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.uids {
		w.excused[key] = w.excused[key] || !slices.Contains(pods, key)
	}
}

// isEvicted reports whether the API server has evicted the pod.
func isEvicted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	})
}

// expectEvictions records that a drain has begun.
func (w *witness) expectEvictions() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.evicting = true
}

// evictions returns the pods that were evicted or lost in a restore so far.
func (w *witness) evictions() map[types.NamespacedName]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.excused)
}

// deleted records that a user will delete a pod.
func (w *witness) deleted(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[key] = true
}

// withdrawn records that a user will withdraw a namespace. This deletes the remote namespace and its contents.
func (w *witness) withdrawn(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[namespace] = true
}

func (w *witness) isWithdrawn(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left[namespace]
}

// complaints returns the complaints without an excuse (open), and those among them that can no longer be refuted
// (certain).
func (w *witness) complaints() (open, certain []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seen := range w.seen {
		if w.excused[seen.key] {
			continue
		}
		open = append(open, seen.text)
		if time.Since(seen.at) > doubt {
			certain = append(certain, seen.text)
		}
	}
	return open, certain
}
