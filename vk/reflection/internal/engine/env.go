// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"log/slog"

	"k8s.io/utils/clock"
)

// Env is what the engine does for the Handler of one kind, by what a handler wants to do. Safe for concurrent use.
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

// Kind returns the reflected kind; it must not be modified.
func (e *Env) Kind() *Kind { return &e.r.kind }

// Options returns those of the Manager; they must not be modified.
func (e *Env) Options() *Options { return &e.r.m.options }

// Clock returns the time.
func (e *Env) Clock() clock.WithTicker { return e.r.m.options.Clock }

// Log is for what is not reported on an object.
func (e *Env) Log() *slog.Logger { return e.r.m.log }
