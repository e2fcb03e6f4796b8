// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHelpIsGrouped(t *testing.T) {
	command := NewCommand(func(string) string { return "" })
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetArgs([]string{"--help"})
	require.NoError(t, command.Execute())
	for _, want := range []string{"Clusters flags:", "Node flags:", "Reflection flags:", "Plugins flags:", "Kubelet API flags:", "--plugin-dir", "--foreign-kubeconfig ", "which Ingresses are reflected"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, out.String())
		}
	}
}

func TestUnknownFlagsAreIgnoredWhereThatIsAsked(t *testing.T) {
	command := NewCommand(func(string) string { return "" })
	args := []string{"--nodename=milan", "--ignore-unknown-flags", "--gateway-api", "on", "--node-ip", "10.0.0.1", "--later=1", "--later-too"}
	require.Equal(t, []string{"--nodename=milan", "--ignore-unknown-flags", "--node-ip", "10.0.0.1", "--ignored-flags=--gateway-api,--later,--later-too"}, Tolerate(command, args))
	for _, strict := range [][]string{{"--later=1"}, {"--later=1", "--ignore-unknown-flags=false"}} {
		require.Equal(t, strict, Tolerate(command, strict))
	}
}

func TestUnknownFlagIsAnError(t *testing.T) {
	command := NewCommand(func(string) string { return "" })
	command.SetArgs([]string{"--nodnamee=x"})
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "--nodnamee: see virtual-kubelet --help") {
		t.Errorf("got %v", err)
	}
}
