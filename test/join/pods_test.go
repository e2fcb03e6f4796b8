// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import "testing"

// runPods runs Refract's Deployments as processes until stop is called.
func runPods(t *testing.T, s *side, bin string) (stop func()) { return s.Run(t, bin) }

// redirectWebhooks makes the API server call the chart's webhooks on this machine.
func redirectWebhooks(t *testing.T, s *side) {
	t.Helper()
	s.RedirectWebhooks(t)
}
