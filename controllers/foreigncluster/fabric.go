// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/event"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/pinger"
)

// networkProbes probes addresses of other clusters through the network between the clusters. It is safe for concurrent
// use.
type networkProbes struct {
	runningProbes[*networkProbe]
	options Options
	changed chan<- event.GenericEvent
}

// networkProbe probes an address of one cluster.
type networkProbe struct {
	target string
	pinger *pinger.Pinger
	stop   context.CancelFunc
}

func (f *networkProbe) stopPinger() { f.stop() }

func newNetworkProbes(options Options, changed chan<- event.GenericEvent) *networkProbes {
	return &networkProbes{runningProbes: newRunningProbes[*networkProbe](), options: options, changed: changed}
}

// pingerFor returns the pinger of the target, and starts it if necessary.
func (f *networkProbes) pingerFor(cluster, target string) (*pinger.Pinger, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.of[cluster]; known != nil && known.target == target {
		return known.pinger, nil
	}
	ask, err := probeOf(target)
	if err != nil {
		return nil, err
	}
	f.stopProbeLocked(cluster)
	ctx, stop := context.WithCancel(f.lifetime)
	started := &networkProbe{target: target, stop: stop, pinger: pinger.New(ask, f.options.PingInterval, f.options.PingTimeout, f.options.Clock)}
	started.pinger.Subscribe(triggerReconcile(ctx, cluster, f.changed))
	f.of[cluster] = started
	go started.pinger.Run(ctx)
	return started.pinger, nil
}

// triggerReconcile returns a function that triggers a reconciliation of the cluster. The function does not wait for the
// reconciliation.
func triggerReconcile(ctx context.Context, cluster string, changed chan<- event.GenericEvent) func() {
	object := &core.ForeignCluster{}
	object.Spec.ClusterID = core.ClusterID(cluster)
	return func() {
		go func() {
			select {
			case changed <- event.GenericEvent{Object: object}:
			case <-ctx.Done():
			}
		}()
	}
}

// probeOf returns the probe of a target. The target tcp://HOST:PORT must accept connections, and http(s)://HOST/PATH
// must respond without a server error.
func probeOf(target string) (func(context.Context) error, error) {
	parsed, err := url.Parse(target)
	if err != nil || parsed.Host == "" {
		return nil, errors.New("it is not an address")
	}
	switch parsed.Scheme {
	case "tcp":
		if parsed.Port() == "" {
			return nil, errors.New("it has no port")
		}
		return func(ctx context.Context) error { return dialTarget(ctx, parsed.Host) }, nil
	case "http", "https":
		// Connections are not kept, because an existing connection would hide that new connections fail. Any response
		// shows that the address is reachable.
		client := &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		return func(ctx context.Context) error { return requestTarget(ctx, client, target) }, nil
	}
	return nil, fmt.Errorf("its scheme is %.20q", parsed.Scheme)
}

func dialTarget(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

func requestTarget(ctx context.Context, client *http.Client, target string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusInternalServerError {
		err = fmt.Errorf("it returned %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return errors.Join(err, response.Body.Close())
}

// probedNetwork probes the address in the annotation of the ForeignCluster. It returns nil if there is no annotation or
// probes are disabled.
func (c *Controller) probedNetwork(cluster *core.ForeignCluster) *network {
	id := string(cluster.Spec.ClusterID)
	target, set := cluster.Annotations[wire.NetworkProbeAnnotation]
	if !set || c.options.PingInterval == 0 {
		c.fabrics.stopProbe(id)
		return nil
	}
	asking, err := c.fabrics.pingerFor(id, target)
	if err != nil {
		c.fabrics.stopProbe(id)
		return &network{status: core.ConditionStatusError, reason: invalidReason,
			message: fmt.Sprintf("Annotation %s is %.80q: %v; use tcp://HOST:PORT, or an http or https URL", wire.NetworkProbeAnnotation, target, err)}
	}
	select {
	case <-asking.Settled():
	default:
		if known := conditionOf(cluster.Status.Conditions, core.NetworkStatusCondition); known != nil && isNetworkProbeReason(known.Reason) {
			// The condition does not change until the first probe of this process has completed.
			return &network{status: known.Status, reason: known.Reason, message: known.Message}
		}
		return &network{status: core.ConditionStatusPending, reason: probePendingReason, message: target + " has not answered yet"}
	}
	if down := asking.Unreachable(); down != nil {
		return &network{status: core.ConditionStatusError, reason: probeFailedReason,
			message: fmt.Sprintf("%s is unreachable across the network between the clusters (%v): check routes and firewalls", target, down)}
	}
	return &network{status: core.ConditionStatusEstablished, reason: probeReason, message: target + " answers"}
}
