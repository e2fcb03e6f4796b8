// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

func TestCompletion(t *testing.T) {
	for _, name := range []string{"tab-one", "tab-two"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	create(t, &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "tab-one", Name: "offloading"}})
	access := "--kubeconfig=" + testCluster.Kubeconfig()
	for args, want := range map[string]struct{ offered, not string }{
		"offload namespace " + access + " ":                         {"tab-one\ntab-two", "error"},
		"offload namespace " + access + " tab-one ":                 {"tab-two", "tab-one"},
		"unoffload namespace " + access + " ":                       {"tab-one", "tab-two"},
		"info --kubeconfig=testdata/unreachable.yaml --context ":    {"left\nright", "tab-one"},
		"offload namespace --kubeconfig=testdata/unreachable.yaml ": {":1", "tab-one"}, // the cluster is unreachable
		"offload namespace --pod-offloading-strategy ":              {"LocalAndRemote", "DefaultName"},
		"offload namespace --namespace-mapping-strategy ":           {"DefaultName", "LocalAndRemote"},
		"offload namespace -o ":                                     {"json\njsonpath", "tab-one"},
		"info -o ":                                                  {"wide\nyaml", "tab-one"},
		"info " + access + " -n ":                                   {"tab-one\ntab-two", "error"},
		"plugin run --hook ":                                        {"outgoing\nincoming", "wasm"},
		"plugin run ":                                               {"wasm", "tab-one"},
		"plugin run strip.wasm ":                                    {":4", "wasm"}, // neither completions nor file names
	} {
		out, _, err := refractctl(t, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if err != nil || !strings.Contains(out, want.offered) || strings.Contains(out, want.not) {
			t.Errorf("%q offers %q, error = %v, want %q and not %q", args, out, err, want.offered, want.not)
		}
	}
}

// TestHarmfulContextsAreNotOffered checks that names of contexts in the kubeconfig of another party do not control the
// Terminal of the user.
func TestHarmfulContextsAreNotOffered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Contexts = map[string]*clientcmdapi.Context{"plain": {}, "\x1b[2Jcleared": {}, "right\u202e": {}, "two\nlines": {}}
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	out, _, err := refractctl(t, "__complete", "info", "--kubeconfig="+file, "--context", "")
	require.NoError(t, err)
	assert.Equal(t, "plain\n:4\n", out)
}

// TestNamesAreCompleted checks that arguments are completed from the cluster, even under the name that kubectl uses for
// completion.
func TestNamesAreCompleted(t *testing.T) {
	virtualNode(t, "liqo-tenant-como", "tab-node")
	create(t, &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "tab-peer"}, Spec: core.ForeignClusterSpec{ClusterID: "tab-peer"}})
	access := "--kubeconfig=" + testCluster.Kubeconfig()
	context := contextOf(t)
	for args, want := range map[string]string{
		"unpeer " + access + " ":                            "tab-peer\n",
		"delete virtualnode " + access + " ":                "tab-node\n",
		"drain virtualnode " + access + " tab":              "tab-node\n",
		"test " + access + " ":                              "tab-node\n",
		"create virtualnode " + access + " new --provider ": "tab-peer\n",
		"peer " + access + " --remote-context ":             context + "\n",
		"doctor " + access + " --remote-context ":           context + "\n",
		"peer " + access + " --credentials ":                "certificate\n",
		"peer " + access + " --network ":                    "reachable\n",
		"delete virtualnode " + access + " tab-node ":       ":4\n",
		"un":      "unpeer\t",
		"delete ": "virtualnode\t",
		"unpeer --kubeconfig=testdata/unreachable.yaml --force ": ":1\n",
	} {
		fields := strings.Split(args, " ")
		out, _, err := refractctl(t, append([]string{"__complete"}, fields...)...)
		require.NoError(t, err, "%s", args)
		assert.Contains(t, out, want, "%s", args)
		out, _, code := process(t, "/usr/local/bin/kubectl_complete-refract", fields...)
		assert.Equal(t, 0, code, "%s", args)
		assert.Contains(t, out, want, "%s", args)
	}
	out, _, err := refractctl(t, "__complete", "delete", "virtualnode", access, "tab-node", "")
	require.NoError(t, err)
	assert.NotContains(t, out, "tab-node")
}

func TestNameOfTheExecutable(t *testing.T) {
	for executable, want := range map[string]string{
		"refractctl": "refractctl install", "bin/kubectl-refract": "kubectl refract install", `kubectl-refract.exe`: "kubectl refract install",
		"refractctl-0.2.0": "refractctl install",
	} {
		out, _, code := process(t, executable, "--help")
		assert.Equal(t, 0, code, executable)
		assert.Contains(t, out, "\n  "+want+" --cluster-id", executable)
	}
}

func TestCompletionOfUnknownShells(t *testing.T) {
	out, _, code := process(t, "refractctl", "completion", "bash")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "bash completion")
	out, said, code := process(t, "refractctl", "completion", "tcsh")
	assert.Equal(t, invocation.ExitUsage, code)
	assert.Empty(t, out)
	assert.Contains(t, said, `has no command "tcsh": use one of bash, fish, powershell, zsh`)
}

// contextOf returns the context of the test's cluster.
func contextOf(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(testCluster.Kubeconfig())
	require.NoError(t, err)
	return config.CurrentContext
}

func TestExamplesCallTheProgramAsItsUsersDo(t *testing.T) {
	command, _, err := NewCommand("kubectl refract").Find([]string{"offload", "namespace"})
	if err != nil || !strings.HasPrefix(command.Example, "  kubectl refract offload namespace shop\n") || strings.Contains(command.Example, program) {
		t.Errorf("example = %q, error = %v", command.Example, err)
	}
}
