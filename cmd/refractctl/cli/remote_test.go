// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// stranger is an API server of another party, and the local files that its kubeconfig tries to access.
type stranger struct {
	url  string
	seen atomic.Int32
	ran  string // file that the command in the kubeconfig creates
	fifo string // named pipe; opening the pipe would block
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	s := &stranger{ran: filepath.Join(t.TempDir(), "ran"), fifo: filepath.Join(t.TempDir(), "fifo")}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.seen.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	require.NoError(t, syscall.Mkfifo(s.fifo, 0o600))
	return s
}

// kubeconfig returns a kubeconfig of the stranger after a change. If invitation is true, it contains the extension that
// refractctl generate peering-user adds.
func (s *stranger) kubeconfig(t *testing.T, invitation bool, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) string {
	t.Helper()
	config, other, user := clientcmdapi.NewConfig(), &clientcmdapi.Cluster{Server: s.url}, &clientcmdapi.AuthInfo{Token: "token"}
	change(other, user)
	if invitation {
		other.Extensions = map[string]runtime.Object{"peering.refract.io": &runtime.Unknown{
			Raw: []byte(`{"Consumer":"rome","Provider":"milan","ProviderUID":"1"}`), ContentType: runtime.ContentTypeJSON,
		}}
	}
	config.Clusters["milan"], config.AuthInfos["rome"] = other, user
	config.Contexts["milan"] = &clientcmdapi.Context{Cluster: "milan", AuthInfo: "rome"}
	config.CurrentContext = "milan"
	file := filepath.Join(t.TempDir(), "milan.yaml")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

func (s *stranger) untouched(t *testing.T) {
	t.Helper()
	assert.NoFileExists(t, s.ran)
	assert.Zero(t, s.seen.Load(), "the stranger was connected to")
}

// outside returns forbidden changes to a kubeconfig of another party. The key is the field that the error names.
func (s *stranger) outside() map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	return map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", Args: []string{"-c", "touch " + s.ran}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		},
		"auth-provider": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		},
		"tokenFile":                func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = s.fifo },
		"client-certificate":       func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = s.fifo },
		"client-key":               func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = s.fifo },
		"certificate-authority":    func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = s.fifo },
		"insecure-skip-tls-verify": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.InsecureSkipTLSVerify = true },
		"proxy-url":                func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = s.url },
		"as, as-uid":               func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" },
		"not https": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server = strings.Replace(c.Server, "https", "http", 1)
		},
	}
}

// TestAKubeconfigOfAnotherPartyIsData checks that each command that accepts a kubeconfig of another cluster rejects a
// kubeconfig that needs more than its own content, before it connects to any server.
func TestAKubeconfigOfAnotherPartyIsData(t *testing.T) {
	s := newStranger(t)
	commands := map[string][]string{
		"peer":               {"peer"},
		"peer --dry-run":     {"peer", "--dry-run"},
		"unpeer":             {"unpeer", "--dry-run"},
		"doctor":             {"doctor"},
		"create virtualnode": {"create", "virtualnode", "milan-gpu", "--provider=milan"},
		"delete virtualnode": {"delete", "virtualnode", "milan-gpu"},
	}
	for field, change := range s.outside() {
		for name, command := range commands {
			for _, invitation := range []bool{true, false} {
				file := s.kubeconfig(t, invitation, change)
				ways := map[string][]string{"": {"--remote-kubeconfig=" + file}, "by context": {"--remote-kubeconfig=" + file, "--remote-context=milan"}}
				if invitation { // invitations are not trusted
					ways["trusted"] = []string{"--remote-kubeconfig=" + file, "--trust-remote-kubeconfig"}
				}
				for way, flags := range ways {
					t.Run(fmt.Sprintf("%s/%s/%t%s", field, name, invitation, way), func(t *testing.T) {
						_, progress, err := refractctl(t, onCluster(append(append([]string{}, command...), flags...)...)...)
						require.ErrorContains(t, err, "--remote-kubeconfig="+file)
						assert.ErrorContains(t, err, field)
						assert.Empty(t, progress)
						if invitation {
							assert.ErrorContains(t, err, "ask for another invitation")
						} else {
							assert.ErrorContains(t, err, "--trust-remote-kubeconfig")
						}
						s.untouched(t)
					})
				}
			}
		}
	}
}

