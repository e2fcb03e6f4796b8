// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/pinger"
)

// probes checks whether the API servers of providers respond. It is safe for concurrent use.
type probes struct {
	runningProbes[*probe]
	options Options
	changed chan<- event.GenericEvent
}

// probe checks one API server.
type probe struct {
	kubeconfig []byte
	validity   credentials.Validity
	certified  bool // the kubeconfig contains a certificate that refractctl peer has requested
	connection *connection.Connection
	pinger     *pinger.Pinger
	stop       context.CancelFunc

	mu      sync.Mutex
	latency time.Duration // latency of the last response
	noted   bool          // a latency was written to the status
}

func (p *probe) stopPinger() { p.stop() }

func newProbes(options Options, changed chan<- event.GenericEvent) *probes {
	return &probes{runningProbes: newRunningProbes[*probe](), options: options, changed: changed}
}

// probeFor returns the probe of a cluster, which uses the given kubeconfig from now on. tenant is this cluster's tenant
// namespace on the provider. The Lease in this namespace contains the ID of the provider.
func (p *probes) probeFor(cluster, tenant string, kubeconfig []byte) (*probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	config, err := remote.ParseKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	if known := p.of[cluster]; known != nil {
		if bytes.Equal(known.kubeconfig, kubeconfig) {
			return known, nil
		}
		if known.connection.URL().String() == strings.TrimSuffix(config.Host, "/") && known.connection.Update(config) == nil {
			known.kubeconfig, known.validity, known.certified = kubeconfig, credentials.ValidityOf(config), p.isCertified(config)
			return known, nil
		}
		// The result of the previous API server does not apply to the new one.
		p.stopProbeLocked(cluster)
	}
	conn, err := connection.New(config, remote.SmallAnswers)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: cluster, TenantNamespace: tenant})
	ctx, stop := context.WithCancel(p.lifetime)
	started := &probe{kubeconfig: kubeconfig, validity: credentials.ValidityOf(config), certified: p.isCertified(config), connection: conn, stop: stop}
	livez := pinger.Livez(conn.URL(), conn.Streams())
	started.pinger = pinger.New(func(ctx context.Context) error {
		asked := p.options.Clock.Now()
		err := livez(ctx)
		if err == nil {
			started.recordLatency(p.options.Clock.Since(asked))
		}
		return err
	}, p.options.PingInterval, p.options.PingTimeout, p.options.Clock)
	started.pinger.Subscribe(triggerReconcile(ctx, cluster, p.changed))
	p.of[cluster] = started
	go started.pinger.Run(ctx)
	return started, nil
}

func (p *probes) isCertified(config *rest.Config) bool {
	return clientcert.ValidityFor(config.CertData, clientcert.Consumer(p.options.ClusterID), nil).Known()
}

func (p *probe) recordLatency(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = after
}

// lastLatency returns the latency of the last response, or 0 before the first response.
func (p *probe) lastLatency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latency
}

// markLatencyWritten records that a latency was written to the status.
func (p *probes) markLatencyWritten(cluster string) {
	p.mu.Lock()
	known := p.of[cluster]
	p.mu.Unlock()
	if known != nil {
		known.mu.Lock()
		defer known.mu.Unlock()
		known.noted = true
	}
}

func (p *probe) isLatencyWritten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noted
}

// isSettled reports whether the first probe has completed.
func (p *probe) isSettled() bool {
	select {
	case <-p.pinger.Settled():
		return true
	default:
		return false
	}
}
