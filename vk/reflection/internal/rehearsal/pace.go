// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

const (
	// slicePeriod is how long the rehearsal evaluates objects before it checks the queues again. With a longer time,
	// changes would be reflected later.
	slicePeriod = 500 * time.Microsecond
	// restPerSlice is the length of the pause after a slice, in multiples of a slice, while objects are being
	// reflected. The rehearsal then uses 10 % of a core.
	restPerSlice = 9
	// quietPeriod is the time without any reflection after which the rehearsal runs at full speed. With a shorter time,
	// changes that follow each other would be reflected later; with a longer one, a rehearsal takes longer.
	quietPeriod = time.Second
)

// pace limits a rehearsal to a tenth of a core while objects are being reflected. If no object has been reflected for a
// while, the rehearsal runs at full speed.
type pace struct {
	queues interface {
		Queued() (waiting int, evaluated uint64)
	}
	clock     clock.Clock
	began     time.Time // start of the current slice
	evaluated uint64    // number of reflected objects at the start of the slice
	busy      time.Time // when an object was last being reflected
}

// wait pauses if the current slice is over. It returns the error of ctx if ctx is done.
func (p *pace) wait(ctx context.Context) error {
	worked := p.clock.Since(p.began)
	if !p.began.IsZero() && worked < slicePeriod {
		return ctx.Err()
	}
	waiting, evaluated := p.queues.Queued()
	if waiting > 0 || evaluated != p.evaluated && !p.began.IsZero() {
		p.busy = p.clock.Now()
	}
	if !p.began.IsZero() && p.clock.Since(p.busy) < quietPeriod {
		select {
		case <-p.clock.After(restPerSlice * worked):
		case <-ctx.Done():
		}
	}
	p.began, p.evaluated = p.clock.Now(), evaluated
	return ctx.Err()
}
