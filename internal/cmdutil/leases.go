// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseClient returns a client for leases only, with a timeout for each request. It has its own connections, which are
// closed when a request times out. On a shared connection, it would take too long to notice that the connection is
// broken but the API server is reachable again.
func LeaseClient(config *rest.Config, timeout time.Duration) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Timeout = timeout
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for leases on %s, %w", config.Host, err)
	}
	return client, nil
}

// errStillLeading is the error for a lease that is released too early. The leader elector logs it, and then lets the
// lease expire.
var errStillLeading = errors.New("the lease is not released before this replica has ended its work")

// KeepUntil returns a lock that cannot be released before ended returns true. It is needed because the leader elector
// releases a lease as soon as it cannot be renewed in time. At this moment, the replica has only begun to stop its
// work.
func KeepUntil(lock resourcelock.Interface, ended func() bool) resourcelock.Interface {
	return keptLock{lock, ended}
}

type keptLock struct {
	resourcelock.Interface
	ended func() bool
}

// Update implements resourcelock.Interface.
func (l keptLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && !l.ended() {
		return errStillLeading
	}
	return l.Interface.Update(ctx, record)
}
