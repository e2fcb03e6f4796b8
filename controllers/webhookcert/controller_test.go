// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package webhookcert_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/podscheduling"
	"github.com/refract-project/refract/controllers/webhookcert"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster = controllertest.Cluster{
	ID:      "consumer",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &cluster)) }

// start starts a replica and returns the address of its webhooks.
func start(t *testing.T) (address string, m *controllertest.Manager) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	return listener.Addr().String(), cluster.StartManager(t, func(o *controllers.Options) {
		o.Webhooks = &controllers.WebhookOptions{Namespace: metav1.NamespaceDefault, Host: "127.0.0.1", Port: port}
	})
}

func TestTheAPIServerIsToldWhomToTrust(t *testing.T) {
	url := "https://localhost/" + podscheduling.Path
	configuration := podscheduling.Configuration(rbac.WebhookName, metav1.NamespaceDefault, admissionregistrationv1.WebhookClientConfig{URL: &url}, admissionregistrationv1.Ignore)
	second := configuration.Webhooks[0]
	second.Name = "another.refract.io"
	configuration.Webhooks = append(configuration.Webhooks, second)
	foreign := configuration.DeepCopy()
	foreign.Name = "foreign"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: rbac.WebhookName}}
	for _, object := range []client.Object{secret, foreign} {
		cluster.Create(t, object)
		t.Cleanup(func() { remove(t, object) })
	}
	one, first := start(t)
	two, _ := start(t)

	// In a new installation, the webhook configuration may be created last.
	cluster.Create(t, configuration)
	t.Cleanup(func() { remove(t, configuration) })
	authority := awaitTrust(t, nil)
	served := serves(t, one, authority)
	serves(t, two, authority)

	// During an upgrade, a tool may remove the CA from the configuration. The controller must restore it.
	cluster.Patch(t, configuration, `{"metadata":{"annotations":{"upgraded":"yes"}}}`)
	require.NoError(t, cluster.Client.Patch(t.Context(), configuration, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks/1/clientConfig/caBundle"}]`))))
	if again := awaitTrust(t, nil); string(again) != string(authority) {
		t.Error("the authority is another one without need")
	}

	cluster.Patch(t, secret, `{"data":null}`)
	renewed := awaitTrust(t, authority)
	if now := serves(t, one, renewed); now.Equal(served) {
		t.Error("the certificate is still the one of the former authority")
	}
	serves(t, two, renewed)

	// Only the named configuration may be written, and only with patches.
	if writes := first.Writes.About("admissionregistration"); len(writes) == 0 || len(writes) != len(first.Writes.About("PATCH", "mutatingwebhookconfigurations/"+rbac.WebhookName)) {
		t.Errorf("writes = %q", writes)
	}
	cluster.Get(t, foreign, "", foreign.Name)
	if len(foreign.Webhooks[0].ClientConfig.CABundle) > 0 {
		t.Error("another owner's configuration was written to")
	}
}

func remove(t *testing.T, object client.Object) {
	t.Helper()
	assert.NoErrorf(t, cluster.Client.Delete(context.WithoutCancel(t.Context()), object), "deleting %s", object.GetName())
}

// awaitTrust waits until all webhooks of the configuration trust the same CA, which must differ from before. It returns
// the CA.
func awaitTrust(t *testing.T, before []byte) []byte {
	t.Helper()
	var trusted []byte
	controllertest.Eventually(t, "the API server to trust the authority", func() error {
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		cluster.Get(t, configuration, "", rbac.WebhookName)
		trusted = configuration.Webhooks[0].ClientConfig.CABundle
		if other := configuration.Webhooks[1].ClientConfig.CABundle; len(trusted) == 0 || string(trusted) == string(before) || string(trusted) != string(other) {
			return fmt.Errorf("the webhooks trust %q and %q", trusted, other)
		}
		return nil
	})
	return trusted
}

// serves waits until the server at address presents a certificate of the CA for each name that API servers use.
func serves(t *testing.T, address string, authority []byte) *x509.Certificate {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	var shown *x509.Certificate
	for _, name := range []string{"localhost", rbac.WebhookName + ".default.svc"} {
		controllertest.Eventually(t, "a certificate for "+name, func() error {
			dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Second}, Config: &tls.Config{RootCAs: pool, ServerName: name}}
			connection, err := dialer.DialContext(t.Context(), "tcp", address)
			if err != nil {
				return err
			}
			shown = connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
			return connection.Close()
		})
	}
	if life := shown.NotAfter.Sub(shown.NotBefore); life > 8*24*time.Hour {
		t.Errorf("the certificate is valid for %s", life)
	}
	return shown
}

func TestACertificateThatDoesNotComeTellsWhatItWaitsFor(t *testing.T) {
	access, err := cluster.ConfigFor(controllertest.ManagerUser)
	require.NoError(t, err)
	certificate := webhookcert.NewCertificate(access, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: rbac.WebhookName}, "localhost")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- certificate.Start(ctx) }()
	if err := certificate.Ready(&http.Request{}); err == nil || !strings.Contains(err.Error(), "check that Secret default/refract-webhook exists") {
		t.Errorf("error = %v", err)
	}
	stop()
	assert.NoError(t, <-ended, "ending")
}
