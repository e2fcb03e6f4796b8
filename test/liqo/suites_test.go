// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/nodelab"
)

// suites lists Liqo's own end-to-end tests that need neither gateways nor a provisioner of volumes. If fewer specs pass
// with Refract than with Liqo, differs contains the reason. If needsSlices is true, the suite needs ResourceSlices in the
// consumer, so it runs only where liqoctl has joined the clusters.
var suites = []struct {
	name, differs string
	needsSlices   bool
}{
	{name: "clusterlabels"},
	{name: "conflictremotenamespace"},
	{name: "creationremotenamespace"},
	{name: "multiplevirtualnodes", needsSlices: true},
	{name: "offloadingpolicies"},
	{name: "unoffload"},
	{name: "reflection", needsSlices: true},
	{name: "resourceenforcement", differs: "it expects pods of a drained consumer to have failed as soon as they are not available; they fail a few seconds later, after two reviews of the access"},
}

// offeredLabels are the labels that the suites expect the clusters to have.
var offeredLabels = map[string]string{"rome": "provider=Azure,region=A", "milan": "provider=AWS,region=B", "turin": "provider=GKE,region=C"}

// likeLiqo are the values for clusters that run Refract and join each other as with Liqo. The suite reflection reads the
// metrics of virtual kubelets, of which it expects one for each node, and creates an Ingress for all hosts.
const likeLiqo = "metrics.enabled=true,virtualKubelet.replicas=1,authentication.joinProviders=true,authentication.enabled=true,tenants.unlimitedResources=true,tenants.ingressHosts={*},offloading.acceptedOfferLabels={provider,region}"

// TestSuitesOfLiqo runs the suites on three clusters that run only Liqo, and on three clusters that run Refract. The
// latter are joined by refractctl, with the default values, and then by liqoctl, with likeLiqo. rome is the consumer of
// the other two clusters. The test prints how many specs of each suite have passed.
func TestSuitesOfLiqo(t *testing.T) {
	if os.Getenv("REFRACT_LIQO") != "suites" {
		t.Skip("the suites take half an hour: run `make test-liqo-suites`")
	}
	w := beginWith(t, nodelab.Options{Turin: true})
	defer w.explain()
	binaries := w.buildSuites(t)
	w.pushNginx(t)
	for _, cluster := range w.lab.Clusters() {
		w.run("liqoctl install --context=%s %s --cluster-labels=%s --set=metrics.enabled=true", cluster.Name(), w.flags(cluster), offeredLabels[cluster.Name()])
	}
	for _, provider := range []string{"milan", "turin"} {
		w.run("liqoctl peer --context=rome --remote-context=%s --networking-disabled --skip-confirm --timeout=2m", provider)
	}
	alone := w.runSuites(binaries, "liqoctl", true)
	for _, provider := range []string{"milan", "turin"} {
		w.run("liqoctl unpeer --context=rome --remote-context=%s --skip-confirm --timeout=2m", provider)
	}
	for _, cluster := range w.lab.Clusters() {
		w.uninstalls("liqoctl uninstall --context=" + cluster.Name() + " --purge --skip-confirm --timeout=2m")
	}

	for _, cluster := range w.lab.Clusters() {
		w.run("refractctl install --context=%[1]s --cluster-id=%[1]s --registry=registry.example.com/refract --cluster-labels=%[2]s", cluster.Name(), offeredLabels[cluster.Name()])
	}
	for _, provider := range []string{"milan", "turin"} {
		w.run("refractctl peer --context=rome --remote-context=%s --networking-disabled --skip-confirm --accept-label=provider --accept-label=region", provider)
	}
	byRefractctl := w.runSuites(binaries, "refractctl", false)
	for _, provider := range []string{"milan", "turin"} {
		w.run("refractctl unpeer --context=rome --remote-context=%s", provider)
	}
	for _, cluster := range w.lab.Clusters() {
		w.run("refractctl install --context=%[1]s --cluster-id=%[1]s --registry=registry.example.com/refract --cluster-labels=%[2]s --set='%[3]s'", cluster.Name(), offeredLabels[cluster.Name()], likeLiqo)
	}
	for _, provider := range []string{"milan", "turin"} {
		w.run("liqoctl peer --context=rome --remote-context=%s --networking-disabled --skip-confirm --timeout=2m", provider)
	}
	byLiqoctl := w.runSuites(binaries, "liqoctl", true)

	table := "suite, specs that pass with Refract joined by liqoctl and by refractctl, and with Liqo alone\n"
	for _, suite := range suites {
		table += fmt.Sprintf("%-24s %6s %6s %6s  %s\n", suite.name, byLiqoctl[suite.name], byRefractctl[suite.name], alone[suite.name], suite.differs)
		if suite.differs == "" {
			assert.Equal(t, alone[suite.name], byLiqoctl[suite.name], "%s with liqoctl", suite.name)
			if !suite.needsSlices {
				assert.Equal(t, alone[suite.name], byRefractctl[suite.name], "%s with refractctl", suite.name)
			}
		}
	}
	t.Log(table)
}

