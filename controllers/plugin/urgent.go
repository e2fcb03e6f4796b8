// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// interruptInterval is the interval at which watchDuringFetch looks for a decision that must not wait for the fetch.
// With a longer interval, a revision that one virtual node has rolled back runs for longer on the other virtual nodes.
const interruptInterval = time.Second

// errInterrupted ends a fetch because of a decision that must not wait for it.
var errInterrupted = errors.New("the fetch was interrupted by a change of the plugin or a rollback")

// followRollback makes the previous revision active if a virtual node has rolled back the active revision, and reports
// whether it has done so. If the previous revision is refused, promote reports this.
func (c *Controller) followRollback(ctx context.Context, p *plugins.ReflectionPlugin) (isChanged bool, err error) {
	nodes, err := listVirtualNodes(ctx, c.client)
	if err != nil {
		return false, err
	}
	forgetOverruled(p)
	bad := p.Status.ActiveRevision
	var refused *refusal
	switch err := c.rollBack(ctx, p, nodes); {
	case errors.As(err, &refused):
		return false, nil
	case err != nil:
		return false, err
	case p.Status.ActiveRevision == bad:
		return false, nil
	}
	return true, c.setReady(ctx, p, nodes, nil)
}

// watchDuringFetch returns a context that ends, with errInterrupted as its cause, when the plugin changes or a virtual
// node rolls back the active revision. The decision is made after the interrupted fetch. end stops the watch.
func (c *Controller) watchDuringFetch(ctx context.Context, p *plugins.ReflectionPlugin) (fetching context.Context, end func()) {
	fetching, cancel := context.WithCancelCause(ctx)
	key, generation := client.ObjectKeyFromObject(p), p.Generation
	// A rollback that was reported before the fetch does not interrupt the fetch, because the rollback was already
	// processed, and may have been refused.
	wasRolledBack := c.isRolledBack(ctx, p)
	go func() {
		tick := time.NewTicker(interruptInterval)
		defer tick.Stop()
		for {
			select {
			case <-fetching.Done():
				return
			case <-tick.C:
			}
			now := &plugins.ReflectionPlugin{}
			err := c.client.Get(fetching, key, now)
			isChanged := err == nil && (now.Generation != generation || now.DeletionTimestamp != nil)
			if apierrors.IsNotFound(err) || isChanged || err == nil && !wasRolledBack && c.isRolledBack(fetching, now) {
				cancel(errInterrupted)
			}
		}
	}()
	return fetching, func() { cancel(nil) }
}

// isRolledBack reports whether a virtual node has rolled back the active revision of a plugin, according to the cache.
func (c *Controller) isRolledBack(ctx context.Context, p *plugins.ReflectionPlugin) bool {
	nodes, err := listVirtualNodes(ctx, c.client)
	if err != nil {
		return false
	}
	active, err := c.getRevision(ctx, p.Status.ActiveRevision)
	return err == nil && findRolledBack(active, p.Status.PromotedAt, nodes) != nil
}
