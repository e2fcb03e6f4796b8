// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/refract-project/refract/internal/cmdutil"
)

// serveOperations starts the servers for metrics, probes and profiles. The process is ready when its caches are filled.
// A gateway must be ready even while the peer's key is unknown, because keys are exchanged only when both gateways are
// ready.
func (o *options) serveOperations(ctx context.Context, group *errgroup.Group, metrics prometheus.Gatherer, synced <-chan struct{}) error {
	health := cmdutil.HealthHandler(map[string]healthz.Checker{"ping": healthz.Ping},
		map[string]healthz.Checker{"caches": cmdutil.Closed(synced, "waiting for the caches to be filled")})
	return cmdutil.ServeEndpoints(ctx, group,
		cmdutil.Endpoint{Flag: "metrics-address", Address: o.metricsAddress, Handler: cmdutil.MetricsHandler(metrics, cmdutil.ProcessMetrics())},
		cmdutil.Endpoint{Flag: "health-probe-address", Address: o.healthAddress, Handler: health},
		cmdutil.ProfilingEndpoint(o.profiling))
}
