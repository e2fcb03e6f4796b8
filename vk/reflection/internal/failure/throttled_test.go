// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestPausesAfterThrottling checks that the delay is the delay that the API server requests, or one second if it
// requests none, plus a random part of up to half the delay. Without the random part, the delay is at most the longest
// backoff after other errors.
func TestPausesAfterThrottling(t *testing.T) {
	t.Parallel()
	for seconds, first := range map[int]time.Duration{0: minThrottledDelay, 3: 3 * time.Second, 1 << 20: maxThrottledDelay} {
		err := WrapThrottled("the API server", apierrors.NewTooManyRequests("try again later", seconds))
		for range 100 {
			if after := Pause(err); after < first || after > first+first/2+1 {
				t.Errorf("a delay of %d s makes one of %s", seconds, after)
			}
		}
	}
}
