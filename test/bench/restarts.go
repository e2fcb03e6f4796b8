// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/refract-project/refract/internal/lab"
)

// restart ends the virtual kubelet as an upgrade does and starts it again with everything present.
func (b *bench) restart(ctx context.Context) error {
	progress("a clean restart of the virtual kubelet")
	if err := b.StopKubelet(ctx); err != nil {
		return err
	}
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := b.StartKubelet(ctx); err != nil {
		return err
	}
	const first = "first-after-restart"
	service := b.kinds()[0]
	if err := b.create(ctx, service, first); err != nil {
		return err
	}
	err := b.Wait(ctx, "the first new Service to be reflected", func(ctx context.Context) (string, error) {
		if found, err := b.copyOf(ctx, service, first); found != nil || err != nil {
			return "", err
		}
		return "it is not in the provider", nil
	})
	if err != nil {
		return err
	}
	b.atMostTime("first new object reflected after a clean restart", time.Since(begun).Seconds(), 3, " s")
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	var needless []lab.Write
	for _, write := range writes {
		// The node tells that its kubelet is back; the new Service was asked for.
		if !strings.HasPrefix(write.Resource, "nodes") && write.Name != first {
			needless = append(needless, write)
		}
	}
	b.atMost("writes after it for what had not changed", float64(len(needless)), 0, "")
	for kind, n := range lab.Tally(needless) {
		b.found("   of these: "+kind, "%d", n)
	}
	return b.delete(ctx, service, first)
}

// missed is how many objects of a kind are created, changed and deleted while the virtual kubelet cannot see it.
const missed = 10

// awayAndKilled measures how long it takes to catch up with what happened while the virtual kubelet was down.
func (b *bench) awayAndKilled(ctx context.Context) error {
	for round, end := range []struct {
		name string
		down func(context.Context) error
	}{
		{"stopped", b.StopKubelet},
		{"killed", func(context.Context) error { b.KillKubelet(); return nil }},
	} {
		progress("objects created, changed and deleted while the virtual kubelet is %s", end.name)
		if err := end.down(ctx); err != nil {
			return err
		}
		took, err := b.catchUp(ctx, round)
		if err != nil {
			return err
		}
		b.atMostTime(fmt.Sprintf("all of it corrected after it was %s", end.name), took.Seconds(), 10, " s")
	}
	return nil
}

// catchUp does things nobody sees, starts the virtual kubelet and waits until its copies are right.
func (b *bench) catchUp(ctx context.Context, round int) (time.Duration, error) {
	var concerned []*kind
	for _, k := range b.kinds() {
		if k.count >= 2*missed*2 {
			concerned = append(concerned, k)
		}
	}
	value := fmt.Sprintf("away-%d", round)
	for _, k := range concerned {
		from := round * 2 * missed
		if err := b.each(ctx, k, from, from+missed, b.delete); err != nil {
			return 0, err
		}
		err := b.each(ctx, k, from+missed, from+2*missed, func(ctx context.Context, k *kind, name string) error { return b.change(ctx, k, name, value) })
		if err != nil {
			return 0, err
		}
		if err := b.each(ctx, k, k.count+round*missed, k.count+(round+1)*missed, b.create); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	if err := b.StartKubelet(ctx); err != nil {
		return 0, err
	}
	for _, k := range concerned {
		if err := b.awaitGone(ctx, k, round*2*missed); err != nil {
			return 0, err
		}
		if err := b.await(ctx, k, k.count, ""); err != nil { // as many came as went
			return 0, err
		}
		if err := b.await(ctx, k, missed, "changed="+value); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// awaitGone returns when no copy is left of the objects that were deleted.
func (b *bench) awaitGone(ctx context.Context, k *kind, from int) error {
	return b.Wait(ctx, "copies of what was deleted to go", func(ctx context.Context) (string, error) {
		for i := from; i < from+missed; i++ {
			if orphan, err := b.copyOf(ctx, k, k.object(i)); err != nil || orphan != nil {
				return "that of " + k.object(i) + " is there", err
			}
		}
		return "", nil
	})
}
