// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rehearsal finds out which objects a new revision of a plugin would change, before the revision is used. It
// evaluates the cached objects with the current chains and with the next chains, which contain the new revision, and
// reports the differences. It does not write objects.
//
// One goroutine evaluates the objects, ordered by kind and name. Reflection has priority: see pace.
package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

const (
	// readsPerSecond limits the requests for objects whose content is not cached. A higher rate would be an
	// unnecessary load for the API server, because a rehearsal is not urgent.
	readsPerSecond = 20
	// mostRead is the maximum number of objects of a kind that are read from the API server. If there are more, a
	// sample of this size is evaluated.
	mostRead = 500
)

// Candidate is a revision of a plugin that is not in use yet.
type Candidate struct {
	Plugin string
	// Against is the name of the active PluginRevision, or "" if there is none.
	Against string
	// Kinds are the kinds (Kind.Name) whose chains contain the plugin.
	Kinds []string
	// Declared are the paths that the manifests of all plugins of the next chains declare (writes).
	Declared []string
	// Next runs the complete chains, including the new revision.
	Next mutation.Runner
}

// Run rehearses a candidate. If ctx is done, it returns early with the error of ctx. The result does not contain values
// of objects.
func Run(ctx context.Context, m *engine.Manager, c Candidate) (*plugins.PluginRehearsalResult, error) {
	if err := m.AwaitPreview(ctx); err != nil {
		return nil, fmt.Errorf("rehearsing plugin %s, waiting for the objects, %w", c.Plugin, err)
	}
	leading := m.IsLeading()
	p := m.NewPreview(c.Next, rate.NewLimiter(readsPerSecond, 1))
	found := newFindings(c)
	pace := pace{queues: m, clock: clock.RealClock{}}
	for _, kind := range m.PreviewKinds(func(name string) bool { return slices.Contains(c.Kinds, name) }) {
		keys := kind.Keys
		if !kind.Cached {
			keys = sample(keys, mostRead)
		}
		pace.began = time.Time{} // the time before the first object of a kind does not count as work
		for _, key := range keys {
			// Kinds that are not cached are limited by the rate of reads, which is slower than the pace.
			if kind.Cached {
				if err := pace.wait(ctx); err != nil {
					return nil, err
				}
			}
			compared, err := p.Compare(ctx, kind, key, c.Plugin)
			switch {
			case ctx.Err() != nil:
				return nil, fmt.Errorf("rehearsing plugin %s, %w", c.Plugin, ctx.Err())
			case err != nil:
				return nil, fmt.Errorf("rehearsing plugin %s on %s %s, %w", c.Plugin, kind.Name, key, err)
			// The labels of the namespace have not been read yet, so the rehearsal fails. It will be retried.
			case compared != nil && selectorError(compared) != nil:
				return nil, fmt.Errorf("rehearsing plugin %s on %s %s, %w", c.Plugin, kind.Name, key, selectorError(compared))
			case compared != nil:
				found.add(kind.Name, compared)
			}
		}
	}
	if m.IsLeading() != leading {
		return nil, fmt.Errorf("rehearsing plugin %s: another virtual node of the provider leads now", c.Plugin)
	}
	return found.result(), nil
}

// sample returns at most n keys, evenly distributed over keys.
func sample(keys []queue.Key, n int) []queue.Key {
	if len(keys) <= n {
		return keys
	}
	chosen := make([]queue.Key, 0, n)
	for i := range n {
		chosen = append(chosen, keys[i*len(keys)/n])
	}
	return chosen
}

// describeError describes the failure of a plugin on an object. It omits the plugin's own text and keys that it has chosen, which may
// contain values of the object.
func (f *findings) describeError(err error, object any) string {
	var (
		guard *host.GuardError
		fuel  *host.OutOfFuelError
		limit *host.LimitError
		held  *host.HeldError
	)
	switch {
	case errors.As(err, &guard):
		public := *guard
		public.Path = f.publicPath(guard.Path, object)
		return public.Error()
	case errors.As(err, &fuel), errors.As(err, &limit), errors.As(err, &held):
		return err.Error()
	}
	_, reason := failure.Classify(err)
	return reason + "; `refractctl plugin run` with the object shows the message"
}
