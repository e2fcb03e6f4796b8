// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package networks_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/networks"
)

// TestRangesOfOtherClusters checks that the published ranges of all other clusters are known as soon as the network
// module is installed, and not guessed before. A Configuration that is not accepted any more keeps its ranges, because
// gateways may still serve them.
func TestRangesOfOtherClusters(t *testing.T) {
	undefine(t)
	n, err := networks.New(provider.Config())
	require.NoError(t, err)
	var notifications atomic.Int32
	n.FollowRanges(func() { notifications.Add(1) })
	impatient, stop := context.WithCancel(t.Context())
	stop()
	_, err = n.RangesOfOthers(impatient, "home")
	require.ErrorIs(t, err, networks.ErrNotYet)

	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- n.Start(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	await := func(cluster string, want ...string) {
		t.Helper()
		controllertest.Eventually(t, fmt.Sprintf("ranges %q for %s", want, cluster), func() error {
			ranges, err := n.RangesOfOthers(t.Context(), cluster)
			if err != nil {
				return err
			}
			var got []string
			for _, r := range ranges {
				got = append(got, r.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		})
	}
	awaitNotification := func() {
		t.Helper()
		controllertest.Eventually(t, "a notification", func() error {
			if notifications.Swap(0) == 0 {
				return fmt.Errorf("there is none")
			}
			return nil
		})
	}
	await("home")
	define(t)
	namespace := provider.Namespace(t)
	turin := configure(t, namespace, "turin", "{pod: [10.0.0.0/16, 10.1.0.0/16], external: [10.70.0.0/16]}")
	configure(t, namespace, "naples", "{pod: [10.2.0.0/16]}")
	remap(t, turin, "{pod: [10.30.0.0/16, 10.31.0.0/16, much], external: [10.80.7.0/16]}")
	await("home", "10.30.0.0/15", "10.80.0.0/16")
	await("turin")
	awaitNotification()

	provider.PatchStatus(t, turin, `{"status":{"conditions":[{"type":"NetworkCIDRsConfigured","status":"False","reason":"RangeRefused"}]}}`)
	configure(t, namespace, "turin", "{pod: [0.0.0.0/0]}")
	provider.Patch(t, turin, `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"home"}}}`)
	await("home")
	await("turin", "10.30.0.0/15", "10.80.0.0/16")
	awaitNotification()
	provider.Patch(t, turin, `{"metadata":{"labels":null}}`)
	await("home", "10.30.0.0/15", "10.80.0.0/16")
	await("", "10.30.0.0/15", "10.80.0.0/16")
	awaitNotification()

	provider.Delete(t, turin)
	await("home")
	awaitNotification()
}
