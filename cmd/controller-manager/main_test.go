// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/authentication"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/redirect"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestWrongFlagsNameThemselvesAndTheRemedy checks that errors about flags contain the flag and the remedy. This test is
// the first one, because it changes the loggers of the process, and controller managers of other tests may still be
// stopping.
func TestWrongFlagsNameThemselvesAndTheRemedy(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	none := filepath.Join(t.TempDir(), "none")
	require.NoError(t, os.WriteFile(none, []byte("just words"), 0o600))
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":""}}],
		"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}]}`
	require.NoError(t, os.WriteFile(unreachable, []byte(text), 0o600))
	for args, want := range map[string]string{
		"":                                      "--cluster-id is missing",
		"--cluster-id=A":                        "--cluster-id: cluster id \"A\" is invalid",
		"--cluster-id=a":                        "set --kubeconfig",
		"--nonsense":                            "unknown flag: --nonsense: see controller-manager --help",
		"--resync-period=0s --webhook-port=0":   "--cluster-id is missing",
		"--cluster-id=A --webhook-port=0":       "--webhook-port is 0",
		"--cluster-id=a --home-domain-of=a=B_":  "--home-domain-of: a=B_: the domain is invalid",
		"--cluster-id=a --home-domain-of=A=b":   "--home-domain-of: cluster id \"A\" is invalid",
		"home-names --consumer=A --namespace=b": "--consumer: cluster id \"A\" is invalid",
		"home-names --consumer=a --namespace=":  "--namespace is missing",
		"home-names --consumer=a --namespace=b --home-domain=":                                       "--home-domain= is invalid",
		"home-names --consumer=a --namespace=b --upstream=10.0.0.1":                                  "--upstream=10.0.0.1: use addresses with ports",
		"home-names --consumer=a --namespace=b --upstream=10.0.0.1:53 --cluster-domain=c --nonsense": "see controller-manager home-names --help",
		"--cluster-id=a --client-qps=0":                                                              "--client-qps=0: use a positive number",
		"--cluster-id=a --client-max-burst=-1":                                                       "--client-max-burst is -1: use 1 or more",
		"--cluster-id=a --remote-cluster-role=":                                                      "--remote-cluster-role is empty: name",
		"--cluster-id=a --kubeconfig=" + none:                                                        "not a kubeconfig but a list or plain text: use the output of",
		"--cluster-id=a x":                                                                           "unknown command \"x\"",
		"--cluster-id=a --kubeconfig=/nonexistent":                                                   "--kubeconfig=/nonexistent cannot be used",
		"--cluster-id=a --shadow-pod-ctrl-workers=0":                                                 "--shadow-pod-ctrl-workers is 0: use 1 or more",
		"--cluster-id=a --webhook-port=0":                                                            "--webhook-port is 0: use a port between 1 and 65535",
		"--cluster-id=a --resync-period=0s":                                                          "--resync-period is 0s: use a positive duration",
		"--cluster-id=a --log-format=xml":                                                            "--log-format is \"xml\": use text or json",
		"--cluster-id=a --kubeconfig=options.go":                                                     "--kubeconfig=options.go cannot be used",
		"--cluster-id=a --kubeconfig=" + unreachable:                                                 "https://127.0.0.1:1, the API server cannot be reached",
		"--cluster-id=a --default-limits-enforcement=some":                                           "--default-limits-enforcement is \"some\": use None, Soft or Hard",
		"--cluster-id=a --tenant-namespace-pattern-of=x":                                             "use cluster-id=pattern",
		"--cluster-id=a --tenant-namespace-pattern-of=x=(":                                           "is not a valid regular expression",
		"--cluster-id=a --tenant-default-object-count=-1":                                            "--tenant-default-object-count is -1: use a number of objects",
		"--cluster-id=a --namespace-ctrl-workers=several":                                            "--namespace-ctrl-workers",
	} {
		t.Run(args, func(t *testing.T) {
			command := newCommand()
			command.SetArgs(strings.Fields(args))
			command.SetErr(io.Discard)
			err := command.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want one with %q", err, want)
			}
		})
	}
}

