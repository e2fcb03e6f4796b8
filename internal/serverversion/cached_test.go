// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package serverversion

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestVersionsAreCached(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	answer, failure, reads := "v1.35.0", errors.New("unreachable"), 0
	version := Cached(func(context.Context) (string, error) { reads++; return answer, failure }, clock)
	expect := func(want string, wantReads int) {
		t.Helper()
		got, err := version(t.Context())
		assert.Equal(t, want, got)
		assert.Equal(t, failure, err)
		assert.Equal(t, wantReads, reads)
	}
	answer = ""
	expect("", 1)
	expect("", 2) // errors are not cached
	answer, failure = "v1.35.0", nil
	expect("v1.35.0", 3)
	answer = "v1.36.0"
	clock.Step(CacheLifetime - time.Second)
	expect("v1.35.0", 3)
	clock.Step(time.Second)
	expect("v1.36.0", 4)
}
