// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/takeover"
)

// reporter logs and counts the changes of the kernel's configuration, and the reasons why objects are not applied.
type reporter struct {
	registry *prometheus.Registry
	// warn is called for each new reason why the objects of a peer are not applied. It must not block. It may be nil.
	warn func(text string)

	refusals, repairs           prometheus.Counter
	refused, connected, latency prometheus.Gauge
	active                      prometheus.Gauge
	applied, writes, failures   *prometheus.CounterVec
	statusWrites, takeovers     *prometheus.CounterVec
	answeredProbes              prometheus.Counter
	refusedProbes               prometheus.Counter
	ends, missingEnds           prometheus.Gauge
	tunnelMTU, pathMTU          prometheus.Gauge
	homePods, homePorts         prometheus.Gauge

	mutex sync.Mutex
	// reasons contains the present reasons, which have been logged, by the name of the check that found them.
	reasons map[string]map[string]bool
}

func newReporter() *reporter {
	registry := prometheus.NewRegistry()
	metrics := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return metrics.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return metrics.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return metrics.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	r := &reporter{
		registry: registry, reasons: map[string]map[string]bool{},
		refusals:  counter("refract_gateway_refusals_total", "reasons why objects were not applied, each counted once until it is gone"),
		refused:   gauge("refract_gateway_refused", "reasons why objects are not applied at present"),
		repairs:   counter("refract_gateway_repairs_total", "changes of the network configuration by others that were undone"),
		active:    gauge("refract_gateway_active", "1 while this pod carries the packets of its peering, 0 while it is on standby"),
		connected: gauge("refract_gateway_connected", "1 while the gateway of the peer answers pings"),
		latency:   gauge("refract_gateway_latency_seconds", "round-trip time to the gateway of the peer of the last answer; 0 while it does not answer"),
		applied:   vector("refract_gateway_comparisons_total", "comparisons of the kernel's configuration with the desired one that were the first for new objects, changed something or failed, by part: network or tunnel", "part"),
		writes:    vector("refract_gateway_writes_total", "changes of the kernel's configuration, by part: network or tunnel", "part"),
		failures:  vector("refract_gateway_failures_total", "failed changes of the kernel's configuration, by part: network or tunnel", "part"),
		statusWrites: vector("refract_gateway_connection_writes_total",
			"requests that write the Connection, by result: success or failure", "result"),
		takeovers: vector("refract_gateway_takeovers_total",
			"elections that this pod has won, by reason: elected if no pod was active, lost if the active one did not answer, or leaving if it was about to end", "reason"),
		answeredProbes: counter("refract_gateway_answered_probes_total",
			"probes of other pods of the gateway that this pod has answered"),
		refusedProbes: counter("refract_gateway_refused_probes_total",
			"packets at the port for probes between the pods of the gateway that were dropped, because no other pod has sent them"),
		tunnelMTU: gauge("refract_gateway_tunnel_mtu_bytes",
			"MTU of the tunnel at the last measurement of the path to the peer; 0 before the first measurement"),
		pathMTU: gauge("refract_gateway_path_mtu_bytes",
			"size of the largest packets that reach the gateway of the peer, at most the MTU of the tunnel; 0 before the first measurement, and if the peer does not run Refract"),
		homePods: gauge("refract_gateway_home_pods",
			"pods of consumers on this node that reach Services by the cluster IPs of their own cluster"),
		homePorts: gauge("refract_gateway_home_ports",
			"ports of Services that an agent translates from the cluster IPs in the clusters of consumers"),
		ends: gauge("refract_gateway_vxlan_ends",
			"other ends of VXLAN: for the active pod of a gateway the nodes, for an agent the gateways"),
		missingEnds: gauge("refract_gateway_vxlan_missing_ends",
			"other ends of VXLAN that do not answer: for the active pod of a gateway the nodes, for an agent the gateways"),
	}
	r.exportZeros()
	return r
}

// exportZeros creates all series of the counters with labels. Prometheus does not see the first increase of a series that begins with it.
func (r *reporter) exportZeros() {
	for _, part := range []string{"network", "tunnel"} {
		for _, counter := range []*prometheus.CounterVec{r.applied, r.writes, r.failures} {
			counter.WithLabelValues(part)
		}
	}
	for _, result := range []string{"success", "failure"} {
		r.statusWrites.WithLabelValues(result)
	}
	for _, reason := range []takeover.Reason{takeover.Elected, takeover.Lost, takeover.Leaving} {
		r.takeovers.WithLabelValues(string(reason))
	}
}