// TestFlagsOfLiqoAreAccepted checks that users of Liqo can keep their command line, and that a warning names the flags
// without effect.
func TestFlagsOfLiqoAreAccepted(t *testing.T) {
	for text, want := range map[string][]string{
		"--networking-enabled=false --authentication-enabled=false --offloading-enabled=true --network-ctrl-workers=1 --client-timeout=0s":                   nil,
		"--networking-enabled --podcidr=10.0.0.0/16 --global-labels=a=b --ingress-classes=nginx":                                                             {"networking-enabled", "podcidr", "global-labels"},
		"--authentication-enabled --enable-storage --storage-namespace=liqo-storage --default-node-resources=cpu=4 --resource-validator-refresh-interval=1m": {"storage-namespace", "resource-validator-refresh-interval"},
	} {
		var o options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags)
		require.NoError(t, flags.Parse(strings.Fields(text+" --cluster-id=a")))
		require.NoError(t, o.validateOptions())
		assert.Equal(t, want, o.inert.InVain(flags), text)
	}
}

// TestAcceptedLabels checks that the labels that providers may offer are validated before anything is started.
func TestAcceptedLabels(t *testing.T) {
	for text, fault := range map[string]string{
		"": "", "--accepted-offer-labels=topology.kubernetes.io/*,example.com/tier=gold": "", "--accepted-offer-labels=a/b/c": `--accepted-offer-labels: "a/b/c" is not a label`,
	} {
		var o options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags)
		require.NoError(t, flags.Parse(strings.Fields(text+" --cluster-id=a")))
		if err := o.validateOptions(); fault == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, fault)
		}
	}
}

// TestAuthenticationFlags checks that the resources to offer are parsed in Liqo's format, and that errors name the
// flag.
func TestAuthenticationFlags(t *testing.T) {
	read := func(text string) (authentication.Options, error) {
		var o options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags)
		require.NoError(t, flags.Parse(strings.Fields(text)))
		return o.authentication.authenticationConfig()
	}
	o, err := read("--authentication-enabled --api-server-address-override=api.example.com:6443 --ingress-classes=nginx;default,traefik --load-balancer-classes=public " +
		"--default-node-resources=cpu=4,memory=8Gi --tenant-max-resources=cpu=16 --cluster-labels=zone=a --enable-storage")
	require.NoError(t, err)
	assert.True(t, o.Enabled)
	assert.Equal(t, "https://api.example.com:6443", o.APIServer.URL)
	assert.Equal(t, []offloading.IngressType{{IngressClassName: "nginx", Default: true}, {IngressClassName: "traefik"}}, o.Offer.IngressClasses)
	assert.Equal(t, []offloading.LoadBalancerType{{LoadBalancerClassName: "public"}}, o.Offer.LoadBalancerClasses)
	assert.Equal(t, "8Gi", o.Offer.Resources.Memory().String())
	assert.Equal(t, "16", o.Offer.Limit.Cpu().String())
	assert.Equal(t, map[string]string{"zone": "a"}, o.Offer.Labels)
	assert.True(t, o.Offer.Storage)
	assert.False(t, o.Offer.OtherClasses)
	for text, want := range map[string]string{
		"--api-server-address-override=http://a": "an https URL", "--ca-override=?": "--ca-override: use certificates", "--ca-override=YQ==": "--ca-override: use certificates",
		"--ingress-classes=a;default,b;default": "2 classes are the default", "--load-balancer-classes=a;first": "use NAME or NAME;default",
		"--default-node-resources=cpu=much": "cpu=much is not a quantity", "--tenant-max-resources=cpu=-1": "cpu=-1 is not a quantity",
	} {
		_, err := read(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestKubeconfigOfTheEnvironmentIsNamedAsSuch(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	_, err := (&options{}).restConfig()
	if err == nil || !strings.Contains(err.Error(), "$KUBECONFIG=/nonexistent cannot be used") || strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("error = %v", err)
	}
}

// TestTheAPIServerRedirectsToNoOtherServer checks that the clients of the controller manager do not follow a redirect
// from the API server to another server. That server would receive the token and the object in the request.
func TestTheAPIServerRedirectsToNoOtherServer(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the request %s %s went to the other server", r.Method, r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		http.Redirect(w, r, elsewhere.URL+"/_all", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "`+server.URL+`", certificate-authority-data: `+base64.StdEncoding.EncodeToString(authority)+`}}],
  users: [{name: a, user: {token: secret}}]}`), 0o600))
	config, err := (&options{kubeconfig: kubeconfig, clientQPS: -1}).restConfig()
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	secrets := clients.CoreV1().Secrets("shop")
	_, readErr := secrets.Get(t.Context(), "db", metav1.GetOptions{})
	_, createErr := secrets.Create(t.Context(), &corev1.Secret{StringData: map[string]string{"password": "x"}}, metav1.CreateOptions{})
	for _, err := range []error{readErr, createErr} {
		var refused *redirect.Error
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, elsewhere.URL, refused.To)
	}
}

// TestStartWaitsForAnAPIServerThatLimitsRequests checks that the controller manager does not exit if the API server
// throttles requests while the controllers start, and does not wait for the delay in the response.
func TestStartWaitsForAnAPIServerThatLimitsRequests(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "`+server.URL+`"}}], users: [{name: a, user: {token: secret}}]}`), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	command, ended := newCommand(), make(chan error, 1)
	command.SetArgs([]string{"--cluster-id=provider", "--kubeconfig=" + kubeconfig, "--liqo-namespace=refract", "--enable-leader-election", "--metrics-address=0", "--health-probe-address=0"})
	go func() { ended <- command.ExecuteContext(ctx) }()
	await(t, "a second attempt", ended, func() error {
		if requests.Load() < 2 {
			return fmt.Errorf("%d requests", requests.Load())
		}
		return nil
	})
	stop()
	assert.NoError(t, <-ended, "ending")
}

