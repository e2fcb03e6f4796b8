// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// If an API server rejects the credentials, or a context has no credentials, the error names the cause.
func TestCredentialsThatAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		user clientcmdapi.AuthInfo
		want string
	}{
		"a token that is none": {clientcmdapi.AuthInfo{Token: "expired"}, "the API server rejects the credentials of the kubeconfig: log in again"},
		"none":                 {clientcmdapi.AuthInfo{}, "the context may have no credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := clientcmd.LoadFromFile(testCluster.Kubeconfig())
			require.NoError(t, err)
			for user := range raw.AuthInfos {
				raw.AuthInfos[user] = &test.user
			}
			file := filepath.Join(t.TempDir(), "kubeconfig")
			require.NoError(t, clientcmd.WriteToFile(*raw, file))
			for _, args := range [][]string{{"info"}, {"offload", "namespace", "shop"}, {"peer", "--remote-kubeconfig=" + file}} {
				_, said, err := refractctl(t, append(args, "--kubeconfig="+file)...)
				require.Error(t, err, args)
				assert.Contains(t, said+err.Error(), test.want, args)
			}
		})
	}
}

func TestImpersonationNeedsACluster(t *testing.T) {
	for _, args := range [][]string{
		{"peer", "--remote-context=milan", "--remote-as-group=admins"}, {"doctor", "--remote-as=alice"}, {"delete", "virtualnode", "milan", "--remote-as=alice"},
	} {
		_, _, err := refractctl(t, onCluster(args...)...)
		assert.Equal(t, exitUsage, exitCode(err), "%s: %v", args, err)
		assert.ErrorContains(t, err, "--remote-as")
	}
}
