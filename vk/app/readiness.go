// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"sync"
)

// readiness of a replica: what keeps it from its duty, which is to work or, while
// another replica leads, to stand by. Safe for concurrent use.
type readiness struct {
	mu      sync.Mutex
	missing string
	active  *active
}

// waitFor returns what is missing; "" for nothing.
func (r *readiness) waitFor(missing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = missing
}

// set makes it that of a replica that works.
func (r *readiness) set(a *active) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = a
}

// check implements healthz.Checker.
func (r *readiness) check(*http.Request) error {
	r.mu.Lock()
	a, missing := r.active, r.missing
	r.mu.Unlock()
	switch {
	case a != nil:
		return a.ready()
	case missing != "":
		return errors.New(missing)
	}
	return nil
}
