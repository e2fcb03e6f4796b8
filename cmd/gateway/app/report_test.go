// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/gateway"
)

// gather returns the values of the series of each metric.
func gather(t *testing.T, r *reporter) map[string][]float64 {
	t.Helper()
	families, err := r.registry.Gather()
	require.NoError(t, err)
	values := map[string][]float64{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			values[family.GetName()] = append(values[family.GetName()], series.GetCounter().GetValue()+series.GetGauge().GetValue())
		}
	}
	return values
}

// TestCountersBeginAtZero checks that Prometheus sees the first failure and the first takeover as an increase.
func TestCountersBeginAtZero(t *testing.T) {
	values := gather(t, newReporter())
	for _, name := range []string{"comparisons_total", "writes_total", "failures_total", "connection_writes_total"} {
		assert.Equal(t, []float64{0, 0}, values["refract_gateway_"+name], name)
	}
	assert.Equal(t, []float64{0, 0, 0}, values["refract_gateway_takeovers_total"], "one for each reason")
}

// TestPathMTUIsReported checks that the sizes of the path and of the tunnel are those of one measurement, and that a standby has none.
func TestPathMTUIsReported(t *testing.T) {
	const path, tunnel = "refract_gateway_path_mtu_bytes", "refract_gateway_tunnel_mtu_bytes"
	r := newReporter()
	r.report(gateway.Report{PathMTU: &gateway.PathMTU{Tunnel: 1340, Path: 1280}})
	values := gather(t, r)
	assert.Equal(t, []float64{1280}, values[path])
	assert.Equal(t, []float64{1340}, values[tunnel])
	r.report(gateway.Report{Active: ptr.To(false)})
	values = gather(t, r)
	assert.Equal(t, []float64{0}, values[path])
	assert.Equal(t, []float64{0}, values[tunnel])
}
