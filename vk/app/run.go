// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/vk/app/options"
	"github.com/refract-project/refract/vk/node"
)

// runKubelet runs the virtual kubelet. It returns when ctx has ended and all parts have stopped, or when this replica
// can no longer become the leader.
func runKubelet(ctx context.Context, o *options.Options) (err error) {
	log.Log.Info("Starting", "version", cmdutil.Version(), "node", o.NodeName, "provider", o.ForeignClusterID)
	denials, process := admission.NewDenials(), cmdutil.NewRegistrations(metrics.Registry)
	defer process.Close()
	if err := process.Register(denials); err != nil {
		return fmt.Errorf("registering metrics, %w", err)
	}
	local, client, err := o.LocalClient(denials.Transport)
	if err != nil {
		return err
	}
	elector, err := cmdutil.LeaseClient(local, o.ElectRenew/2)
	if err != nil {
		return err
	}
	k := &kubelet{Options: o, local: local, client: client, elector: elector, report: newReporter(o, client)}
	defer k.report.closeBroadcaster()
	if len(o.Ignored) > 0 {
		unknown := strings.Join(o.Ignored, ", ")
		log.Log.Info("Ignoring unknown flags", "flags", unknown)
		k.report.reportWarning(unknownFlagsReason, "Unknown flags are ignored: "+unknown+". Remove them, or upgrade the virtual kubelet")
	}
	// The port is opened before the election, because a replica that cannot serve the kubelet API must not lead.
	if k.listener, err = listenKubeletAPI(o); err != nil {
		return err
	}
	defer k.listener.Close() //nolint:errcheck // nothing is lost with it

	group, ctx := errgroup.WithContext(ctx)
	if err := k.serveOperations(ctx, group); err != nil {
		return err
	}
	group.Go(func() error {
		defer log.Log.Info("Stopped", "node", o.NodeName)
		k.ready.waitFor(fmt.Sprintf("the lease %s/%s has not been read yet", o.TenantNamespace, o.NodeName))
		if err := k.competeForLease(ctx); err != nil {
			return err
		}
		return errEnded
	})
	if err := group.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// errEnded is the cause for stopping the servers after the virtual kubelet has ended without an error.
var errEnded = errors.New("ended")

// kubelet is the process of the virtual kubelet.
type kubelet struct {
	*options.Options
	local    *rest.Config
	client   kubernetes.Interface
	elector  kubernetes.Interface // client that is only used for leases
	listener lastingListener      // listener of the kubelet API
	report   *reporter
	ready    readiness
	// declaredWereRead is true after the declared plugins have been read for the first time.
	declaredWereRead atomic.Bool
}

// listenKubeletAPI opens the port of the kubelet API and returns its listener.
func listenKubeletAPI(o *options.Options) (lastingListener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(o.ListenAddress, strconv.Itoa(int(o.ListenPort))))
	if err != nil {
		return lastingListener{}, fmt.Errorf("--listen-address=%s --listen-port=%d: listening there, %w", o.ListenAddress, o.ListenPort, err)
	}
	return lastingListener{listener.(*net.TCPListener)}, nil
}

// lastingListener is a listener that keeps its port open while this replica is not the leader, because the port is part
// of the replica's identity.
type lastingListener struct{ *net.TCPListener }

// lendListener returns the listener for one server. When the server stops and closes the listener, the port remains
// open.
func (l lastingListener) lendListener() net.Listener {
	_ = l.SetDeadline(time.Time{}) // if this fails, Accept returns the error, too
	return lentListener(l)
}

type lentListener struct{ *net.TCPListener }

// Close makes Accept return, but keeps the port open.
func (l lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }

// replicaIdentity returns the identity of this replica in elections. In a pod, it is the name of the pod, so that a
// restarted container takes over its own lease at once. Outside of pods, several replicas may run on one machine, so
// the identity also contains the port.
func (k *kubelet) replicaIdentity() string {
	if k.PodName != "" {
		return k.PodName
	}
	host, err := os.Hostname()
	if err != nil {
		host = "virtual-kubelet"
	}
	return fmt.Sprintf("%s_%d", host, k.kubeletPort())
}

// kubeletPort returns the port of the kubelet API.
func (k *kubelet) kubeletPort() int { return k.listener.Addr().(*net.TCPAddr).Port }

func (k *kubelet) newElection(name, identity string) node.Election {
	return node.Election{
		Client: k.elector, Namespace: k.TenantNamespace, Name: name, Identity: identity,
		Duration: k.ElectDuration, RenewDeadline: k.ElectRenew, RetryPeriod: k.ElectRetry,
	}
}

// serveOperations starts the servers for metrics, probes and profiles. They run even if this replica is not the leader.
func (k *kubelet) serveOperations(ctx context.Context, group *errgroup.Group) error {
	scrapes := cmdutil.Endpoint{Flag: "metrics-address", Address: k.MetricsAddress, Handler: processMetrics()}
	if !k.MetricsEnabled {
		scrapes.Address = cmdutil.NoAddress
	}
	health := cmdutil.Endpoint{Flag: "health-probe-address", Address: k.HealthAddress, Handler: cmdutil.HealthHandler(
		map[string]healthz.Checker{"ping": healthz.Ping}, map[string]healthz.Checker{"kubelet": k.ready.checkReadiness})}
	return cmdutil.ServeEndpoints(ctx, group, scrapes, health, cmdutil.ProfilingEndpoint(k.Profiling))
}

// processMetrics returns the handler for the metrics of this process. It is served at --metrics-address, and by the
// kubelet API for clients that are permitted to read the metrics of the node.
func processMetrics() http.Handler {
	return cmdutil.MetricsHandler(metrics.Registry, cmdutil.ProcessMetrics())
}

// competeForLease acquires the lease and leads, again and again until ctx ends. The process does not exit after it has
// lost the lease, for example because this cluster's API server was unreachable for too long. Otherwise, its container
// would be restarted with an increasing delay.
func (k *kubelet) competeForLease(ctx context.Context) error {
	election := k.newElection(k.NodeName, k.replicaIdentity())
	for ctx.Err() == nil {
		warm := k.newStandby(ctx)
		election.StandBy = func(string) { warm.beginPreparation() }
		err := election.Run(ctx, func(ctx context.Context) error { return k.runActive(ctx, warm.takePrepared()) })
		warm.stopPreparation()
		if !errors.Is(err, node.ErrLeadershipLost) {
			return err
		}
		log.FromContext(ctx).Info("Lost the lease, competing for it again", "err", err)
	}
	return nil
}

// activateRetryDelay is the delay between two attempts to start if an API server rejects a request.
const activateRetryDelay = 2 * time.Second

// runActive runs the parts of the virtual kubelet on the leader until ctx ends. It uses the prepared parts, or creates
// the parts if prepared is nil.
func (k *kubelet) runActive(ctx context.Context, prepared *active) error {
	defer func() {
		k.ready.setActive(nil)
		k.ready.waitFor(fmt.Sprintf("the lease %s/%s was lost and has not been reacquired: check this cluster's API server", k.TenantNamespace, k.NodeName))
	}()
	if prepared != nil {
		return prepared.runLeader(ctx)
	}
	for {
		a, err := k.newActive(ctx, false)
		switch {
		case err == nil:
			a.startParts(ctx)
			return a.runLeader(ctx)
		case ctx.Err() != nil:
			return nil
		case !cmdutil.FromAPIServer(err):
			return err
		}
		log.FromContext(ctx).Error(err, "The virtual kubelet cannot start yet, retrying")
		k.ready.waitFor(err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(activateRetryDelay):
		}
	}
}
