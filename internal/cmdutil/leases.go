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

// LeaseClient returns a client for leases alone, whose requests take no longer than timeout. It asks over connections of its
// own, which end with a request that gets no answer: over a shared one that has died unnoticed, an API server
// that is back would be found late.
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

// errStillLeading is for the log of the elector: the lease runs out then.
var errStillLeading = errors.New("the lease is not released before this replica has ended its work")

// KeepUntil returns the lock, which cannot be released before ended reports true. The elector releases it as soon as it could
// not renew it in time, though this replica has only begun to end its work.
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
