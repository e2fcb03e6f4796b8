// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package webhookcert_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/internal/rbac"
)

// TestOnlyAPIServersCall checks that only clients with a certificate from ClientCAFile, which contains the CAs of the
// API servers' client certificates, can call the webhooks.
func TestOnlyAPIServersCall(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: rbac.WebhookName}}
	cluster.Create(t, secret)
	t.Cleanup(func() { remove(t, secret) })
	server, err := cluster.ConfigFor("kube-apiserver")
	require.NoError(t, err)
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	asks := func(o *controllers.Options) {
		o.Webhooks = &controllers.WebhookOptions{Namespace: metav1.NamespaceDefault, Host: "127.0.0.1", Port: free.Addr().(*net.TCPAddr).Port, ClientCAFile: authorities}
	}
	_, err = cluster.TryManager(t, asks)
	require.ErrorContains(t, err, "reading --webhook-client-ca-file")
	require.NoError(t, os.WriteFile(authorities, []byte("none"), 0o600))
	_, err = cluster.TryManager(t, asks)
	require.ErrorContains(t, err, "has no certificate: use PEM")
	require.NoError(t, os.WriteFile(authorities, server.CAData, 0o600))
	cluster.StartManager(t, asks)
	shown, err := tls.X509KeyPair(server.CertData, server.KeyData)
	require.NoError(t, err)
	call := func(certificates ...tls.Certificate) (string, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}}
		response, err := client.Post("https://"+free.Addr().String()+quota.Path, "application/json", bytes.NewReader([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`)))
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	controllertest.Eventually(t, "the webhook to answer the API server", func() error {
		answer, err := call(shown)
		if err == nil && !strings.Contains(answer, "AdmissionReview") {
			err = fmt.Errorf("it says %q", answer)
		}
		return err
	})
	_, err = call()
	assert.ErrorContains(t, err, "certificate required")
}
