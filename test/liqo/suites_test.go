// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// suites are Liqo's own end-to-end tests that need two clusters and no network between their pods, with the reason if
// fewer specs pass than with Liqo alone.
var suites = []struct{ name, differs string }{
	{name: "creationremotenamespace"},
	{name: "offloadingpolicies"},
	{name: "unoffload"},
	{name: "reflection", differs: "it counts the reflected objects of a second virtual node, which it has Liqo's controllers create from a ResourceSlice"},
	{name: "resourceenforcement", differs: "it expects pods of a drained consumer to fail at once; they do after five minutes, unless they run again before"},
}

// TestSuitesOfLiqo runs the suites on a pair of clusters that runs Liqo alone, and on a pair that runs Refract, there
// with both commands. It prints how many specs of each suite pass.
func TestSuitesOfLiqo(t *testing.T) {
	if os.Getenv("REFRACT_LIQO") != "suites" {
		t.Skip("the suites take half an hour: run `make test-liqo-suites`")
	}
	w := begin(t)
	defer w.explain()
	binaries := w.buildSuites(t)
	w.pushNginx(t)
	w.run("liqoctl install --context=rome %s", w.flags(w.lab.Rome))
	w.run("liqoctl install --context=milan %s", w.flags(w.lab.Milan))
	w.run("liqoctl peer --context=rome --remote-context=milan --networking-disabled --skip-confirm --timeout=2m")
	alone := w.runSuites(binaries, "liqoctl")
	w.run("liqoctl unpeer --context=rome --remote-context=milan --skip-confirm --timeout=2m")
	for _, context := range []string{"rome", "milan"} {
		w.uninstalls("liqoctl uninstall --context=" + context + " --purge --skip-confirm --timeout=2m")
	}

	for _, context := range []string{"rome", "milan"} {
		w.run("refractctl install --context=%[1]s --cluster-id=%[1]s --registry=registry.example.com/refract", context)
	}
	w.run("refractctl peer --context=rome --remote-context=milan --networking-disabled --skip-confirm")
	byLiqoctl, byRefractctl := w.runSuites(binaries, "liqoctl"), w.runSuites(binaries, "refractctl")

	table := "suite, specs that pass with Refract by liqoctl and by refractctl, and with Liqo alone\n"
	for _, suite := range suites {
		table += fmt.Sprintf("%-24s %6s %6s %6s  %s\n", suite.name, byLiqoctl[suite.name], byRefractctl[suite.name], alone[suite.name], suite.differs)
		if suite.differs == "" {
			assert.Equal(t, alone[suite.name], byLiqoctl[suite.name], "%s with liqoctl", suite.name)
			assert.Equal(t, alone[suite.name], byRefractctl[suite.name], "%s with refractctl", suite.name)
		}
	}
	t.Log(table)
}

// buildSuites compiles the suites from Liqo's module into the folder of its tools, once.
func (w *world) buildSuites(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f={{.Dir}}", "github.com/liqotech/liqo")
	list.Dir = "../../hack/cluster/liqo"
	source, err := list.Output()
	require.NoError(t, err)
	dir := filepath.Join(w.tools, "suites")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, suite := range suites {
		binary := filepath.Join(dir, suite.name+".test")
		if _, err := os.Stat(binary); err == nil {
			continue
		}
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-o", binary, "./test/e2e/cruise/"+suite.name)
		build.Dir, build.Env = strings.TrimSpace(string(source)), append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// pushNginx stores the image that the suites run.
func (w *world) pushNginx(t *testing.T) {
	t.Helper()
	from, err := name.ParseReference(w.lab.Registry.Address()+"/web:1", name.Insecure)
	require.NoError(t, err)
	web, err := remote.Image(from, remote.WithContext(t.Context()))
	require.NoError(t, err)
	require.NoError(t, w.lab.Registry.Push(t.Context(), "library/nginx:latest", web))
}

var ranSpecs = regexp.MustCompile(`Ran (\d+) of \d+ Specs[^\n]*\n.*?(\d+) Passed`)

// runSuites returns the numbers of passed and of all specs of each suite. The suites offload namespaces with the
// command.
func (w *world) runSuites(binaries, command string) map[string]string {
	w.Helper()
	kubeconfigs := w.T.TempDir()
	for i, context := range []string{"rome", "milan"} {
		w.run("kubectl --context=%s config view --raw --minify --flatten > %s/liqo_kubeconf_%d", context, kubeconfigs, i+1)
	}
	passed := map[string]string{}
	for _, suite := range suites {
		out, _ := w.lab.Run(fmt.Sprintf("NAMESPACE=liqo CLUSTER_NUMBER=2 KUBECONFIGDIR=%s LIQOCTL=$(command -v %s) INFRA=kubeadm CNI=bridge POD_CIDR_OVERLAPPING=false %s/%s.test -test.timeout=10m -ginkgo.no-color",
			kubeconfigs, command, binaries, suite.name))
		found := ranSpecs.FindStringSubmatch(out)
		if found == nil {
			found = []string{"", "?", "0"}
		}
		passed[suite.name] = found[2] + "/" + found[1]
		w.Logf("suite %s by %s: %s", suite.name, command, passed[suite.name])
		if found[1] != found[2] {
			w.Log(out[max(0, len(out)-6000):])
		}
		// A failed suite leaves namespaces behind.
		w.run("kubectl get namespaces --output=name | grep test- | xargs --no-run-if-empty kubectl delete --timeout=1m")
	}
	return passed
}
