// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

func TestCompletion(t *testing.T) {
	for _, name := range []string{"tab-one", "tab-two"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	create(t, &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "tab-one", Name: "offloading"}})
	access := "--kubeconfig=" + cluster.Kubeconfig()
	for args, want := range map[string]struct{ offered, not string }{
		"offload namespace " + access + " ":                         {"tab-one\ntab-two", "error"},
		"offload namespace " + access + " tab-one ":                 {"tab-two", "tab-one"},
		"unoffload namespace " + access + " ":                       {"tab-one", "tab-two"},
		"info --kubeconfig=testdata/unreachable.yaml --context ":    {"left\nright", "tab-one"},
		"offload namespace --kubeconfig=testdata/unreachable.yaml ": {":1", "tab-one"}, // an error
		"offload namespace --pod-offloading-strategy ":              {"LocalAndRemote", "DefaultName"},
		"offload namespace --namespace-mapping-strategy ":           {"DefaultName", "LocalAndRemote"},
		"offload namespace -o ":                                     {"json\njsonpath", "tab-one"},
		"info -o ":                                                  {"wide\nyaml", "tab-one"},
		"info " + access + " -n ":                                   {"tab-one\ntab-two", "error"},
		"plugin run --hook ":                                        {"outgoing\nincoming", "wasm"},
		"plugin run ":                                               {"wasm", "tab-one"},
		"plugin run strip.wasm ":                                    {":4", "wasm"}, // nothing, not even files
	} {
		out, _, err := refractctl(t, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if err != nil || !strings.Contains(out, want.offered) || strings.Contains(out, want.not) {
			t.Errorf("%q offers %q, error = %v, want %q and not %q", args, out, err, want.offered, want.not)
		}
	}
}

func TestExamplesCallTheProgramAsItsUsersDo(t *testing.T) {
	command, _, err := NewCommand("kubectl refract").Find([]string{"offload", "namespace"})
	if err != nil || !strings.HasPrefix(command.Example, "  kubectl refract offload namespace shop\n") || strings.Contains(command.Example, program) {
		t.Errorf("example = %q, error = %v", command.Example, err)
	}
}
