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
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/pinger"
)

// fabrics ask addresses of other clusters, across whatever connects their networks, whether they can be reached. Safe for concurrent
// use.
type fabrics struct {
	options Options
	changed chan<- event.GenericEvent

	mu       sync.Mutex
	lifetime context.Context // ends with the manager
	running  map[string]*fabric
}

// fabric is the way to one cluster.
type fabric struct {
	target string
	pinger *pinger.Pinger
	stop   context.CancelFunc
}

func newFabrics(options Options, changed chan<- event.GenericEvent) *fabrics {
	return &fabrics{options: options, changed: changed, lifetime: context.Background(), running: map[string]*fabric{}}
}

// begin has everything end with ctx.
func (f *fabrics) begin(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lifetime = ctx
}

// of returns who asks the target, and starts that.
func (f *fabrics) of(cluster, target string) (*pinger.Pinger, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.running[cluster]; known != nil && known.target == target {
		return known.pinger, nil
	}
	ask, err := reaching(target)
	if err != nil {
		return nil, err
	}
	f.end(cluster)
	ctx, stop := context.WithCancel(f.lifetime)
	started := &fabric{target: target, stop: stop, pinger: pinger.New(ask, f.options.PingInterval, f.options.PingTimeout, f.options.Clock)}
	started.pinger.Subscribe(announce(ctx, cluster, f.changed))
	f.running[cluster] = started
	go started.pinger.Run(ctx)
	return started.pinger, nil
}

// stop asks for the cluster no more.
func (f *fabrics) stop(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(cluster)
}

func (f *fabrics) end(cluster string) {
	if known := f.running[cluster]; known != nil {
		known.stop()
		delete(f.running, cluster)
	}
}

// announce has a cluster looked at, without waiting for a reconciliation that is under way.
func announce(ctx context.Context, cluster string, changed chan<- event.GenericEvent) func() {
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

// reaching returns how a target is asked: tcp://HOST:PORT accepts connections, http(s)://HOST/PATH answers whatever is no server error.
func reaching(target string) (func(context.Context) error, error) {
	parsed, err := url.Parse(target)
	if err != nil || parsed.Host == "" {
		return nil, errors.New("it is no address")
	}
	switch parsed.Scheme {
	case "tcp":
		if parsed.Port() == "" {
			return nil, errors.New("it has no port")
		}
		return func(ctx context.Context) error { return dialled(ctx, parsed.Host) }, nil
	case "http", "https":
		// A connection that is kept would not notice that no new one can be made. Whatever answers shows that there is a way.
		client := &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		return func(ctx context.Context) error { return answered(ctx, client, target) }, nil
	}
	return nil, fmt.Errorf("its scheme is %.20q", parsed.Scheme)
}

func dialled(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

func answered(ctx context.Context, client *http.Client, target string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusInternalServerError {
		err = fmt.Errorf("it says %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return errors.Join(err, response.Body.Close())
}

// probedNetwork asks the address that an annotation names; nil without one.
func (c *Controller) probedNetwork(cluster *core.ForeignCluster) *network {
	id := string(cluster.Spec.ClusterID)
	target, set := cluster.Annotations[wire.NetworkProbeAnnotation]
	if !set || c.options.PingInterval == 0 {
		c.fabrics.stop(id)
		return nil
	}
	asking, err := c.fabrics.of(id, target)
	if err != nil {
		c.fabrics.stop(id)
		return &network{status: core.ConditionStatusError, reason: invalidReason,
			message: fmt.Sprintf("annotation %s is %.80q, and %v: use tcp://HOST:PORT, or an http or https URL", wire.NetworkProbeAnnotation, target, err)}
	}
	select {
	case <-asking.Settled():
	default:
		if known := conditionOf(cluster.Status.Conditions, core.NetworkStatusCondition); known != nil && isNetworkProbeReason(known.Reason) {
			return &network{status: known.Status, reason: known.Reason, message: known.Message} // this process has only begun to ask
		}
		return &network{status: core.ConditionStatusPending, reason: probePendingReason, message: target + " has not answered yet"}
	}
	if down := asking.Unreachable(); down != nil {
		return &network{status: core.ConditionStatusError, reason: probeFailedReason,
			message: fmt.Sprintf("%s cannot be reached across the network between the clusters (%v): check routes and firewalls on the way", target, down)}
	}
	return &network{status: core.ConditionStatusEstablished, reason: probeReason, message: target + " answers"}
}
