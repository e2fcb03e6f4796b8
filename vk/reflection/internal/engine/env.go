// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"log/slog"

	"k8s.io/utils/clock"
)

// Env offers the services of the engine to the Handler of one kind, grouped by purpose. Safe for concurrent use.
type Env struct {
	Reader
	Mutator
	CopyWriter
	ObjectWriter
	Caller
	Scheduler
	Reporter

	r *reflector
}

func newEnv(r *reflector) *Env {
	return &Env{Reader{r}, Mutator{r}, CopyWriter{r}, ObjectWriter{r}, Caller{r}, Scheduler{r}, Reporter{r}, r}
}

// Kind returns the reflected kind, which must not be modified.
func (e *Env) Kind() *Kind { return &e.r.kind }

// Options returns the options of the Manager, which must not be modified.
func (e *Env) Options() *Options { return &e.r.m.options }

// Clock returns the clock.
func (e *Env) Clock() clock.WithTicker { return e.r.m.options.Clock }

// Log returns the logger, for problems that are not reported on an object.
func (e *Env) Log() *slog.Logger { return e.r.m.log }
