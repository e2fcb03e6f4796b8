// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package event shows here what the provider's Events say of our objects there.
//
// Events come the other way: who describes an object here sees what happens to its copy. They are history rather than
// state, so they are treated unlike other kinds. What was shown stays as it was mutated. None is kept in memory. A copy is
// written when the Event says something new, and never for being compared again.
//
//	watch of the remote namespace ─▶ inbox ─▶ about whom? ─▶ schedule ─▶ queue ─▶ policy ─▶ chain ─▶ comparison ─▶ create or patch
//
// The reporter (internal/report) is another matter: it writes Events of our own.
package event

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// Name of the kind.
const Name = "Event"

// Kind returns how Events are reflected.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, Source: corev1.SchemeGroupVersion.WithResource("events"), Policy: engine.DenyList, Workers: 3, Copy: engine.Copy{Mode: engine.Replace}, Reverse: true,
		Handler: func(env *engine.Env) (engine.Handler, error) {
			return &handler{Base: engine.Base{Env: env}, schedule: newSchedule()}, nil
		},
	}
}

type handler struct {
	engine.Base
	schedule *schedule
}

// Extend implements engine.Handler.
func (h *handler) Extend(s *engine.Scope) {
	in := newInbox(h, s)
	s.State = in
	s.OnRun(func(ctx context.Context) { h.receive(ctx, in) })
}

// Synced goes on with the Events about objects of a kind that is known at last.
func (h *handler) Synced(s *engine.Scope, kind *engine.Kind) { inboxOf(s).resume(kind) }

// StartedLeading reads everything again when Events were dropped because another virtual kubelet showed them.
func (h *handler) StartedLeading() {
	for _, s := range h.Scopes() {
		inboxOf(s).led()
	}
}

// Waiting implements engine.Handler.
func (h *handler) Waiting() int { return h.schedule.len() }
