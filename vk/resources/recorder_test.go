// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"maps"
	"sync"

	"github.com/refract-project/refract/vk/reflection"
)

// recorder is an engine that records its calls.
type recorder struct {
	mu               sync.Mutex
	refusal          error
	kinds            map[string]reflection.Kind
	said             []string
	remoteNamespaces map[string]string
	asked            int // number of calls of Namespaces
	changed          func()
	away             bool
}

// Namespaces returns the namespaces that are currently offloaded.
func (r *recorder) Namespaces() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return maps.Clone(r.remoteNamespaces)
}

// NamespacesKnown returns a closed channel.
func (r *recorder) NamespacesKnown() <-chan struct{} {
	known := make(chan struct{})
	close(known)
	return known
}

func (r *recorder) SubscribeNamespaces(changed func()) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
	return func() { r.changed = nil }
}

func (r *recorder) extend(remoteNamespaces map[string]string) {
	r.mu.Lock()
	r.remoteNamespaces = remoteNamespaces
	r.mu.Unlock()
	r.changed()
}

func (r *recorder) Reachable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.away
}

// lose makes Reachable report that the provider is unreachable or, if away is false, reachable again.
func (r *recorder) lose(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *recorder) timesAsked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// refuse makes the engine return err for every kind. If err is nil, kinds are accepted again.
func (r *recorder) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal = err
}

func (r *recorder) StartKind(kind reflection.Kind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusal != nil {
		return r.refusal
	}
	r.kinds[kind.Name] = kind
	r.said = append(r.said, "start "+kind.Name)
	return nil
}

func (r *recorder) StopKind(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.kinds, name)
	r.said = append(r.said, "stop "+name)
}

func (r *recorder) kind(name string) (reflection.Kind, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind, ok := r.kinds[name]
	return kind, ok
}

func (r *recorder) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.said...)
}
