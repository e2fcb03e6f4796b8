// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"sync"
)

// readiness is the state of a replica for its readiness probe: the reason why it cannot work or, while another replica
// leads, stand by. It is safe for concurrent use.
type readiness struct {
	mu      sync.Mutex
	missing string
	active  *active
}

// waitFor sets the missing requirement. An empty text means that the replica is ready.
func (r *readiness) waitFor(missing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = missing
}

// setActive derives the readiness from an active replica from now on.
func (r *readiness) setActive(a *active) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = a
}

// checkReadiness implements healthz.Checker.
func (r *readiness) checkReadiness(*http.Request) error {
	r.mu.Lock()
	a, missing := r.active, r.missing
	r.mu.Unlock()
	switch {
	case a != nil:
		return a.readinessError()
	case missing != "":
		return errors.New(missing)
	}
	return nil
}
