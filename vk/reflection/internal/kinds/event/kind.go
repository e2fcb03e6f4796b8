// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package event shows the provider's Events about our objects on the objects of this cluster.
//
// Events are reflected back, so that describing an object shows what happens to its copy. They are history rather
// than state, so they are treated differently from other kinds. A reflected Event is not updated when a plugin would
// mutate it differently, no Event is kept in memory, and a copy is written only when its Event has changed.
//
//	watch of the remote namespace ─▶ inbox ─▶ object ─▶ schedule ─▶ queue
//	    ─▶ policy ─▶ chain ─▶ comparison ─▶ create or patch
//
// The reporter (internal/report) is separate: it writes our own Events.
package event

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// Name is the name of the kind.
const Name = "Event"

// Kind returns the kind of Events.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, Source: corev1.SchemeGroupVersion.WithResource("events"), Policy: engine.DenyList, Workers: 3, Copy: copies.Spec{Mode: copies.Replace}, Reverse: true,
		Handler: func(env *engine.Env) (engine.Handler, error) {
			return &handler{Base: engine.Base{Env: env}, schedule: newSchedule()}, nil
		},
	}
}

type handler struct {
	engine.Base
	schedule *schedule
}

// Extend implements engine.Handler. It starts to receive the provider's Events in the scope's namespace.
func (h *handler) Extend(s *engine.Scope) {
	in := newInbox(h, s)
	s.State = in
	s.OnRun(func(ctx context.Context) { h.receive(ctx, in) })
}

// Synced implements engine.Handler. It continues with the Events about objects of a kind that has been read.
func (h *handler) Synced(s *engine.Scope, kind *engine.Kind) { inboxOf(s).resume(kind) }

// StartedLeading implements engine.Handler. It reads all Events again if some were dropped because another virtual
// kubelet showed them.
func (h *handler) StartedLeading() {
	for _, s := range h.Scopes() {
		inboxOf(s).led()
	}
}

// Waiting implements engine.Handler. It returns the number of scheduled Events.
func (h *handler) Waiting() int { return h.schedule.len() }
