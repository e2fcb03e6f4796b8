// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/addresses"
	"github.com/refract-project/refract/controllers/foreigncluster"
	"github.com/refract-project/refract/controllers/gateways"
	"github.com/refract-project/refract/controllers/identity"
	"github.com/refract-project/refract/controllers/negotiation"
	"github.com/refract-project/refract/controllers/nodefailure"
	"github.com/refract-project/refract/controllers/resourceoffer"
	"github.com/refract-project/refract/controllers/resourcerequest"
	"github.com/refract-project/refract/controllers/resourceslice"
	"github.com/refract-project/refract/controllers/servingcertificate"
	"github.com/refract-project/refract/controllers/tenantaccess"
	"github.com/refract-project/refract/controllers/virtualnode"
	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/cmdutil"
)

// restartDelay is the pause between two attempts to start, so that everything that the first attempt has started can
// end.
const restartDelay = 2 * time.Second

// runManager runs the controllers. It returns when ctx is done and everything has been shut down. If the API server is
// unavailable for so long that the lease is lost, runManager starts the controllers again instead of returning: if the
// process exited, Kubernetes would restart the container with increasing delays. For the same reason, it does not
// return if the API server throttles requests while the controllers start.
func runManager(ctx context.Context, o *options) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	lease, err := newLease(ctx, config, o.liqoNamespace, o.electionID)
	if err != nil {
		return err
	}
	defer lease.closeBroadcaster()
	led := false
	for {
		err := serveWithLease(ctx, o, config, lease)
		lost := err != nil && strings.Contains(err.Error(), leaseLost)
		led = led || lost
		switch {
		case apifailure.IsOverloaded(err): // also while the process is being stopped, which is no failure
			log.Log.Info("The API server limits requests, starting again", "err", err)
		case ctx.Err() != nil:
			return err
		case led && (lost || cmdutil.FromAPIServer(err)):
			log.Log.Info("Lost the lease, competing for it again", "err", err)
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartDelay):
		}
	}
}

// leaseLost is the text of the error that a manager returns after it has lost its lease. The error has no type of its
// own, so this text is the only way to recognize it.
const leaseLost = "leader election lost"

