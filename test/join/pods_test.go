// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import "testing"

// runPods runs the Deployments of this project until stop is called.
func runPods(t *testing.T, s *side, bin string) (stop func()) { return s.Run(t, bin) }

// redirectWebhooks lets the API server call the webhooks of the chart on this machine.
func redirectWebhooks(t *testing.T, s *side) {
	t.Helper()
	s.RedirectWebhooks(t)
}
