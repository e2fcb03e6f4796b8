// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// interruptedEnd is much longer than an interrupted command takes to end, and much shorter than the timeout of its
// requests.
const interruptedEnd = time.Minute

// TestInterruptedCommandsEndAtOnce checks that a command ends when it is interrupted, even if an API server accepts its
// requests and never responds. The first requests of most commands are discovery, which has no context.
func TestInterruptedCommandsEndAtOnce(t *testing.T) {
	t.Parallel()
	var interrupt func()
	ended, release := context.WithCancel(t.Context())
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		select {
		case <-r.Context().Done():
		case <-ended.Done():
		}
	}))
	defer silent.Close()
	defer release()
	file := writeKubeconfig(t, silent.URL, nil, &clientcmdapi.AuthInfo{Token: "token"})
	for _, command := range []string{
		"offload namespace shop", "offload namespace --ns-selector=team=a -o yaml", "unoffload namespace shop", "info", "info milan", "doctor", "test",
		"install --cluster-id=rome --registry=registry.example.com/refract", "install --dry-run --cluster-id=rome --registry=registry.example.com/refract", "uninstall",
		"peer --remote-context=milan", "peer --dry-run --remote-context=milan", "unpeer --remote-context=milan", "unpeer milan --force",
		"create virtualnode milan --provider=milan", "create resourceslice milan --remote-cluster-id=milan", "delete resourceslice milan", "create nonce --remote-cluster-id=rome",
		"get nonce --remote-cluster-id=rome", "generate tenant --remote-cluster-id=milan --nonce=bm9uY2U=", "generate identity --remote-cluster-id=rome", "delete virtualnode milan", "get virtualnode", "generate peering-user rome", "delete peering-user rome",
		"cordon virtualnode milan", "uncordon virtualnode milan", "drain virtualnode milan",
		"cordon tenant rome", "uncordon tenant rome", "activate tenant rome", "drain tenant rome", "cordon resourceslice milan -n liqo-tenant-rome",
		"liqo check milan", "liqo adopt milan --image=registry.example.com/refract/virtual-kubelet:0.2.0", "liqo revert milan", "plugin list", "plugin status strip", "plugin approve strip", "plugin rollback strip",
	} {
		t.Run(command, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			interrupt = cancel
			root := NewCommand("refractctl")
			root.SetArgs(append(strings.Fields(command), "--kubeconfig="+file, "--request-timeout=1h"))
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			done := make(chan error, 1)
			go func() { done <- root.ExecuteContext(ctx) }()
			select {
			case err := <-done:
				assert.ErrorContains(t, err, "interrupted; run the command again to continue")
				assert.Equal(t, invocation.ExitFailed, invocation.ExitCode(err))
			case <-time.After(interruptedEnd):
				t.Error("the command does not end")
				release()
				<-done
			}
		})
	}
}