// serveWithLease runs the controllers until ctx is done or the lease is lost.
func serveWithLease(ctx context.Context, o *options, config *rest.Config, lease *lease) error {
	mgr, err := newManager(o, config, lease)
	if err != nil {
		return err
	}
	registrations := cmdutil.NewRegistrations(metrics.Registry)
	defer registrations.Close()
	if err := addProbes(mgr); err != nil {
		return err
	}
	ranges, err := o.ownRanges()
	if err != nil {
		return err
	}
	reserved, err := o.reservedRanges()
	if err != nil {
		return err
	}
	rangesOf, err := o.rangesOf()
	if err != nil {
		return err
	}
	limits, err := o.limitsOfTenants()
	if err != nil {
		return err
	}
	limitRange, err := o.limitRangeOfTenants()
	if err != nil {
		return err
	}
	template, err := o.defaultTemplate()
	if err != nil {
		return err
	}
	quotas, err := o.quotaOptions()
	if err != nil {
		return err
	}
	acceptedLabels, err := o.labelAcceptance()
	if err != nil {
		return err
	}
	counts, err := o.countLimits()
	if err != nil {
		return err
	}
	defaults, err := o.consumerLimits()
	if err != nil {
		return err
	}
	admission, err := o.authentication.authenticationConfig()
	if err != nil {
		return err
	}
	err = controllers.Register(ctx, mgr, controllers.Options{
		ClusterID:                  core.ClusterID(o.clusterID),
		ShadowPodWorkers:           o.podWorkers,
		ShadowEndpointSliceWorkers: o.sliceWorkers,
		ForeignClusters:            foreigncluster.Options{Workers: o.clusterWorkers, PingInterval: o.pingInterval, PingTimeout: o.pingTimeout},
		ServingCertificates:        servingcertificate.Options{Enabled: o.approveServing},
		ResourceSlices:             resourceslice.Options{Enabled: o.sliceQuotas || o.authentication.enabled, Limits: quotas.Limits},
		Authentication:             admission,
		ResourceOffers:             resourceoffer.Options{Enabled: o.authentication.offers, Offer: admission.Offer},
		TenantAccess:               tenantaccess.Options{Enabled: o.authentication.tenantAccess, RolePrefix: o.authentication.rolePrefix},
		Identities:                 identity.Options{Enabled: o.joinProviders, RolePrefix: o.authentication.rolePrefix},
		ResourceRequests:           resourcerequest.Options{Enabled: template.Name != ""},
		Negotiation:                negotiation.Options{AcceptedLabels: acceptedLabels},
		Addresses:                  addresses.Options{Enabled: o.networkAddresses, Reserved: reserved},
		Gateways: gateways.Options{
			Enabled: o.gateways, RolePrefix: o.authentication.rolePrefix, KeyRotationInterval: o.keyRotation,
		},
		OffloadedPodIPs:       o.podIPs,
		NodeFailure:           nodefailure.Options{Enabled: o.nodeFailure, Workers: o.podWorkers, Delay: o.nodeFailureDelay},
		VirtualNodes:          virtualnode.Options{Workers: o.spaceWorkers, DefaultTemplate: template, DrainTimeout: o.drainTimeout, CreateAccounts: o.kubeletAccounts, RolePrefix: o.authentication.rolePrefix},
		Plugins:               o.pluginOptions(),
		NamespaceWorkers:      o.spaceWorkers,
		RecordAfter:           o.recordAfter,
		DenyDirectConnections: o.denyDirectConnections,
		RemoteClusterRole:     o.remoteClusterRole,
		ObjectCounts:          counts,
		ConsumerDefaults:      defaults,
		DefaultObjectCount:    o.defaultObjectCount,
		ExtendedClusterRole:   o.extendedClusterRole,
		WithdrawalGrace:       o.withdrawalGrace,
		OwnCIDRs:              ranges,
		RangesOf:              rangesOf,
		HomeDomains:           o.homeDomains,
		Tenancy:               o.tenancyOptions(limits),
		LimitRange:            limitRange,
		Quotas:                quotas,
		Installation:          o.liqoNamespace,
		Clock:                 clock.RealClock{},
		Registerer:            registrations,
		Webhooks:              o.webhookOptions(),
	})
	if err != nil {
		return cmdutil.Explain(err)
	}
	log.Log.Info("Starting", "version", cmdutil.Version(), "cluster", o.clusterID)
	return mgr.Start(ctx)
}

func newManager(o *options, config *rest.Config, lease *lease) (manager.Manager, error) {
	options, err := controllers.ManagerOptions(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the controllers on %s, %w", config.Host, cmdutil.Explain(err))
	}
	options.Cache.SyncPeriod = &o.resyncPeriod
	options.LeaderElection = o.leaderElection
	options.LeaderElectionResourceLockInterface = lease
	// The lease is released after everything has ended, so that the next leader need not wait until the lease expires.
	options.LeaderElectionReleaseOnCancel = true
	// controller-runtime rejects a controller whose name was used before. When this process becomes the leader again,
	// its controllers have the same names.
	again := true
	options.Controller.SkipNameValidation = &again
	options.Metrics = metricsserver.Options{BindAddress: o.metricsAddress}
	options.HealthProbeBindAddress = o.healthAddress
	mgr, err := manager.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("preparing the controllers on %s, %w", config.Host, cmdutil.Explain(err))
	}
	return mgr, nil
}

// addProbes adds the probes. The liveness probe succeeds if the process responds. The readiness probe succeeds when the
// caches are synced.
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

// afterSync is a runnable that closes the channel. The manager starts it when the caches are synced, even on a replica
// that is not the leader.
type afterSync chan struct{}

func (a afterSync) Start(ctx context.Context) error {
	close(a)
	<-ctx.Done()
	return nil
}

func (afterSync) NeedLeaderElection() bool { return false }
