// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"log/slog"
	"time"
)

// Env is what the calls of a run may use besides the object. It is not safe for concurrent use.
type Env struct {
	Logger  *slog.Logger                   // nil for the logger of the module
	RemapIP func(ip string) (string, bool) // nil if no address has a translation
	Clock   Clock
}

// Clock measures the calls of a run, and knows when its time is up. It reads only the monotonic clock, which takes half
// as long as time.Now. Otherwise a chain whose plugin does nothing would take a quarter longer.
type Clock struct {
	timeout time.Duration
	ends    time.Duration // deadline of the run, as a reading of the clock
	began   time.Duration // start of the current call
	// slowest is the plugin with the slowest earlier call, and longest is the duration of this call.
	slowest string
	longest time.Duration
	zero    time.Time     // the time that readings are relative to
	last    time.Duration // last reading by Lap
}

// StartRun starts a run that must end within the timeout.
func (c *Clock) StartRun(timeout time.Duration) {
	c.timeout, c.began = timeout, c.readClock()
	c.ends, c.slowest, c.longest = c.began+timeout, "", 0
}

// EndTurn records that the call of a plugin has ended, and the call of the next plugin begins. If the time is up, it
// returns a *LimitError, which names the slowest plugin.
func (c *Clock) EndTurn(plugin, during string) error {
	now := c.readClock()
	if now > c.ends {
		return c.lateErrorAt(now, plugin, during)
	}
	c.recordTurn(plugin, now)
	return nil
}

// Lap returns the time since the last call of Lap.
func (c *Clock) Lap() time.Duration {
	now := c.readClock()
	lap := now - c.last
	c.last = now
	return lap
}

// readClock returns the time since the first use of c.
func (c *Clock) readClock() time.Duration {
	if c.zero.IsZero() {
		c.zero = time.Now()
	}
	return time.Since(c.zero)
}

// recordTurn records that the call of a plugin ended at now.
func (c *Clock) recordTurn(plugin string, now time.Duration) {
	if took := now - c.began; c.slowest == "" || took > c.longest {
		c.slowest, c.longest = plugin, took
	}
	c.began = now
}

// isLate reports whether the time is up.
func (c *Clock) isLate() bool { return c.readClock() > c.ends }

// lateError returns the error for a timeout during the call of a plugin. It names the slowest plugin of the run, which
// may be another one.
func (c *Clock) lateError(plugin, during string) error {
	return c.lateErrorAt(c.readClock(), plugin, during)
}

func (c *Clock) lateErrorAt(now time.Duration, plugin, during string) error {
	c.recordTurn(plugin, now)
	return &LimitError{Plugin: c.slowest, During: during, Limit: LimitTime, Max: int64(c.timeout.Seconds())}
}
