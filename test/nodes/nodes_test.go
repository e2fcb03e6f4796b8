// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodes tests properties that simulated nodes do not have, on real nodes. The clusters are joined with the
// commands in the documentation.
package nodes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/page"
	"github.com/refract-project/refract/test/support/nodelab"
	"github.com/refract-project/refract/test/support/testenv"
)

// world contains the lab and the state of a test.
type world struct {
	*testing.T
	lab  *nodelab.Lab
	page []string // command lines of the page that have not been run yet
}

func begin(t *testing.T, options nodelab.Options) *world {
	t.Helper()
	testenv.NeedNodes(t)
	options.Log = t.Logf
	lab, err := nodelab.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Stop()) })
	return &world{T: t, lab: lab}
}

// run runs a command line in the administrator's shell, and returns its output.
func (w *world) run(line string) string {
	w.Helper()
	begun := time.Now()
	out, err := w.lab.Run(line)
	w.Logf("$ %s (%.1f s)\n%s", line, time.Since(begun).Seconds(), out)
	require.NoError(w, err)
	return out
}

// read reads the command lines of a documentation page.
func (w *world) read(path string) {
	w.Helper()
	var err error
	w.page, err = page.Commands(path)
	require.NoError(w, err)
}

// follow runs the next command lines of the page without changes. It stops before the line with the given prefix, or at
// the end of the page.
func (w *world) follow(until string) {
	w.Helper()
	for ; len(w.page) > 0 && (until == "" || !strings.HasPrefix(w.page[0], until)); w.page = w.page[1:] {
		w.run(w.page[0])
	}
	require.True(w, until == "" || len(w.page) > 0, "the page has no %q", until)
}

// explain logs the state of the clusters if the test has failed.
func (w *world) explain() {
	if !w.Failed() {
		return
	}
	for _, context := range []string{"rome", "milan"} {
		for _, line := range []string{"get pods -A -o wide", "get events -A --sort-by=.lastTimestamp | tail -n 60", "-n liqo logs deployment/refract-controller-manager --tail=40",
			"logs --all-namespaces --selector=networking.liqo.io/component=gateway --tail=20 --prefix"} {
			out, err := w.lab.Run(fmt.Sprintf("kubectl --context=%s %s", context, line))
			w.Logf("%s: %s\n%s %v", context, line, out, err)
		}
	}
}

// firewall checks that the connectivity test detects a firewall between the pods of the clusters and reports no other
// problem.
func (w *world) firewall() {
	w.Helper()
	machine := w.lab.Milan.Machines()[0]
	require.NoError(w, machine.Run("nft", "add", "chain", "ip", "network", "firewall", "{ type filter hook forward priority 0 ; }"))
	require.NoError(w, machine.Run("nft", "add", "rule", "ip", "network", "firewall", "ip", "saddr", w.lab.Rome.PodCIDR(), "tcp", "dport", "8080", "drop"))
	out, err := w.lab.Run("refractctl test milan --check-timeout=20s")
	w.Log(out)
	require.ErrorContains(w, err, "checks failed")
	require.Regexp(w, `OK +its logs can be read`, out)
	require.Regexp(w, `Error +the pod here reaches the one there by its address.*connect the pod ranges of both clusters`, out)
	require.NoError(w, machine.Run("nft", "delete", "chain", "ip", "network", "firewall"))
}

func TestRealNodes(t *testing.T) {
	w := begin(t, nodelab.Options{})
	defer w.explain()
	w.read("../../docs/joining.md")
	begun := time.Now()
	w.follow("refractctl unoffload")
	t.Logf("from two clusters to offloaded pods that run: %.0f s", time.Since(begun).Seconds())
	w.verify([]check{
		{"the pods are on the virtual node", "kubectl --namespace=shop get pods --output=jsonpath=\"{.items[*].spec.nodeName}\"", "^milan milan$"},
		{"the pods are in the remote namespace", "kubectl --context=milan --namespace=shop-rome get pods --output=jsonpath=\"{.items[*].status.phase}\"", "^Running Running$"},
	})
	w.run("refractctl network test milan --output=json")
	w.firewall()
	w.features()
	w.stops()
	w.both()
	w.drains()
	w.run("kubectl delete --filename=testdata/features.yaml --namespace=features --ignore-not-found")
	w.run("refractctl unoffload namespace features")
	w.run("kubectl delete namespace features both")
	w.follow("")
}
