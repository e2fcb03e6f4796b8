// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/kubeletapi"
)

// suite contains a consumer and a provider. The pod shop/web of the consumer is shop-remote/web on the provider. The
// pod shop/web is bound to the node "milan", which declares support for WebSockets, and shop/old is bound to the node
// "turin", which does not. One server serves both nodes.
type suite struct {
	*testing.T
	consumer, provider *testenv.Cluster
	admin              kubernetes.Interface
	address            string
}

// TestServer runs all tests that need clusters. They share two clusters, because starting clusters takes most of the
// time.
func TestServer(t *testing.T) {
	s := newSuite(t)
	t.Run("callers are authenticated and authorized", func(t *testing.T) { testAccess(t, s.in(t)) })
	t.Run("a review that fails allows nothing", func(t *testing.T) { testFailedReview(t, s.in(t)) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, s.in(t)) })
	t.Run("the certificate is signed by the cluster", func(t *testing.T) { testSignedCertificate(t, s.in(t)) })
}

func newSuite(t *testing.T) *suite {
	clusters := testenv.ForTest(t,
		testenv.Options{Name: "consumer", NoScheduler: true}, testenv.Options{Name: "provider", NoScheduler: true})
	s := &suite{T: t, consumer: clusters[0], provider: clusters[1]}
	var err error
	s.admin, err = kubernetes.NewForConfig(s.consumer.Config())
	require.NoError(t, err)
	remoteAdmin, err := kubernetes.NewForConfig(s.provider.Config())
	require.NoError(t, err)
	s.namespace(s.admin, "shop")
	s.namespace(s.admin, "tenant")
	s.namespace(remoteAdmin, "shop-remote")
	consumer := rbac.Consumer{Subject: rbac.User("consumer")}
	require.NoError(t, rbac.Install(t.Context(), remoteAdmin, append(consumer.Objects(), consumer.RemoteNamespace("shop-remote"))...))
	require.NoError(t, rbac.Install(t.Context(), s.admin, rbac.Kubelet{NodeName: "milan", TenantNamespace: "tenant", KubeconfigSecret: "kubeconfig", Subject: rbac.User("vk")}.Objects()...))

	workerPort := s.serve(s.provider, worker())
	s.node(remoteAdmin, "worker", workerPort, nil)
	port := s.serveKubelet()
	s.node(s.admin, "milan", port, []string{"ExtendWebSocketsToKubelet"})
	s.node(s.admin, "turin", port, nil)
	for _, name := range []string{"web", "old"} {
		s.pod(remoteAdmin, "shop-remote", name, "worker")
	}
	s.pod(s.admin, "shop", "web", "milan")
	s.pod(s.admin, "shop", "old", "turin")
	// This pod was created by another client and must not be accessible.
	s.pod(remoteAdmin, "shop-remote", "theirs", "worker")
	return s
}

// in returns a copy of the suite that reports to the given subtest.
func (s *suite) in(t *testing.T) *suite {
	inner := *s
	inner.T = t
	return &inner
}

func (s *suite) namespace(client kubernetes.Interface, name string) {
	s.Helper()
	_, err := client.CoreV1().Namespaces().Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(s, err)
	s.await("service account of "+name, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (s *suite) await(what string, holds func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("waiting for %s: %v", what, err)
		case <-ticker.C:
		}
	}
}

// serve starts a server with a certificate that the API server of the cluster accepts for kubelets, and returns the
// port of the server.
func (s *suite) serve(cluster *testenv.Cluster, handler http.Handler) int {
	s.Helper()
	cert, key, err := cluster.IssueServing("system:node:worker", []string{"system:nodes"}, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	require.NoError(s, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(s, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	require.NoError(s, err)
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	s.Cleanup(func() { _ = server.Close() })
	return listener.Addr().(*net.TCPAddr).Port
}

// serveKubelet starts the server under test with the permissions of the chart's roles.
func (s *suite) serveKubelet() int {
	s.Helper()
	config, err := s.consumer.ConfigFor("vk")
	require.NoError(s, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(s, err)
	remote, err := s.provider.ConfigFor("consumer")
	require.NoError(s, err)
	provider, err := connection.New(remote, connection.Limits{})
	require.NoError(s, err)
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", "kube-system", "extension-apiserver-authentication", "client-ca-file", client)
	require.NoError(s, err)
	ctx, stop := context.WithCancel(context.Background())
	go clientCA.Run(ctx, 1)
	s.await("the client CA", func(context.Context) error {
		if _, ok := clientCA.VerifyOptions(); !ok {
			return errors.New("not there")
		}
		return nil
	})
	cert, key, err := s.consumer.IssueServing("system:node:milan", []string{"system:nodes"}, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	require.NoError(s, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(s, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s, err)
	server := kubeletapi.New(kubeletapi.Config{
		NodeName: "milan", ClusterID: "rome", Pods: cachedPods{s}, Namespaces: remoteNamespaces{"shop": "shop-remote"},
		Remote:      kubeletapi.Remote{URL: provider.URL(), Transport: provider.Streams()},
		Access:      kubeletapi.NewAccess("milan", client, clientCA),
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil },
		Metrics:     cmdutil.MetricsHandler(cmdutil.ProcessMetrics()),
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	s.Cleanup(func() {
		stop()
		assert.NoError(s, <-ended, "ending the server")
	})
	s.address = listener.Addr().String()
	return listener.Addr().(*net.TCPAddr).Port
}

type remoteNamespaces map[string]string

func (t remoteNamespaces) Remote(local string) (string, bool) {
	remote, ok := t[local]
	return remote, ok
}

// cachedPods is a PodSource that reads pods from the API server, without a cache.
type cachedPods struct{ *suite }

func (p cachedPods) Pods() (pods []*corev1.Pod) {
	list, err := p.admin.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName=milan"})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods
}

func (p cachedPods) Pod(namespace, name string) (*corev1.Pod, bool) {
	pod, err := p.admin.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	return pod, err == nil
}

func (s *suite) node(client kubernetes.Interface, name string, port int, features []string) {
	s.Helper()
	_, err := client.CoreV1().Nodes().Create(s.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Addresses:        []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints:  corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
			DeclaredFeatures: features,
		},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
}

// pod creates a pod that is bound to a node and has the phase Running.
func (s *suite) pod(client kubernetes.Interface, namespace, name, node string) {
	s.Helper()
	_, err := client.CoreV1().Pods(namespace).Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.OriginLabel: "rome", wire.NodeNameLabel: "milan"}},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Containers:  []corev1.Container{{Name: "app", Image: "none", Stdin: true}, {Name: "tty", Image: "none", TTY: true, Stdin: true}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
	status := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, container := range []string{"app", "tty"} {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	require.NoError(s, err)
	_, err = client.CoreV1().Pods(namespace).Patch(s.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(s, err)
}
