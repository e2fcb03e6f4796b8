// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/rbac"
)

// run returns when ctx ends and everything has been shut down.
func run(ctx context.Context, o *options) error {
	mgr, err := newManager(o)
	if err != nil {
		return err
	}
	if err := addProbes(mgr); err != nil {
		return err
	}
	ranges, err := o.ownRanges()
	if err != nil {
		return err
	}
	quotas, err := o.quotas()
	if err != nil {
		return err
	}
	err = controllers.Register(ctx, mgr, controllers.Options{
		ClusterID:                  core.ClusterID(o.clusterID),
		ShadowPodWorkers:           o.podWorkers,
		ShadowEndpointSliceWorkers: o.sliceWorkers,
		NamespaceWorkers:           o.spaceWorkers,
		RecordAfter:                o.recordAfter,
		DenyDirectConnections:      o.denyDirectConnections,
		RemoteClusterRole:          o.remoteClusterRole,
		ExtendedClusterRole:        o.extendedClusterRole,
		WithdrawalGrace:            o.withdrawalGrace,
		OwnCIDRs:                   ranges,
		Tenancy:                    o.tenancy(),
		Quotas:                     quotas,
		Installation:               o.liqoNamespace,
		Clock:                      clock.RealClock{},
		Registerer:                 metrics.Registry,
		Webhooks:                   o.webhooks(),
	})
	if err != nil {
		return cmdutil.Explain(err)
	}
	log.Log.Info("starting", "version", cmdutil.Version(), "cluster", o.clusterID)
	return mgr.Start(ctx)
}

func newManager(o *options) (manager.Manager, error) {
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	options, err := controllers.ManagerOptions(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the controllers on %s, %w", config.Host, cmdutil.Explain(err))
	}
	options.Cache.SyncPeriod = &o.resyncPeriod
	options.LeaderElection = o.leaderElection
	options.LeaderElectionID, options.LeaderElectionNamespace = rbac.LeaderElectionID, o.liqoNamespace
	// The next leader need not wait for the lease to run out. That is safe because the process ends when run returns.
	options.LeaderElectionReleaseOnCancel = true
	options.Metrics = metricsserver.Options{BindAddress: o.metricsAddress}
	options.HealthProbeBindAddress = o.healthAddress
	mgr, err := manager.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("preparing the controllers on %s, %w", config.Host, cmdutil.Explain(err))
	}
	return mgr, nil
}

// addProbes: alive is a process that answers; ready one whose caches are filled.
func addProbes(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding health check, %w", err)
	}
	synced := make(chan struct{})
	if err := mgr.Add(afterSync(synced)); err != nil {
		return fmt.Errorf("adding readiness check, %w", err)
	}
	return mgr.AddReadyzCheck("caches", cmdutil.Closed(synced, "waiting for the caches to be filled"))
}

// afterSync closes its channel once the caches are filled, on replicas that do
// not lead too: the manager starts it then.
type afterSync chan struct{}

func (a afterSync) Start(ctx context.Context) error {
	close(a)
	<-ctx.Done()
	return nil
}

func (afterSync) NeedLeaderElection() bool { return false }
