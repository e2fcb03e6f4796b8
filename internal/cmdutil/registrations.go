// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Registrations is a group of collectors that are unregistered together, such as metrics that a process exports only
// while it is the leader. It is safe for concurrent use.
type Registrations struct {
	registerer prometheus.Registerer
	mu         sync.Mutex
	collectors []prometheus.Collector
}

var _ prometheus.Registerer = (*Registrations)(nil)

// NewRegistrations returns an empty group. Its collectors are registered with registerer.
func NewRegistrations(registerer prometheus.Registerer) *Registrations {
	return &Registrations{registerer: registerer}
}

// Register implements prometheus.Registerer.
func (r *Registrations) Register(c prometheus.Collector) error {
	if err := r.registerer.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collectors = append(r.collectors, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *Registrations) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *Registrations) Unregister(c prometheus.Collector) bool { return r.registerer.Unregister(c) }

// Close unregisters all collectors of the group.
func (r *Registrations) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.collectors {
		r.registerer.Unregister(c)
	}
	r.collectors = nil
}
