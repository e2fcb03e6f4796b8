// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// TestRealNodes checks that in two clusters with real nodes, pods can reach each other, names can be resolved, and
// cutting a connection has an effect.
func TestRealNodes(t *testing.T) {
	clusters := testenv.NodesForTest(t, testenv.Options{Name: "rome", Nodes: 2}, testenv.Options{Name: "milan", Nodes: 1})
	require.NoError(t, testenv.Connect(clusters[0], clusters[1]))
	kubectl, err := tools.Kubectl()
	require.NoError(t, err)
	try := func(c *testenv.Cluster, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: kubectl %s: %w: %s", c.Name(), strings.Join(args, " "), err, out)
		}
		return string(out), err
	}
	run := func(c *testenv.Cluster, args ...string) string {
		out, err := try(c, args...)
		require.NoError(t, err)
		return out
	}
	for i, c := range clusters {
		node := c.Machines()[len(c.Machines())-1].Name()
		run(c, "run", "web", "--image=registry.example.com/web:1", "--expose", "--port=8080", "--env=NODE="+node, "--overrides="+fmt.Sprintf(`{"spec":{"nodeName":%q}}`, node))
		require.Equal(t, 2-i, strings.Count(run(c, "get", "nodes", "--output=name"), "node/"))
	}
	addresses := map[*testenv.Cluster]string{}
	for _, c := range clusters {
		run(c, "wait", "--for=condition=Ready", "pod/web", "--timeout=5m")
		addresses[c] = run(c, "get", "pod", "web", "--output=jsonpath={.status.podIP}")
		assert.Contains(t, run(c, "logs", "web"), "serving on :8080")
	}
	rome, milan := clusters[0], clusters[1]
	get := func(from *testenv.Cluster, url string) (string, error) {
		return try(from, "exec", "web", "--", "workload", "get", url)
	}
	// The request is sent from the second node. It uses DNS on the first node, and kube-proxy.
	testenv.Eventually(t, func() error {
		out, err := get(rome, "http://web.default.svc.cluster.local:8080/")
		if err == nil && !strings.Contains(out, "pod=web node=rome-node-2") {
			err = errors.New(out)
		}
		return err
	})
	out, err := get(rome, "http://"+addresses[milan]+":8080/")
	require.NoError(t, err)
	assert.Contains(t, out, "node=milan-node-1")
	assert.Contains(t, run(milan, "logs", "web"), "from "+addresses[rome], "the pod has its own address in the other cluster, too")
	_, err = get(milan, milan.Server()+"/readyz")
	assert.ErrorContains(t, err, "x509", "the API server answers")

	milanMachine := milan.Machines()[0]
	require.NoError(t, milan.Network().Cut(milanMachine))
	_, err = get(rome, "http://"+addresses[milan]+":8080/")
	assert.Error(t, err, "the line is cut")
	run(milan, "get", "pods") // this computer reaches the API server without the nodes' network
	require.NoError(t, milan.Network().Mend(milanMachine))
	testenv.Eventually(t, func() error {
		_, err := get(rome, "http://"+addresses[milan]+":8080/")
		return err
	})
}