func TestRunsWithItsRolesAndReleasesItsLease(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0]
	clients, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "refract"}}
	_, err = clients.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, rbac.Install(t.Context(), clients, rbac.Manager{Namespace: "refract", Subject: rbac.User("manager")}.Objects()...))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.KubeconfigFor(kubeconfig, "manager"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: rbac.WebhookName}}
	_, err = clients.CoreV1().Secrets("refract").Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	metrics, health, webhook := freeAddress(t), freeAddress(t), freeAddress(t)
	host, port, err := net.SplitHostPort(webhook)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	command, ended := newCommand(), make(chan error, 1)
	command.SetArgs([]string{"--cluster-id=provider", "--kubeconfig=" + kubeconfig, "--liqo-namespace=refract", "--enable-leader-election",
		"--metrics-address=" + metrics, "--health-probe-address=" + health, "--webhook-host=" + host, "--webhook-port=" + port})
	go func() { ended <- command.ExecuteContext(ctx) }()

	await(t, "readiness", ended, func() error { return get(health, "/readyz", "ok") })
	var lease *coordinationv1.Lease
	await(t, "the lease", ended, func() error {
		lease, err = clients.CoordinationV1().Leases("refract").Get(t.Context(), rbac.LeaderElectionID, metav1.GetOptions{})
		if err == nil && *lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("nobody holds it")
		}
		return err
	})
	await(t, "the controllers", ended, func() error {
		return get(metrics, "/metrics", `controller_runtime_active_workers{controller="shadowpod"} 0`)
	})
	await(t, "the Event that tells who leads", ended, func() error {
		events, err := clients.CoreV1().Events("refract").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
		if err == nil && len(events.Items) == 0 {
			return fmt.Errorf("there is none")
		}
		return err
	})
	createOffloading(t, cluster.Config(), "refract")
	for _, line := range []string{
		`refract_controller_objects{controller="namespaceoffloading",kind="NamespaceOffloading"} 1`,
		`refract_controller_api_writes_total{controller="namespaceoffloading",destination="local",kind="NamespaceOffloading",subresource="",verb="patch"} 1`,
		`refract_controller_errors_total{class="forbidden",controller="namespaceoffloading"} 0`,
	} {
		await(t, line, ended, func() error { return get(metrics, "/metrics", line+"\n") })
	}
	assert.NoError(t, get(health, "/healthz", "ok"))

	stop()
	assert.NoError(t, <-ended, "ending")
	lease, err = clients.CoordinationV1().Leases("refract").Get(t.Context(), rbac.LeaderElectionID, metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("lease = %v, error = %v, want it released", lease.Spec, err)
	}
}

func createOffloading(t *testing.T, config *rest.Config, namespace string) {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	object := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}}
	require.NoError(t, c.Create(t.Context(), object))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func get(address, path, want string) error {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
		return fmt.Errorf("%s answers %s without %q", path, response.Status, want)
	}
	return nil
}

// await waits until holds returns nil. The test fails if the command ends before.
func await(t *testing.T, what string, ended <-chan error, holds func() error) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case early := <-ended:
			t.Fatalf("waiting for %s: the command ended: %v", what, early)
		case <-deadline:
			t.Fatalf("waiting for %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
