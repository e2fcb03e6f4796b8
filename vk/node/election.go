// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/cmdutil"
)

// ErrLeadershipLost is returned if the lease was not renewed in time. Another replica may have become the leader.
var ErrLeadershipLost = errors.New("the lease was lost: another replica may be active now")

// Election elects a leader among replicas by means of a Lease.
type Election struct {
	Client kubernetes.Interface
	// Namespace and Name identify the Lease, and Identity identifies this replica.
	Namespace, Name, Identity string
	// Duration is how long the holder may fail to renew the lease before another replica takes it. RenewDeadline is how
	// long the holder tries to renew the lease before it stops leading. RetryPeriod is the delay between attempts.
	Duration, RenewDeadline, RetryPeriod time.Duration
	// Gone reports whether a holder is known to be gone, so that another replica may take the lease before it
	// expires. If Gone is nil, every lease must expire first.
	Gone func(holder string) bool
	// StandBy is called whenever another replica is the leader. It may be nil.
	StandBy func(leader string)
}

// Run waits until this replica is the leader, and then calls lead. The context of lead ends when ctx ends or the lease
// is lost. The lease is released after lead has returned. In this way, the next replica starts at once, and two
// replicas are never leaders at the same time. Run returns the result of lead or ErrLeadershipLost. If ctx has ended
// while Run was waiting, it returns nil.
func (e Election) Run(ctx context.Context, lead func(context.Context) error) error {
	for e.awaitFree(ctx) {
		if led, err := e.acquireLease(ctx, lead); led || err != nil {
			return err
		}
	}
	return nil
}

// acquireLease tries to acquire the lease, which was free a moment ago. led reports whether the function lead was
// called. It was not called if another replica was faster or ctx has ended.
func (e Election) acquireLease(ctx context.Context, lead func(context.Context) error) (led bool, err error) {
	term := &term{lead: lead, ended: make(chan struct{})}
	// The lease must be renewed until lead has returned, so this context must not end when ctx ends.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	withdraw := func() {
		if !term.started.Load() {
			stop()
		}
	}
	defer context.AfterFunc(ctx, withdraw)()
	elector, err := leaderelection.NewLeaderElector(e.electionConfig(ctx, term, stop, withdraw))
	if err != nil {
		return false, fmt.Errorf("setting up the election of %s/%s, %w", e.Namespace, e.Name, err)
	}
	elector.Run(renewing)
	if !term.started.Load() {
		return false, nil
	}
	<-term.ended
	if !term.finished.Load() {
		return true, errors.Join(fmt.Errorf("leading by the lease %s/%s, %w", e.Namespace, e.Name, ErrLeadershipLost), term.result)
	}
	return true, term.result
}

// term is a period during which this replica is the leader.
type term struct {
	lead     func(context.Context) error
	result   error // result of lead; valid after ended is closed
	started  atomic.Bool
	finished atomic.Bool // lead has returned, but the lease was not lost
	ended    chan struct{}
}

// runLead runs lead until it returns, ctx ends or the lease is lost.
func (t *term) runLead(ctx, leading context.Context, stop func()) {
	defer close(t.ended)
	t.started.Store(true)
	working, cancel := context.WithCancel(leading)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	t.result = t.lead(working)
	t.finished.Store(leading.Err() == nil)
	stop()
}

func (e Election) electionConfig(ctx context.Context, term *term, stop, withdraw func()) leaderelection.LeaderElectionConfig {
	logger := log.FromContext(ctx).WithValues("lease", e.Namespace+"/"+e.Name, "identity", e.Identity)
	return leaderelection.LeaderElectionConfig{
		Lock: cmdutil.KeepUntil(&resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     e.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		}, term.finished.Load),
		LeaseDuration: e.Duration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				logger.Info("This replica leads")
				term.runLead(ctx, leading, stop)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				// There is no other leader. An empty holder means that the lease was released and is free for a moment.
				if leader == e.Identity || leader == "" {
					return
				}
				withdraw()
			},
		},
	}
}
