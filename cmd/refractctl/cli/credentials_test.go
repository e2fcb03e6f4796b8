// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
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

// TestCredentialsThatAreRejected checks that the error names the cause if an API server rejects the credentials, or if
// a context has no credentials.
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

// TestAuthProviders checks that a kubeconfig with an auth-provider, which clients no longer support, is rejected with
// an error that names the replacement.
func TestAuthProviders(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"azure": "kubelogin convert-kubeconfig", "gcp": "gke-gcloud-auth-plugin", "oidc": "kubectl oidc-login", "openstack": "use an exec plugin"} {
		file := writeKubeconfig(t, "https://127.0.0.1:1", nil, &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: name}})
		for _, args := range [][]string{{"info"}, {"install", "--cluster-id=rome", "--registry=registry.example.com/refract"}, {"offload", "namespace", "shop"}, {"peer", "--remote-context=milan"}} {
			_, _, err := refractctl(t, append(args, "--kubeconfig="+file)...)
			require.ErrorContains(t, err, want, args)
			assert.ErrorContains(t, err, file, args)
		}
	}
}

func TestImpersonationNeedsACluster(t *testing.T) {
	for _, args := range [][]string{
		{"peer", "--remote-context=milan", "--remote-as-group=admins"}, {"doctor", "--remote-as=alice"}, {"delete", "virtualnode", "milan", "--remote-as=alice"},
	} {
		_, _, err := refractctl(t, onCluster(args...)...)
		assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), "%s: %v", args, err)
		assert.ErrorContains(t, err, "--remote-as")
	}
}

// TestImpersonationInBothClusters checks that each cluster is accessed as the user of its own flags.
func TestImpersonationInBothClusters(t *testing.T) {
	rome, milan := peeringtest.New(t, "rome").Install(t, "10.1.0.0/16").Play(t), peeringtest.New(t, "milan").Install(t, "10.2.0.0/16").Play(t)
	var mu sync.Mutex
	seen := map[string][]apistub.Request{}
	var files []string
	for _, side := range []*peeringtest.Side{rome, milan} {
		files = append(files, writeKubeconfig(t, side.Config.Host, side.Config.CAData, &clientcmdapi.AuthInfo{Token: apistub.AdminToken}))
		side.OnRequest(func(r apistub.Request) *apistub.Failure {
			mu.Lock()
			defer mu.Unlock()
			// The command also tries the new credentials of rome, which impersonate nobody.
			if r.Header.Get("Authorization") == "Bearer "+apistub.AdminToken {
				seen[side.ID] = append(seen[side.ID], r)
			}
			return nil
		})
	}
	flags := []string{"--kubeconfig=" + files[0], "--as=bob", "--remote-kubeconfig=" + files[1], "--trust-remote-kubeconfig", "--remote-as=alice", "--remote-as-group=admins", "--remote-as-group=auditors"}
	for _, test := range []struct {
		args   []string
		writes bool
	}{
		{[]string{"peer", "--dry-run", "--remote-api-server-url=" + milan.Config.Host}, false},
		{[]string{"peer", "--remote-api-server-url=" + milan.Config.Host}, true},
		{[]string{"create", "virtualnode", "milan-gpu", "--provider=milan"}, true},
		{[]string{"delete", "virtualnode", "milan-gpu"}, true},
		{[]string{"unpeer"}, true},
	} {
		clear(seen)
		_, said, err := refractctl(t, append(test.args, flags...)...)
		require.NoError(t, err, "%s: %s", test.args, said)
		for id, want := range map[string]struct {
			user   string
			groups []string
		}{"rome": {"bob", nil}, "milan": {"alice", []string{"admins", "auditors"}}} {
			wrote := false
			assert.NotEmpty(t, seen[id], test.args)
			for _, request := range seen[id] {
				wrote = wrote || request.IsWrite()
				what := fmt.Sprintf("%s: %s %s %s in %s", test.args, request.Verb, request.Resource, request.Name, id)
				assert.Equal(t, want.user, request.Header.Get("Impersonate-User"), what)
				assert.Equal(t, want.groups, request.Header.Values("Impersonate-Group"), what)
			}
			assert.Equal(t, test.writes, wrote, "%s: writes in %s", test.args, id)
		}
	}
}
