// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/refract-project/refract/internal/cmdutil"
)

// profilingAddress is a loopback address, because profiles contain secrets.
const profilingAddress = "127.0.0.1:6060"

// serveOperations starts the servers for metrics, probes and profiles. The process is ready when its caches are filled.
// A gateway must be ready even while the peer's key is unknown, because keys are exchanged only when both gateways are
// ready.
func (o *options) serveOperations(ctx context.Context, group *errgroup.Group, metrics prometheus.Gatherer, synced <-chan struct{}) error {
	health := cmdutil.HealthHandler(map[string]healthz.Checker{"ping": healthz.Ping},
		map[string]healthz.Checker{"caches": cmdutil.Closed(synced, "waiting for the caches to be filled")})
	for _, endpoint := range []struct {
		enabled       bool
		flag, address string
		handler       http.Handler
	}{
		{o.metricsAddress != "0", "metrics-address", o.metricsAddress, cmdutil.MetricsHandler(metrics, cmdutil.ProcessMetrics())},
		{o.healthAddress != "0", "health-probe-address", o.healthAddress, health},
		{o.profiling, "enable-profiling", profilingAddress, cmdutil.ProfilingHandler()},
	} {
		if !endpoint.enabled {
			continue
		}
		listener, err := cmdutil.Listen(endpoint.flag, endpoint.address)
		if err != nil {
			return err
		}
		group.Go(func() error { return cmdutil.Serve(ctx, listener, endpoint.handler) })
	}
	return nil
}
