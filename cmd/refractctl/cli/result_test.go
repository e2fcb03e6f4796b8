// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// printedResult decodes the output of a command.
func printedResult(t *testing.T, out string) *invocation.Result {
	t.Helper()
	printed := &struct {
		metav1.TypeMeta
		invocation.Result
	}{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), printed), "%s", out)
	assert.Equal(t, metav1.TypeMeta{APIVersion: invocation.OutputVersion, Kind: "Result"}, printed.TypeMeta)
	return &printed.Result
}

func TestResult(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]*invocation.Result{
		nil: {Succeeded: true, ExitCode: 0},
		invocation.WithCode(invocation.ExitTimedOut, errors.New("not done")): {ExitCode: invocation.ExitTimedOut, Error: "not done"},
	} {
		var out, progress bytes.Buffer
		root := &cobra.Command{Use: "refractctl"}
		root.AddCommand(invocation.WithResult(&cobra.Command{Use: "try NAME", RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.ErrOrStderr(), "making it\nwarning: it is")
			fmt.Fprint(cmd.ErrOrStderr(), " small\nmilan: warning: no quotas\n")
			invocation.WriteWaiting(cmd.ErrOrStderr(), "milan", "1 pod is left")
			fmt.Fprint(cmd.OutOrStdout(), "notes for humans")
			invocation.ResultOf(cmd).AddObject("rome", "Node", "", "milan")
			return err
		}}))
		root.SilenceUsage, root.SilenceErrors = true, true
		root.SetArgs([]string{"try", "milan", "-o", "json"})
		root.SetOut(&out)
		root.SetErr(&progress)
		assert.Equal(t, err, root.ExecuteContext(t.Context()))
		want.Command, want.Objects = "try", []invocation.ResultObject{{Cluster: "rome", Kind: "Node", Name: "milan"}}
		want.Steps, want.Warnings = []string{"making it", "milan: 1 pod is left"}, []string{"it is small", "milan: no quotas"}
		assert.Equal(t, want, printedResult(t, out.String()))
		assert.Equal(t, "making it\nwarning: it is small\nmilan: warning: no quotas\nmilan: 1 pod is left\n", progress.String())
	}
}

func TestCommandsPrintTheirResult(t *testing.T) {
	vn := virtualNode(t, "liqo-tenant-trento", "trento")
	node(t, "trento")
	out, progress, err := refractctl(t, onCluster("cordon", "virtualnode", "trento", "-o", "yaml")...)
	require.NoError(t, err)
	assert.Equal(t, "trento: cordoned\n", progress)
	assert.Equal(t, &invocation.Result{Command: "cordon virtualnode", Succeeded: true, Steps: []string{"trento: cordoned"}, Warnings: []string{},
		Objects: []invocation.ResultObject{{Kind: "VirtualNode", Namespace: vn.Namespace, Name: "trento"}}}, printedResult(t, out))

	out, _, err = refractctl(t, onCluster("delete", "virtualnode", "trento", "--timeout=300ms", "-o", "json")...)
	require.Error(t, err)
	failed := printedResult(t, out)
	assert.Equal(t, invocation.ExitTimedOut, failed.ExitCode)
	assert.Equal(t, err.Error(), failed.Error)
	assert.Empty(t, failed.Objects)

	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "market"}})
	out, _, err = refractctl(t, onCluster("unoffload", "namespace", "market", "-o", "json")...)
	require.NoError(t, err)
	assert.Equal(t, &invocation.Result{Command: "unoffload namespace", Succeeded: true, Steps: []string{"market: on this cluster only"}, Warnings: []string{},
		Objects: []invocation.ResultObject{{Kind: "Namespace", Name: "market"}}}, printedResult(t, out))

	out, _, err = refractctl(t, onCluster("drain", "virtualnode", "-o", "json")...)
	require.Equal(t, invocation.ExitUsage, invocation.ExitCode(err))
	assert.Empty(t, out)
	out, _, err = refractctl(t, "version", "-o", "json")
	require.NoError(t, err)
	version := map[string]string{}
	require.NoError(t, json.Unmarshal([]byte(out), &version), "%s", out)
	assert.Equal(t, "Version", version["kind"])
	assert.NotEmpty(t, version["version"])
	assert.NotEmpty(t, version["installs"])
}
