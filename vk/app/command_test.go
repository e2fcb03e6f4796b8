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

func TestUnknownFlagIsAnError(t *testing.T) {
	command := NewCommand(func(string) string { return "" })
	command.SetArgs([]string{"--nodnamee=x"})
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "--nodnamee: see virtual-kubelet --help") {
		t.Errorf("got %v", err)
	}
}
