// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/internal/connection"
)

// TestKubeconfigsAsToolsWriteThem checks administrators' kubeconfigs in the forms that tools and clouds write. The
// consumer's kubeconfig must be for the same server, verify the server with the same certificates and name, and contain
// none of the administrator's credentials. If data is missing, the command must report this.
func TestKubeconfigsAsToolsWriteThem(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, authority, 0o600))
	embedded := "certificate-authority-data: " + base64.StdEncoding.EncodeToString(authority)
	for name, test := range map[string]struct {
		cluster, user string
		want          string // text that the error must contain
		name          string // expected TLS server name of the provider
	}{
		"kind":                     {"server: https://127.0.0.1:41847\n" + embedded, "client-certificate-data: QQ==", "which pods of rome cannot reach", ""},
		"k3d":                      {"server: https://0.0.0.0:6550\n" + embedded, "client-certificate-data: QQ==", "which pods of rome cannot reach", ""},
		"k3d for all addresses":    {"server: https://[::]:6550\n" + embedded, "client-certificate-data: QQ==", "which pods of rome cannot reach", ""},
		"Docker Desktop":           {"server: https://kubernetes.docker.internal:6443\n" + embedded, "client-certificate-data: QQ==", "which pods of rome cannot reach", ""},
		"minikube":                 {"server: https://192.168.49.2:8443\ncertificate-authority: " + file, "client-certificate: /nowhere/client.crt\nclient-key: /nowhere/client.key", "", ""},
		"Amazon EKS":               {"server: https://0123456789ABCDEF.gr7.eu-west-1.eks.invalid\n" + embedded, "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [eks, get-token]}", "", ""},
		"Google GKE":               {"server: https://203.0.113.7\n" + embedded, "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: gke-gcloud-auth-plugin, interactiveMode: IfAvailable, provideClusterInfo: true}", "", ""},
		"Azure AKS":                {"server: https://milan-dns-0a1b2c3d.hcp.westeurope.azmk8s.invalid:443\n" + embedded, "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: kubelogin, args: [get-token, --environment, AzurePublicCloud, --server-id, 6dae42f8-4368-4678-94ff-3960e28e3630, --login, devicecode], installHint: install kubelogin, provideClusterInfo: false}", "", ""},
		"Azure AKS, local account": {"server: https://milan-dns-0a1b2c3d.hcp.westeurope.azmk8s.invalid:443\n" + embedded, "client-certificate-data: QQ==\ntoken: a", "", ""},
		"Azure AKS, private":       {"server: https://milan-0a1b2c3d.privatelink.westeurope.azmk8s.invalid:443\n" + embedded, "exec: {apiVersion: client.authentication.k8s.io/v1, command: kubelogin, args: [get-token, --login, azurecli], interactiveMode: Never}", "", ""},
		"Rancher":                  {"server: https://rancher.invalid/k8s/clusters/c-m-abc", "token: kubeconfig-user-abc:secret", "", ""},
		"Teleport":                 {"server: https://teleport.invalid:443\ntls-server-name: kube-teleport-proxy-alpn.teleport.invalid\n" + embedded, "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: tsh}", "", "kube-teleport-proxy-alpn.teleport.invalid"},
		"a bastion":                {"server: https://10.0.0.1:6443\nproxy-url: socks5://127.0.0.1:1080\n" + embedded, "token: a", "socks5://127.0.0.1:1080 (proxy-url), which pods of rome do not use", ""},
		"unverified":               {"server: https://10.0.0.1:6443\ninsecure-skip-tls-verify: true", "token: a", "insecure-skip-tls-verify", ""},
		"kubectl proxy":            {"server: http://10.0.0.1:8001", "{}", "must be an https URL", ""},
		"a certificate's address":  {"server: https://10.0.0.1:6443\ntls-server-name: milan.example\ncertificate-authority: " + file, "{token: a, as: somebody}", "", "milan.example"},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: milan\nclusters: [{name: milan, cluster: {%s}}]\nusers: [{name: admin, user: %s}]\ncontexts: [{name: milan, context: {cluster: milan, user: admin, namespace: elsewhere}}]\n",
				strings.ReplaceAll(test.cluster, "\n", ", "), flow(test.user))
			text = strings.ReplaceAll(text, "server: https://[::]:6550", `server: "https://[::]:6550"`)
			raw, err := clientcmd.Load([]byte(text))
			require.NoError(t, err, text)
			config, err := clientcmd.NewDefaultClientConfig(*withoutFiles(raw), nil).ClientConfig()
			require.NoError(t, err)
			o := &Address{Consumer: side("rome", nil), Provider: side("milan", config)}
			err = o.Check(t.Context())
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			written, err := o.Kubeconfig(&clientcmdapi.AuthInfo{Token: "of rome"})
			require.NoError(t, err)
			result, err := clientcmd.Load(written)
			require.NoError(t, err)
			require.NoError(t, connection.RequireEmbedded(result, result.CurrentContext))
			assert.Equal(t, raw.Clusters["milan"].Server, result.Clusters["milan"].Server)
			assert.Equal(t, test.name, result.Clusters["milan"].TLSServerName)
			assert.Equal(t, &clientcmdapi.AuthInfo{Token: "of rome", Extensions: result.AuthInfos["rome"].Extensions}, result.AuthInfos["rome"])
			if !strings.Contains(test.cluster, "certificate-authority") { // otherwise the CA certificates of the system are used
				assert.Empty(t, result.Clusters["milan"].CertificateAuthorityData)
				return
			}
			assert.Equal(t, string(authority), string(result.Clusters["milan"].CertificateAuthorityData))
		})
	}
}

// flow returns the fields of a user as a YAML flow mapping.
func flow(fields string) string {
	if strings.HasPrefix(fields, "{") {
		return fields
	}
	return "{" + strings.ReplaceAll(fields, "\n", ", ") + "}"
}

// withoutFiles returns a kubeconfig without references to the administrator's files, which do not exist in this test.
func withoutFiles(raw *clientcmdapi.Config) *clientcmdapi.Config {
	raw = raw.DeepCopy()
	for _, user := range raw.AuthInfos {
		if user.ClientCertificate != "" || len(user.ClientCertificateData) > 0 {
			*user = clientcmdapi.AuthInfo{Token: "a"}
		}
	}
	return raw
}