// TestAnInvitationIsDataEverywhere checks that an invitation with forbidden fields is rejected as the kubeconfig of the
// command itself, and if it is merged into another kubeconfig.
func TestAnInvitationIsDataEverywhere(t *testing.T) {
	s := newStranger(t)
	for field, change := range s.outside() {
		file := s.kubeconfig(t, true, change)
		for _, args := range [][]string{
			{"info"}, {"doctor"}, {"get", "virtualnode"}, {"offload", "namespace", "shop"}, {"install", "--cluster-id=rome"}, {"uninstall"}, {"generate", "peering-user", "turin"}, {"liqo", "adopt", "milan", "--image=virtual-kubelet"},
			{"test"}, {"peer", "--remote-context=milan"}, {"info", "--cluster=milan", "--user=rome", "--context="},
		} {
			_, _, err := refractctl(t, append(args, "--kubeconfig="+file)...)
			require.ErrorContains(t, err, field, "%s", args)
			require.ErrorContains(t, err, "is an invitation and cannot be used", "%s", args)
		}
		t.Setenv(clientcmd.RecommendedConfigPathEnvVar, testCluster.Kubeconfig()+string(os.PathListSeparator)+file)
		for _, args := range [][]string{
			{"info", "--context=milan"}, {"info", "--cluster=milan", "--user=rome"}, {"peer", "--remote-context=milan"},
		} {
			_, _, err := refractctl(t, args...)
			require.ErrorContains(t, err, "is an invitation and cannot be used", "%s", args)
		}
		s.untouched(t)
	}
}

// TestOnesOwnKubeconfigMayRunCommands checks that a user's own kubeconfig may run the commands of a cloud provider and
// refer to files, either because of a flag or because the context is in the user's kubeconfig.
func TestOnesOwnKubeconfigMayRunCommands(t *testing.T) {
	s := newStranger(t)
	file := s.kubeconfig(t, false, func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.Server, c.CertificateAuthorityData = testCluster.Config().Host, testCluster.Config().CAData
		*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", Args: []string{"-c", "touch " + s.ran + "; exit 1"}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	})
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, testCluster.Kubeconfig()+string(os.PathListSeparator)+file)
	for _, flags := range [][]string{{"--remote-kubeconfig=" + file, "--trust-remote-kubeconfig"}, {"--remote-context=milan"}} {
		_, _, err := refractctl(t, append([]string{"peer", "--dry-run"}, flags...)...)
		require.Error(t, err)
		assert.FileExists(t, s.ran, "%s", flags)
		require.NoError(t, os.Remove(s.ran))
	}
	_, _, err := refractctl(t, "peer", "--remote-context=milan", "--trust-remote-kubeconfig")
	assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), "%v", err)
}

// TestRefractctlFollowsNoRedirects checks that neither cluster can redirect refractctl to another server.
func TestRefractctlFollowsNoRedirects(t *testing.T) {
	s := newStranger(t)
	target := s.url
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target+r.URL.Path, status) }))
		t.Cleanup(server.Close)
		file := s.kubeconfig(t, false, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.Server, c.InsecureSkipTLSVerify = server.URL, true
		})
		for _, args := range [][]string{
			onCluster("peer", "--remote-kubeconfig="+file, "--trust-remote-kubeconfig"), {"info", "--kubeconfig=" + file}, {"test", "milan", "--kubeconfig=" + file},
			{"install", "--cluster-id=rome", "--registry=registry.example.com", "--kubeconfig=" + file}, {"cordon", "virtualnode", "milan", "--kubeconfig=" + file},
		} {
			_, _, err := refractctl(t, args...)
			require.ErrorContains(t, err, "redirects to another server, "+target, "%d %s", status, args)
			s.untouched(t)
		}
	}
}