// report processes a Report of package gateway.
func (r *reporter) report(g gateway.Report) {
	if g.Compiled {
		r.refuse("peers", g.Refused)
	}
	if g.Implementation != "" {
		slog.Info("Opened the tunnel", "wireguard", g.Implementation)
	}
	if g.TunnelWrites > 0 || g.TunnelError != nil {
		r.count("tunnel", g.TunnelWrites, g.TunnelError)
	}
	if g.Network != nil {
		if g.Network.Repair && g.Network.Writes > 0 {
			r.repairs.Inc()
			slog.Warn("Undid changes that another process made to the network configuration", "changes", g.Network.Writes)
		}
		r.count("network", g.Network.Writes, g.Network.Err)
	}
	if g.Latency > 0 {
		r.latency.Set(g.Latency.Seconds())
	}
	if g.Active != nil {
		r.setActive(*g.Active)
	}
	if g.PathMTU != nil {
		r.tunnelMTU.Set(float64(g.PathMTU.Tunnel))
		r.pathMTU.Set(float64(g.PathMTU.Path))
		if g.PathMTU.Changed {
			slog.Warn("Packets to the peer are limited to another size", "bytes", g.PathMTU.Path, "tunnel", g.PathMTU.Tunnel)
		}
	}
	if g.Leg != nil {
		r.ends.Set(float64(g.Leg.Total))
		r.missingEnds.Set(float64(len(g.Leg.Missing)))
		if len(g.Leg.Missing) > 0 {
			slog.Warn("Other ends of VXLAN do not answer", "missing", formatNames(g.Leg.Missing), "of", g.Leg.Total)
		} else {
			slog.Info("All other ends of VXLAN answer or are new", "ends", g.Leg.Total)
		}
	}
	if c := g.Connection; c != nil {
		r.latency.Set(c.Latency.Seconds())
		if c.Connected {
			r.connected.Set(1)
			slog.Info("Connected to the gateway of the peer", "latency", c.Latency)
		} else {
			r.connected.Set(0)
			slog.Warn("The gateway of the peer does not answer")
		}
	}
}

// setActive records whether this pod is active. A standby does not know whether the peer answers.
func (r *reporter) setActive(active bool) {
	if active {
		r.active.Set(1)
		slog.Info("This pod carries the packets of the peering")
		return
	}
	r.active.Set(0)
	r.connected.Set(0)
	r.latency.Set(0)
	r.tunnelMTU.Set(0)
	r.pathMTU.Set(0)
	slog.Info("This pod is on standby, another one carries the packets of the peering")
}

func (r *reporter) count(part string, writes int, err error) {
	r.applied.WithLabelValues(part).Inc()
	r.writes.WithLabelValues(part).Add(float64(writes))
	if err != nil {
		r.failures.WithLabelValues(part).Inc()
		slog.Error("Changing the kernel's configuration failed", "part", part, "err", err)
	} else if writes > 0 {
		slog.Info("Changed the kernel's configuration", "part", part, "changes", writes)
	}
}

// refuse logs and counts the new reasons of a check, and drops reasons that no longer apply. err contains the present
// reasons.
func (r *reporter) refuse(check string, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	before, now := r.reasons[check], map[string]bool{}
	for _, reason := range splitErrors(err) {
		text := reason.Error()
		now[text] = true
		if before[text] {
			continue
		}
		r.refusals.Inc()
		kept := true
		if refusal := (*desired.Refusal)(nil); errors.As(reason, &refusal) {
			kept = refusal.Kept
		}
		slog.Warn("Objects are not applied", "err", reason, "kept", kept)
		if r.warn != nil {
			r.warn(text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(before)) {
		if !now[text] {
			slog.Info("A reason why objects were not applied is gone", "was", text)
		}
	}
	r.reasons[check] = now
	total := 0
	for _, reasons := range r.reasons {
		total += len(reasons)
	}
	r.refused.Set(float64(total))
}

// splitErrors returns the errors that are joined in err.
func splitErrors(err error) []error {
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		return joined.Unwrap()
	}
	return []error{err}
}
