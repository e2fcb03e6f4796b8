// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package brake

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/internal/oscillation"
)

// A reconciliation whose only error is a quarantine does not count as failed: it is repeated when the quarantine ends.
// With another error it is retried as usual.
func TestOnlyAQuarantineIsWaitedFor(t *testing.T) {
	fight, other := &oscillation.QuarantineError{Left: time.Minute}, errors.New("other")
	for name, tc := range map[string]struct {
		wait, want time.Duration
		err        error
		fails      bool
	}{
		"nothing":               {wait: time.Second, want: time.Second},
		"a quarantine":          {err: fight, want: time.Minute},
		"one that is wrapped":   {err: errors.Join(nil, fmt.Errorf("creating it, %w", fight)), want: time.Minute},
		"with an earlier retry": {wait: time.Second, err: fight, want: time.Second},
		"with another error":    {err: errors.Join(fight, other), fails: true},
		"another error":         {err: other, fails: true},
	} {
		wait, err := Wait(tc.wait, tc.err)
		assert.Equal(t, tc.want, wait, name)
		assert.Equal(t, tc.fails, err != nil, name)
	}
}