// buildSuites compiles the suites from Liqo's module into the folder of Liqo's tools, unless this was already done.
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

// pushNginx stores the image that the suites use in the registry.
func (w *world) pushNginx(t *testing.T) {
	t.Helper()
	from, err := name.ParseReference(w.lab.Registry.Address()+"/web:1", name.Insecure)
	require.NoError(t, err)
	web, err := remote.Image(from, remote.WithContext(t.Context()))
	require.NoError(t, err)
	require.NoError(t, w.lab.Registry.Push(t.Context(), "library/nginx:latest", web))
}

// TestSpecsAreCounted checks which outputs of a suite count as a result.
func TestSpecsAreCounted(t *testing.T) {
	for out, want := range map[string][2]int{
		"Ran 4 of 5 Specs in 61.112 seconds\nFAIL! -- 3 Passed | 1 Failed | 0 Pending | 1 Skipped\n--- FAIL: TestE2E": {3, 4},
		"Ran 12 of 12 Specs in 9 seconds\nSUCCESS! -- 12 Passed | 0 Failed\nPASS":                                     {12, 12},
		"Ran 0 of 4 Specs in 0.001 seconds\nSUCCESS! -- 0 Passed | 0 Failed":                                          {},
		"--- SKIP: TestE2E\nPASS": {},
		"panic: no kubeconfig":    {},
		"":                        {},
	} {
		passed, ran := countSpecs(out)
		assert.Equal(t, want, [2]int{passed, ran}, out)
	}
}

// TestSuitesAreDocumented checks that docs/liqo.md contains each suite, and whether its result is the same as with Liqo
// alone.
func TestSuitesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/liqo.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "Of Liqo's own end-to-end suites")
	require.True(t, found)
	paragraph, _, _ := strings.Cut(after, "\n\n")
	equal, different, found := strings.Cut(paragraph, "pass as with Liqo alone.")
	require.True(t, found)
	for _, suite := range suites {
		sentences := equal
		if suite.differs != "" || suite.needsSlices {
			sentences = different
		}
		assert.Regexp(t, `\b`+suite.name+`\b`, sentences)
	}
}

var ranSpecs = regexp.MustCompile(`Ran (\d+) of \d+ Specs[^\n]*\n.*?(\d+) Passed`)

// countSpecs returns how many specs passed and how many ran, according to the output of a suite. Both are 0 if the
// output contains no result.
func countSpecs(out string) (passed, ran int) {
	if found := ranSpecs.FindStringSubmatch(out); found != nil {
		passed, _ = strconv.Atoi(found[2])
		ran, _ = strconv.Atoi(found[1])
	}
	return passed, ran
}

// runSuites runs the suites, with or without those that need ResourceSlices. For each suite, it returns the number of
// passed specs and of all specs. The suites use the given command to offload namespaces.
func (w *world) runSuites(binaries, command string, hasSlices bool) map[string]string {
	w.Helper()
	kubeconfigs := w.T.TempDir()
	for i, cluster := range w.lab.Clusters() {
		w.run("kubectl --context=%s config view --raw --minify --flatten > %s/liqo_kubeconf_%d", cluster.Name(), kubeconfigs, i+1)
	}
	passed := map[string]string{}
	for _, suite := range suites {
		if only := os.Getenv("SUITE"); suite.needsSlices && !hasSlices || only != "" && !slices.Contains(strings.Split(only, ","), suite.name) {
			continue
		}
		out, _ := w.lab.Run(fmt.Sprintf("NAMESPACE=liqo CLUSTER_NUMBER=3 KUBECONFIGDIR=%s LIQOCTL=$(command -v %s) INFRA=kubeadm CNI=bridge POD_CIDR_OVERLAPPING=false %s/%s.test -test.timeout=20m -ginkgo.no-color",
			kubeconfigs, command, binaries, suite.name))
		succeeded, ran := countSpecs(out)
		// A suite that is skipped or does not start prints no result. This must not count as the same result as with
		// Liqo alone.
		assert.Positive(w, ran, "suite %s by %s has run no specs", suite.name, command)
		passed[suite.name] = fmt.Sprintf("%d/%d", succeeded, ran)
		w.Logf("suite %s by %s: %s", suite.name, command, passed[suite.name])
		if succeeded != ran || ran == 0 {
			w.Log(out[max(0, len(out)-6000):])
		}
		// After a failure, a suite may leave namespaces behind. The suite resourceenforcement leaves the consumer
		// drained.
		for _, provider := range []string{"milan", "turin"} {
			_, _ = w.lab.Run(command + " activate tenant rome --context=" + provider)
		}
		for _, cluster := range w.lab.Clusters() {
			w.run("kubectl --context=%[1]s get namespaces --output=name | grep test- | xargs --no-run-if-empty kubectl --context=%[1]s delete --timeout=1m", cluster.Name())
		}
	}
	return passed
}
