// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"sync"
)

// readiness contains the reason why a replica is not ready, for its readiness probe. A replica is not ready if it can
// neither be the leader nor a standby. readiness is safe for concurrent use.
type readiness struct {
	mu      sync.Mutex
	missing string
	active  *active
}

// waitFor sets the condition that is not met yet. An empty text means that the replica is ready.
func (r *readiness) waitFor(missing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = missing
}

// setActive makes the readiness depend on the state of the argument a. If a is nil, it depends on the text of waitFor.
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
