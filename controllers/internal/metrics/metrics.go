// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what the controllers do: the writes of their clients, the Events of their recorders, and the
// errors of their reconciliations.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/eventrecorder"
)

// The values of the label cluster: the cluster that a controller writes to.
const (
	// Local is the cluster where the controllers run.
	Local = "local"
	// Provider is any cluster that namespaces are offloaded to.
	Provider = "provider"
)

// Metrics contains the metrics of all controllers. It is safe for concurrent use.
type Metrics struct {
	writes, denials, failures, warnings        *prometheus.CounterVec
	peerUp, peerLatency, peerExpiry, peerIssue *prometheus.GaugeVec
}

// New returns the metrics. It registers them with registerer, unless registerer is nil.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		writes: counter("refract_controller_api_writes_total",
			"Writes sent to API servers, refused ones included, Events not: to the local cluster or to a provider.",
			"controller", "kind", "subresource", "verb", "destination"),
		denials: counter("refract_controller_policy_denials_total",
			"Writes that an admission policy denied, by policy.", "controller", "destination", "policy"),
		failures: counter("refract_controller_errors_total",
			"Failed reconciliations, by error class: who can fix it.", "controller", "class"),
		warnings: counter("refract_controller_warnings_total",
			"Warning Events for users, by reason.", "controller", "reason"),
	}
	m.peerUp = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "refract_foreign_cluster_up",
		Help: "1 if the check of a peered cluster succeeds, 0 if it fails. Checks that are not made are absent."}, []string{"peer", "check"})
	m.peerLatency = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "refract_foreign_cluster_api_server_latency_seconds",
		Help: "How long the API server of a peered cluster took to answer the last probe."}, []string{"peer"})
	m.peerExpiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "refract_foreign_cluster_credentials_expiration_timestamp_seconds",
		Help: "Expiry of the credentials for a peered cluster, in seconds since 1970."}, []string{"peer"})
	m.peerIssue = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "refract_foreign_cluster_credentials_issue_timestamp_seconds",
		Help: "Time at which these credentials were issued, in seconds since 1970."}, []string{"peer"})
	return m, register(registerer, m.writes, m.denials, m.failures, m.warnings, m.peerUp, m.peerLatency, m.peerExpiry, m.peerIssue)
}

// Peer is the state of a peered cluster. The zero value means that the cluster is no longer a peer.
type Peer struct {
	// Server reports whether the cluster's API server is up. Network reports whether the network to the cluster is up.
	// They are nil if this is not checked.
	Server, Network *bool
	// Latency is the latency of the API server. It is 0 if the API server was not probed.
	Latency time.Duration
	// Credentials is the validity period of the credentials for the cluster. It is zero if there are no credentials or
	// if they have no known expiry.
	Credentials credentials.Validity
}

// Peer exports the state of a peered cluster.
func (m *Metrics) Peer(cluster string, state Peer) {
	for check, up := range map[string]*bool{"api_server": state.Server, "network": state.Network} {
		switch {
		case up == nil:
			m.peerUp.DeleteLabelValues(cluster, check)
		case *up:
			m.peerUp.WithLabelValues(cluster, check).Set(1)
		default:
			m.peerUp.WithLabelValues(cluster, check).Set(0)
		}
	}
	if state.Latency == 0 {
		m.peerLatency.DeleteLabelValues(cluster)
	} else {
		m.peerLatency.WithLabelValues(cluster).Set(state.Latency.Seconds())
	}
	if !state.Credentials.Known() {
		m.peerExpiry.DeleteLabelValues(cluster)
		m.peerIssue.DeleteLabelValues(cluster)
	} else {
		m.peerExpiry.WithLabelValues(cluster).Set(float64(state.Credentials.Until.Unix()))
		m.peerIssue.WithLabelValues(cluster).Set(float64(state.Credentials.From.Unix()))
	}
}

// RegisterQuarantined exports how many of a controller's objects are not written because another client keeps reverting
// them.
func RegisterQuarantined(registerer prometheus.Registerer, controller string, quarantined func() int) error {
	return register(registerer, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "refract_controller_quarantined",
		Help:        "Objects that the controller leaves alone for a while because another client keeps reverting them.",
		ConstLabels: prometheus.Labels{"controller": controller}}, func() float64 { return float64(quarantined()) }))
}

func register(registerer prometheus.Registerer, collectors ...prometheus.Collector) error {
	if registerer == nil {
		return nil
	}
	var problems []error
	for _, collector := range collectors {
		problems = append(problems, registerer.Register(collector))
	}
	return errors.Join(problems...)
}

// Client returns a client that counts the controller's writes through c. cluster is Local or Provider.
func (m *Metrics) Client(c client.Client, controller, cluster string) client.Client {
	labels := prometheus.Labels{"controller": controller, "destination": cluster}
	return &counted{Client: c, writes: m.writes.MustCurryWith(labels), denials: m.denials.MustCurryWith(labels)}
}

// Failed returns a function that counts the errors of a controller's reconciliations. It does not count reconciliations
// that a shutdown interrupts.
func (m *Metrics) Failed(controller string) func(error) {
	for _, class := range report.Classes() {
		m.failures.WithLabelValues(controller, string(class)) // create the counter with the value 0, because rate() needs two values
	}
	return func(err error) {
		if !errors.Is(err, context.Canceled) {
			m.failures.WithLabelValues(controller, string(report.ClassOf(err))).Inc()
		}
	}
}

// Recorder returns a recorder that counts a controller's Warning Events. It also shortens notes and removes control
// characters from them.
func (m *Metrics) Recorder(recorder events.EventRecorder, controller string) events.EventRecorder {
	return &countedEvents{EventRecorder: recorder, warnings: m.warnings.MustCurryWith(prometheus.Labels{"controller": controller})}
}

type countedEvents struct {
	events.EventRecorder
	warnings *prometheus.CounterVec
}

// Eventf forwards the Event, and counts it if it is a Warning.
func (r *countedEvents) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if kind == corev1.EventTypeWarning {
		r.warnings.WithLabelValues(reason).Inc()
	}
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", eventrecorder.Shorten(fmt.Sprintf(note, args...)))
}
