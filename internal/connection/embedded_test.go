// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/internal/connection"
)

// outside returns a function for each field, by the field's name. It sets the field of a kubeconfig to a value that
// refers to something outside of the file, or that disables the verification of the server.
func outside(file string) map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	return map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"Server":                func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "http://milan.example.com:6443" },
		"InsecureSkipTLSVerify": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.InsecureSkipTLSVerify = true },
		"CertificateAuthority":  func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = file },
		"ProxyURL":              func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://127.0.0.1:8118" },
		"ClientCertificate":     func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = file },
		"ClientKey":             func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = file },
		"TokenFile":             func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = file },
		"Impersonate":           func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" },
		"ImpersonateUID":        func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ImpersonateUID = "1" },
		"ImpersonateGroups": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateGroups = []string{"system:masters"}
		},
		"ImpersonateUserExtra": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateUserExtra = map[string][]string{"a": {"b"}}
		},
		"AuthProvider": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		},
		"Exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		},
	}
}

// embedded lists fields whose values are in the kubeconfig itself, or that do not come from files.
var embedded = []string{"LocationOfOrigin", "Server", "TLSServerName", "CertificateAuthorityData", "DisableCompression", "Extensions",
	"ClientCertificateData", "ClientKeyData", "Token", "Username", "Password"}

// TestEachFieldOfAKubeconfigIsJudged checks that every field of clientcmdapi.Cluster and AuthInfo is listed in either
// outside or embedded, so that the test fails when a newer client-go adds a field.
func TestEachFieldOfAKubeconfigIsJudged(t *testing.T) {
	judged := outside("")
	for _, kind := range []reflect.Type{reflect.TypeFor[clientcmdapi.Cluster](), reflect.TypeFor[clientcmdapi.AuthInfo]()} {
		for field := range kind.Fields() {
			if judged[field.Name] == nil && !slices.Contains(embedded, field.Name) {
				t.Errorf("%s.%s is neither refused nor known to be embedded", kind, field.Name)
			}
		}
	}
}

func TestRequireEmbedded(t *testing.T) {
	// Opening the FIFO would block, because no process writes to it.
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, named := range []bool{true, false} {
		context, cluster, user := "milan", "c", "u"
		if !named { // client-go uses these names if there is no context
			context, cluster, user = "", "", ""
		}
		valid := func() *clientcmdapi.Config {
			config := clientcmdapi.NewConfig()
			config.CurrentContext = context
			config.Clusters[cluster] = &clientcmdapi.Cluster{Server: "https://milan.example.com:6443", TLSServerName: "milan"}
			config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: "token"}
			config.AuthInfos["another"] = &clientcmdapi.AuthInfo{TokenFile: fifo}
			if named {
				config.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
				config.Contexts["another"] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: "another"}
			}
			return config
		}
		require.NoError(t, connection.RequireEmbedded(valid(), ""))
		if named {
			require.Error(t, connection.RequireEmbedded(valid(), "another"))
		}
		for field, set := range outside(fifo) {
			config := valid()
			set(config.Clusters[cluster], config.AuthInfos[user])
			var refused *connection.OutsideError
			assert.ErrorAs(t, connection.RequireEmbedded(config, ""), &refused, field)

			text, err := clientcmd.Write(*config)
			require.NoError(t, err)
			_, err = connection.Parse(text)
			if assert.ErrorAs(t, err, &refused, field) {
				assert.NotEmpty(t, refused.Remedy)
				assert.Contains(t, refused.Problem, refused.Field)
			}
		}
	}
}

// TestRefusedFieldsAreQuoted checks that errors quote the other party's text, so that it cannot harm a terminal.
func TestRefusedFieldsAreQuoted(t *testing.T) {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "c"
	config.Contexts["c"] = &clientcmdapi.Context{AuthInfo: "u"}
	for field, user := range map[string]*clientcmdapi.AuthInfo{
		"exec":      {Exec: &clientcmdapi.ExecConfig{Command: "\x1b]0;x\a" + strings.Repeat("x", 1000)}},
		"tokenFile": {TokenFile: "\x1b[2K" + strings.Repeat("x", 1000)},
	} {
		config.AuthInfos["u"] = user
		err := connection.RequireEmbedded(config, "")
		require.ErrorContains(t, err, field+` "\x1b`)
		assert.Less(t, len(err.Error()), 400)
	}
}
