// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/nodelab"
)

// idlePlugins is the number of ReflectionPlugins of TestIdlePlugins.
const idlePlugins = 10

// TestIdlePlugins checks that ten ReflectionPlugins, their PluginRevisions and their PluginModules are not written
// while nothing changes, with three virtual nodes: `make test-idle PERIOD=1h`.
func TestIdlePlugins(t *testing.T) {
	period, err := time.ParseDuration(os.Getenv("REFRACT_IDLE"))
	if err != nil {
		t.Skip("it waits: run `make test-idle PERIOD=1h`")
	}
	w := begin(t, nodelab.Options{})
	defer w.explain()
	w.run("refractctl install --context=rome --cluster-id=rome --registry=registry.example.com/refract --set=plugins.enabled=true")
	w.run("refractctl install --context=milan --cluster-id=milan --registry=registry.example.com/refract")
	w.run("refractctl peer --context=rome --remote-context=milan --cpu=3 --memory=3Gi")
	for _, node := range []string{"milan-2", "milan-3"} {
		w.run(fmt.Sprintf("refractctl create virtualnode %s --context=rome --remote-context=milan --provider=milan --cpu=1 --memory=1Gi", node))
	}

	module := filepath.Join(t.TempDir(), "strip.wasm")
	build := exec.Command("../../hack/tinygo/build-plugin.sh", "../../examples/plugins/strip-vendor-labels", module)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	w.run("kubectl --namespace=liqo create configmap strip --from-file=strip.wasm=" + module)
	for i := range idlePlugins {
		manifest := filepath.Join(t.TempDir(), "plugin.yaml")
		require.NoError(t, os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: plugins.refract.io/v1alpha1
kind: ReflectionPlugin
metadata: {name: strip-%d}
spec:
  kinds: [Service]
  source: {configMap: {name: strip, key: strip.wasm}}
  config: {labels: ["team-%d.example.com/*"]}
  rollout: {strategy: Immediate, probation: 1m}
`, i, i), 0o600))
		w.run("kubectl apply --filename=" + manifest)
	}
	w.run("kubectl wait reflectionplugins --all --for=jsonpath='{.status.nodes}'=3/3 --timeout=5m")
	time.Sleep(2 * time.Minute) // wait until the probations have ended

	versions := func() string {
		return w.run("kubectl get reflectionplugins,pluginrevisions,pluginmodules " +
			`--output=jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}'`)
	}
	before := versions()
	require.Equal(t, idlePlugins, strings.Count(before, "ReflectionPlugin "), before)
	time.Sleep(period)
	require.Equal(t, before, versions())
	t.Logf("no status was written in %s", period)
}
