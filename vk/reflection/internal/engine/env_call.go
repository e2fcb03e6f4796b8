// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/client-go/dynamic"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// Caller calls the API servers for purposes that the other parts of Env do not cover. Safe for concurrent use.
type Caller struct{ r *reflector }

// Local returns the client of this cluster. Calls go through CallLocal.
func (e Caller) Local() dynamic.Interface { return e.r.m.local }

// Core returns the core API client of this cluster. Calls go through CallLocal.
func (e Caller) Core() v1.CoreV1Interface { return e.r.m.core }

// Remote returns the client of the provider. Calls go through CallRemote.
func (e Caller) Remote() dynamic.Interface { return e.r.m.remote }

// CallLocal makes one call to this cluster, always with a deadline.
func (e Caller) CallLocal(ctx context.Context, call func(context.Context) error) error {
	return e.r.m.callLocal(ctx, call)
}

// CallRemote makes one call to the provider, always with a deadline. It fails at once while the provider is known to be
// unreachable.
func (e Caller) CallRemote(ctx context.Context, call func(context.Context) error) error {
	return e.r.m.callRemote(ctx, call)
}

// Reachable returns an error while the provider is known to be unreachable.
func (e Caller) Reachable() error { return e.r.m.breaker.Allow() }

// ListWatchRemote lists and watches objects of the provider, except while the provider is known to be unreachable.
func (e Caller) ListWatchRemote(s informer.Selection) cache.ListerWatcher {
	return e.r.m.there.ListWatch(e.r.kind.Source, s)
}

// Counted counts a write for the metrics; cluster is "local" or "remote".
func (e Caller) Counted(verb, cluster string) { e.r.counted(verb, cluster) }
