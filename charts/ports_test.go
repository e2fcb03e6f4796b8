// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestPortsOfAProcessAreDistinct checks that the chart rejects values with which a process would listen on one port
// twice. Otherwise a pod would be installed that fails.
func TestPortsOfAProcessAreDistinct(t *testing.T) {
	for _, test := range []struct{ values, want string }{
		{"webhook: {port: 8081}", "webhook.port is 8081, the port of the health probes in the same process"},
		{"webhook: {port: 7000}\ncontrollerManager: {metrics: {port: 7000}}", "controllerManager.metrics.port is 7000, the port of webhook.port in the same process"},
		{"virtualKubelet: {metrics: {port: 10250}}", "virtualKubelet.metrics.port is 10250, the port of virtualKubelet.port in the same process"},
		{"virtualKubelet: {port: 8081}", "virtualKubelet.port is 8081, the port of the health probes in the same process"},
		{"webhook: {port: 7000}\nvirtualKubelet: {port: 7000}", ""}, // different processes
		{"webhook: {port: 7000}\ncontrollerManager: {metrics: {port: 7000}}\nmetrics: {enabled: false}", ""},
	} {
		changes := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(test.values), &changes))
		vals := values(t, "pair")
		vals["metrics"] = map[string]any{"enabled": true}
		for name, change := range changes {
			if base, ok := vals[name].(map[string]any); ok {
				maps.Copy(base, change.(map[string]any))
				continue
			}
			vals[name] = change
		}
		if test.want != "" {
			mustFail(t, vals, test.want)
			continue
		}
		_, err := render(t, vals)
		require.NoError(t, err, test.values)
	}
}
