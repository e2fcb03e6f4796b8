// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/test/support/apistub"
)

// writeKubeconfig writes a kubeconfig for an API server, and returns its path.
func writeKubeconfig(t *testing.T, server string, ca []byte, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["milan"], config.AuthInfos["admin"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}, user
	config.Contexts["milan"], config.CurrentContext = &clientcmdapi.Context{Cluster: "milan", AuthInfo: "admin"}, "milan"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

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

// Each cluster is accessed as the user of its own flags.
func TestImpersonationInBothClusters(t *testing.T) {
	rome, milan := peeringtest.New(t, "rome").Install(t, "10.1.0.0/16").Play(t), peeringtest.New(t, "milan").Install(t, "10.2.0.0/16").Play(t)
	var mu sync.Mutex
	seen := map[string][]http.Header{}
	var files []string
	for _, side := range []*peeringtest.Side{rome, milan} {
		files = append(files, writeKubeconfig(t, side.Config.Host, side.Config.CAData, &clientcmdapi.AuthInfo{Token: apistub.AdminToken}))
		side.OnRequest(func(r apistub.Request) *apistub.Failure {
			mu.Lock()
			defer mu.Unlock()
			seen[side.ID] = append(seen[side.ID], r.Header)
			return nil
		})
	}
	flags := []string{"--kubeconfig=" + files[0], "--as=bob", "--remote-kubeconfig=" + files[1], "--trust-remote-kubeconfig", "--remote-as=alice", "--remote-as-group=admins", "--remote-as-group=auditors"}
	for _, args := range [][]string{
		{"peer", "--dry-run", "--remote-api-server-url=" + milan.Config.Host}, {"peer", "--remote-api-server-url=" + milan.Config.Host}, {"unpeer"},
	} {
		clear(seen)
		// The stubs may refuse the command, after its first checks of both clusters.
		_, _, _ = refractctl(t, append(args, flags...)...)
		impersonated := 0
		for _, header := range seen["milan"] {
			impersonated++
			assert.Equal(t, "alice", header.Get("Impersonate-User"), args)
			assert.Equal(t, []string{"admins", "auditors"}, header.Values("Impersonate-Group"), args)
		}
		assert.Positive(t, impersonated, "requests of %s to milan", args)
		assert.NotEmpty(t, seen["rome"], args)
		for _, header := range seen["rome"] {
			assert.Equal(t, "bob", header.Get("Impersonate-User"), args)
			assert.Empty(t, header.Values("Impersonate-Group"), args)
		}
	}
}
