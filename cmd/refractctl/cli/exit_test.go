// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// asProcess is an environment variable. If it contains the name of a program, the test binary runs this program
// instead of the tests.
const asProcess = "REFRACT_TEST_PROGRAM"

// isProcess reports whether the function process has started this process. If so, it runs the program before it
// returns.
func isProcess() bool {
	executable := os.Getenv(asProcess)
	if executable == "" {
		return false
	}
	MainOf(executable)
	return true
}

// process runs a program of this package, and returns its output and its exit code.
func process(t *testing.T, program string, args ...string) (out, progress string, code int) {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), executable, args...)
	command.Env = append(os.Environ(), asProcess+"="+program)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
}

func TestExitCodes(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-genoa", Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "genoa"}}})
	virtualNode(t, "liqo-tenant-genoa", "genoa")
	for args, want := range map[string]int{
		"version":         0,
		"install --help":  0,
		"info -o json":    0,
		"info nobody":     invocation.ExitFailed,
		"info --as=stray": invocation.ExitFailed,
		"info --kubeconfig=testdata/unreachable.yaml --request-timeout=5s": invocation.ExitFailed,
		"bogus":                invocation.ExitUsage,
		"delete bogus":         invocation.ExitUsage,
		"info --bogus":         invocation.ExitUsage,
		"info -o bogus":        invocation.ExitUsage,
		"version now":          invocation.ExitUsage,
		"create virtualnode a": invocation.ExitUsage,
		"peer":                 invocation.ExitUsage,
		"unpeer genoa":         invocation.ExitUsage,
		"drain virtualnode":    invocation.ExitUsage,
		"offload namespace":    invocation.ExitUsage,
		"offload namespace default --selector==x":      invocation.ExitUsage,
		"install --cluster-id=Rome":                    invocation.ExitUsage,
		"install --set=a":                              invocation.ExitUsage,
		"test --timeout=-1s":                           invocation.ExitUsage,
		"generate peering-user Rome":                   invocation.ExitUsage,
		"liqo adopt":                                   invocation.ExitUsage,
		"plugin run":                                   invocation.ExitUsage,
		"doctor":                                       invocation.ExitFindings,
		"liqo check genoa":                             invocation.ExitFindings,
		"delete virtualnode genoa --timeout=300ms":     invocation.ExitTimedOut,
		"drain virtualnode genoa nobody --timeout=1ms": invocation.ExitFailed,
	} {
		t.Run(args, func(t *testing.T) {
			fields := strings.Fields(args)
			if !strings.Contains(args, "--kubeconfig") && fields[0] != "version" && fields[0] != "plugin" {
				fields = onCluster(fields...)
			}
			out, progress, code := process(t, "refractctl", fields...)
			assert.Equal(t, want, code, "%s%s", out, progress)
			assert.Equal(t, code != 0, strings.Contains(progress, "refractctl: "), "%s", progress)
		})
	}
}

func TestTheWorstOfSeveralErrorsGivesTheExitCode(t *testing.T) {
	t.Parallel()
	failed, late := errors.New("forbidden"), invocation.WithCode(invocation.ExitTimedOut, errors.New("not done"))
	for want, errs := range map[int][]error{
		0: {nil, invocation.WithCode(invocation.ExitUsage, nil)}, invocation.ExitFailed: {late, failed}, invocation.ExitUsage: {failed, invocation.UsageError(failed)}, invocation.ExitFindings: {late, invocation.FindingsError(failed)}, invocation.ExitTimedOut: {late, late},
	} {
		assert.Equal(t, want, invocation.ExitCode(errors.Join(errs...)), "%v", errs)
		if want != 0 {
			assert.Equal(t, want, invocation.ExitCode(fmt.Errorf("explained, %w", errors.Join(errs...))), "%v", errs)
		}
	}
	err := invocation.RunWithin(t.Context(), 1, func(ctx context.Context) error { <-ctx.Done(); return failed })
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err))
	assert.NoError(t, invocation.RunWithin(t.Context(), 1, func(ctx context.Context) error { <-ctx.Done(); return nil }))
}

// TestHelpShowsTheFlagsOfTheCommand checks that the help of a command shows only its own flags. The flags that all
// commands share with kubectl are listed in a single place.
func TestHelpShowsTheFlagsOfTheCommand(t *testing.T) {
	for _, command := range []string{"peer", "drain virtualnode", "info"} {
		help, _, err := refractctl(t, append(strings.Fields(command), "--help")...)
		require.NoError(t, err)
		assert.NotContains(t, help, "--as-group", command)
		assert.Contains(t, help, `Use "refractctl options"`, command)
	}
	help, _, err := refractctl(t, "peer", "--help")
	require.NoError(t, err)
	assert.Contains(t, help, "--remote-context")
	help, _, err = refractctl(t, "plugin", "run", "--help")
	require.NoError(t, err)
	assert.NotContains(t, help, "--kubeconfig", "it needs no cluster")
	options, _, err := refractctl(t, "options")
	require.NoError(t, err)
	for _, flag := range []string{"--context", "--as-group", "--template"} {
		assert.Contains(t, options, flag)
	}
}
