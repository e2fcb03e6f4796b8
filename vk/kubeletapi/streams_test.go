// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/testenv"
	"github.com/refract-project/refract/vk/kubeletapi"
)

// worker is a kubelet of the provider whose containers are commands on this
// machine: they have exit codes, and see the end of stdin.
func worker() http.Handler {
	return vkapi.PodHandler(vkapi.PodHandlerConfig{
		StreamIdleTimeout: time.Minute, StreamCreationTimeout: time.Minute,
		RunInContainer: func(ctx context.Context, _, _, _ string, command []string, streams vkapi.AttachIO) error {
			if streams.TTY() { // what a terminal shows: its first size
				size := <-streams.Resize()
				_, err := fmt.Fprintf(streams.Stdout(), "%dx%d", size.Width, size.Height)
				return err
			}
			return runCommand(ctx, command, streams)
		},
		AttachToContainer: func(_ context.Context, _, _, _ string, streams vkapi.AttachIO) error {
			_, err := io.Copy(streams.Stdout(), streams.Stdin())
			return err
		},
		GetContainerLogs: func(ctx context.Context, namespace, pod, container string, options vkapi.ContainerLogOpts) (io.ReadCloser, error) {
			if !options.Follow {
				return io.NopCloser(strings.NewReader(fmt.Sprintf("logs of %s/%s/%s, tail %d\n", namespace, pod, container, options.Tail))), nil
			}
			reader, writer := io.Pipe()
			go func() {
				fmt.Fprintln(writer, "first line")
				<-ctx.Done() // the caller left
				writer.CloseWithError(ctx.Err())
				followersGone <- struct{}{}
			}()
			return reader, nil
		},
		PortForward: func(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
			defer stream.Close()
			fmt.Fprintf(stream, "port %d says ", port)
			line := make([]byte, 64)
			n, err := stream.Read(line)
			if err == nil {
				_, err = stream.Write(bytes.ToUpper(line[:n]))
			}
			return err
		},
	}, false)
}

// followersGone gets a value for every follower of logs that left.
var followersGone = make(chan struct{}, 10)

func runCommand(ctx context.Context, command []string, streams vkapi.AttachIO) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	if streams.Stdin() != nil {
		c.Stdin = streams.Stdin()
	}
	if streams.Stdout() != nil {
		c.Stdout = streams.Stdout()
	}
	if streams.Stderr() != nil {
		c.Stderr = streams.Stderr()
	}
	var exit *exec.ExitError
	if err := c.Run(); errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	} else if err != nil {
		return err
	}
	return nil
}

// suite: the pod shop/web of the consumer is shop-twin/web of the provider. It
// is bound to the node "milan", which says that it speaks WebSocket, as the pod
// shop/old is bound to "turin", which does not; one server stands for both.
type suite struct {
	*testing.T
	consumer, provider *testenv.Cluster
	admin              kubernetes.Interface
	address            string
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSuite(t *testing.T) *suite {
	clusters := testenv.ForTest(t,
		testenv.Options{Name: "consumer", NoScheduler: true}, testenv.Options{Name: "provider", NoScheduler: true})
	s := &suite{T: t, consumer: clusters[0], provider: clusters[1]}
	var err error
	s.admin, err = kubernetes.NewForConfig(s.consumer.Config())
	must(t, err)
	remoteAdmin, err := kubernetes.NewForConfig(s.provider.Config())
	must(t, err)
	s.namespace(s.admin, "shop")
	s.namespace(s.admin, "tenant")
	s.namespace(remoteAdmin, "shop-twin")
	consumer := rbac.Consumer{Subject: rbac.User("consumer")}
	must(t, rbac.Install(t.Context(), remoteAdmin, append(consumer.Objects(), consumer.TwinNamespace("shop-twin"))...))
	must(t, rbac.Install(t.Context(), s.admin, rbac.Kubelet{NodeName: "milan", TenantNamespace: "tenant", KubeconfigSecret: "kubeconfig", Subject: rbac.User("vk")}.Objects()...))

	workerPort := s.serve(s.provider, worker())
	s.node(remoteAdmin, "worker", workerPort, nil)
	port := s.serveKubelet()
	s.node(s.admin, "milan", port, []string{"ExtendWebSocketsToKubelet"})
	s.node(s.admin, "turin", port, nil)
	for _, name := range []string{"web", "old"} {
		s.pod(remoteAdmin, "shop-twin", name, "worker")
	}
	s.pod(s.admin, "shop", "web", "milan")
	s.pod(s.admin, "shop", "old", "turin")
	s.pod(remoteAdmin, "shop-twin", "theirs", "worker") // not ours
	return s
}

// in is the suite within a subtest.
func (s *suite) in(t *testing.T) *suite {
	inner := *s
	inner.T = t
	return &inner
}

func (s *suite) namespace(client kubernetes.Interface, name string) {
	s.Helper()
	_, err := client.CoreV1().Namespaces().Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(s, err)
	s.await("service account of "+name, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (s *suite) await(what string, holds func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
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

// serve a kubelet that the API server of the cluster trusts.
func (s *suite) serve(cluster *testenv.Cluster, handler http.Handler) int {
	s.Helper()
	cert, key, err := cluster.IssueServing("system:node:worker", []string{"system:nodes"}, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(s, err)
	pair, err := tls.X509KeyPair(cert, key)
	must(s, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	must(s, err)
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	s.Cleanup(func() { _ = server.Close() })
	return listener.Addr().(*net.TCPAddr).Port
}

// serveKubelet runs the server under test with the shipped roles.
func (s *suite) serveKubelet() int {
	s.Helper()
	config, err := s.consumer.ConfigFor("vk")
	must(s, err)
	client, err := kubernetes.NewForConfig(config)
	must(s, err)
	remote, err := s.provider.ConfigFor("consumer")
	must(s, err)
	provider, err := connection.New(remote)
	must(s, err)
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", "kube-system", "extension-apiserver-authentication", "client-ca-file", client)
	must(s, err)
	ctx, stop := context.WithCancel(context.Background())
	go clientCA.Run(ctx, 1)
	s.await("the client CA", func(context.Context) error {
		if _, ok := clientCA.VerifyOptions(); !ok {
			return errors.New("not there")
		}
		return nil
	})
	access, err := kubeletapi.NewAccess("milan", client, clientCA)
	must(s, err)
	cert, key, err := s.consumer.IssueServing("system:node:milan", []string{"system:nodes"}, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(s, err)
	pair, err := tls.X509KeyPair(cert, key)
	must(s, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s, err)
	server := kubeletapi.New(kubeletapi.Config{
		NodeName: "milan", Pods: cachedPods{s}, Namespaces: twins{"shop": "shop-twin"},
		Remote:      kubeletapi.Remote{URL: provider.URL(), Transport: provider.Streams()},
		Access:      access,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil },
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("the server ended with %v", err)
		}
	})
	s.address = listener.Addr().String()
	return listener.Addr().(*net.TCPAddr).Port
}

type twins map[string]string

func (t twins) Remote(local string) (string, bool) { remote, ok := t[local]; return remote, ok }

// cachedPods asks the API server: no cache is needed here.
type cachedPods struct{ *suite }

func (p cachedPods) Pods() ([]*corev1.Pod, error) {
	list, err := p.admin.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName=milan"})
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
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
	must(s, err)
}

// pod that is bound and said to run.
func (s *suite) pod(client kubernetes.Interface, namespace, name, node string) {
	s.Helper()
	_, err := client.CoreV1().Pods(namespace).Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Containers:  []corev1.Container{{Name: "app", Image: "none", Stdin: true}, {Name: "tty", Image: "none", TTY: true, Stdin: true}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	must(s, err)
	status := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, container := range []string{"app", "tty"} {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	must(s, err)
	_, err = client.CoreV1().Pods(namespace).Patch(s.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	must(s, err)
}

// kubectl against the consumer, by one of the two streaming protocols.
func (s *suite) kubectl(ctx context.Context, stdin, protocol string, args ...string) (stdout, stderr string, code int) {
	s.Helper()
	path, err := testenv.Kubectl()
	must(s, err)
	c := exec.CommandContext(ctx, path, append([]string{"--kubeconfig=" + s.consumer.Kubeconfig(), "-n=shop"}, args...)...)
	websockets := fmt.Sprint(protocol == "websocket")
	c.Env = append(c.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
	var out, errors bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errors
	_ = c.Run() // the exit code tells
	return out.String(), errors.String(), c.ProcessState.ExitCode()
}

func TestKubectl(t *testing.T) {
	s := newSuite(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	t.Run("logs", func(t *testing.T) {
		if out, errs, _ := s.kubectl(ctx, "", "", "logs", "web", "-c=app", "--tail=7"); out != "logs of shop-twin/web/app, tail 7\n" {
			t.Errorf("got %q, %q", out, errs)
		}
	})
	t.Run("logs of a container that does not exist", func(t *testing.T) {
		_, errs, code := s.kubectl(ctx, "", "", "logs", "web", "-c=none")
		if code == 0 || !strings.Contains(errs, "none") {
			t.Errorf("got exit code %d, %q", code, errs)
		}
	})
	t.Run("followed logs appear at once and end with the follower", func(t *testing.T) { s.in(t).followLogs() })
	for _, pod := range []string{"web", "old"} {
		for _, protocol := range []string{"websocket", "spdy"} {
			t.Run(pod+" by "+protocol, func(t *testing.T) { s.in(t).streams(ctx, pod, protocol) })
		}
	}
	t.Run("the size of the terminal", func(t *testing.T) {
		for _, protocol := range []string{"websocket", "spdy"} {
			if got := s.in(t).terminalSize(ctx, protocol); got != "132x43" {
				t.Errorf("by %s the terminal has %q", protocol, got)
			}
		}
	})
}

func (s *suite) streams(ctx context.Context, pod, protocol string) {
	out, errs, code := s.kubectl(ctx, "", protocol, "exec", pod, "-c=app", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if out != "out\n" || !strings.HasPrefix(errs, "err\n") || code != 7 {
		s.Errorf("exec: got %q, %q, exit code %d", out, errs, code)
	}
	text := strings.Repeat("a long line of text that fills more than one frame\n", 5000)
	if out, errs, code := s.kubectl(ctx, text, protocol, "exec", "-i", pod, "-c=app", "--", "cat"); out != text || code != 0 {
		s.Errorf("stdin: got %d of %d bytes, %q, exit code %d", len(out), len(text), errs, code)
	}
	if out, errs, code := s.kubectl(ctx, "hello\n", protocol, "attach", "-i", pod, "-c=app"); !strings.Contains(out, "hello\n") || code != 0 {
		s.Errorf("attach: got %q, %q, exit code %d", out, errs, code)
	}
	if _, errs, code := s.kubectl(ctx, "", protocol, "exec", pod, "-c=none", "--", "true"); code == 0 || !strings.Contains(errs, "none") {
		s.Errorf("exec in a container that does not exist: %q, exit code %d", errs, code)
	}
	s.portForward(ctx, pod, protocol)
}

func (s *suite) portForward(ctx context.Context, pod, protocol string) {
	path, err := testenv.Kubectl()
	must(s, err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, path, "--kubeconfig="+s.consumer.Kubeconfig(), "-n=shop", "port-forward", "--address=127.0.0.1", pod, ":8080")
	c.Env = append(c.Environ(), "KUBECTL_PORT_FORWARD_WEBSOCKETS="+fmt.Sprint(protocol == "websocket"))
	output, err := c.StdoutPipe()
	must(s, err)
	must(s, c.Start())
	defer func() { cancel(); _ = c.Wait() }()
	var port int
	if _, err := fmt.Fscanf(output, "Forwarding from 127.0.0.1:%d -> 8080\n", &port); err != nil {
		s.Fatalf("port-forward: %v", err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	must(s, err)
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	got, err := io.ReadAll(conn)
	if string(got) != "port 8080 says HELLO" || err != nil {
		s.Errorf("port-forward: got %q, %v", got, err)
	}
}

// followLogs reads the first line while the log is still open, and leaves.
func (s *suite) followLogs() {
	ctx, leave := context.WithTimeout(s.Context(), 20*time.Second)
	defer leave()
	stream, err := s.admin.CoreV1().Pods("shop").GetLogs("web", &corev1.PodLogOptions{Container: "app", Follow: true}).Stream(ctx)
	must(s, err)
	line := make([]byte, 100)
	n, err := stream.Read(line)
	if string(line[:n]) != "first line\n" || err != nil {
		s.Errorf("got %q, %v", line[:n], err)
	}
	leave()
	_ = stream.Close()
	select {
	case <-followersGone:
	case <-time.After(20 * time.Second):
		s.Error("the provider still serves a follower that left")
	}
}

type oneSize struct {
	sizes chan remotecommand.TerminalSize
}

func (o oneSize) Next() *remotecommand.TerminalSize {
	size, ok := <-o.sizes
	if !ok {
		return nil
	}
	return &size
}

func (s *suite) terminalSize(ctx context.Context, protocol string) string {
	s.Helper()
	config := s.consumer.Config()
	target := s.admin.CoreV1().RESTClient().Post().Resource("pods").Namespace("shop").Name("web").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "app", Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
	if protocol == "websocket" {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, target.String())
	}
	must(s, err)
	sizes := make(chan remotecommand.TerminalSize, 1)
	sizes <- remotecommand.TerminalSize{Width: 132, Height: 43}
	defer close(sizes)
	var out bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: oneSize{sizes}}); err != nil {
		s.Errorf("exec with a terminal by %s: %v", protocol, err)
	}
	return out.String()
}

func TestCallersAreAuthenticatedAndAuthorized(t *testing.T) {
	s := newSuite(t)
	for user, rules := range map[string][]rbacv1.PolicyRule{
		"nobody":  nil,
		"reader":  {{APIGroups: []string{""}, Resources: []string{"nodes/pods"}, Verbs: []string{"get"}}},
		"watcher": {{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}}},
		"runner":  {{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"create"}, ResourceNames: []string{"milan"}}},
	} {
		s.grant(user, rules)
	}
	stranger, err := s.provider.ConfigFor("reader", "system:masters") // of another cluster's authority
	must(t, err)
	token, err := s.consumer.ServiceAccountConfig(t.Context(), "tenant", "default")
	must(t, err)
	s.grantTo(rbac.ServiceAccount("tenant", "default"), "token", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/stats"}, Verbs: []string{"get"}}})

	const exec = "/exec/shop/web/app?command=true&output=1"
	tests := []struct {
		caller, path string
		want         int
		says         string
	}{
		{"", "/pods", http.StatusUnauthorized, "Unauthorized"},
		{"", "/healthz", http.StatusUnauthorized, "Unauthorized"},
		{"stranger", "/pods", http.StatusUnauthorized, "Unauthorized"},
		{"bad token", "/pods", http.StatusUnauthorized, "Unauthorized"},
		{"nobody", "/pods", http.StatusForbidden, `user "nobody", verb "get", resource [nodes/pods nodes/proxy], name "milan"`},
		{"reader", "/pods", http.StatusOK, `"name":"web"`},
		{"reader", "/containerLogs/shop/web/app", http.StatusForbidden, "nodes/proxy"},
		{"watcher", "/containerLogs/shop/web/app", http.StatusOK, "logs of shop-twin/web/app"},
		{"watcher", "/containerLogs/shop-twin/theirs/app", http.StatusNotFound, "not bound to node milan"},
		{"watcher", exec, http.StatusForbidden, `verb "create"`},
		{"runner", exec, http.StatusBadRequest, "pgrade"}, // allowed; the provider wants an upgrade
		{"runner", "/pods", http.StatusForbidden, ""},
		{"token", "/stats/summary", http.StatusOK, `"nodeName":"milan"`},
		{"token", "/pods", http.StatusForbidden, "system:serviceaccount:tenant:default"},
	}
	for _, test := range tests {
		config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: s.consumer.CA()}}
		switch test.caller {
		case "":
		case "stranger":
			config.CertData, config.KeyData = stranger.CertData, stranger.KeyData
		case "token":
			config.BearerToken = token.BearerToken
		case "bad token":
			config.BearerToken = "nonsense"
		default:
			if config, err = s.consumer.ConfigFor(test.caller); err != nil {
				t.Fatal(err)
			}
		}
		if code, body := s.get(config, test.path); code != test.want || !strings.Contains(body, test.says) {
			t.Errorf("%q asks for %s: got %d %q, want %d with %q", test.caller, test.path, code, body, test.want, test.says)
		}
	}
}

func (s *suite) grant(user string, rules []rbacv1.PolicyRule) {
	s.Helper()
	s.grantTo(rbac.User(user), user, rules)
}

func (s *suite) grantTo(subject rbacv1.Subject, name string, rules []rbacv1.PolicyRule) {
	s.Helper()
	must(s, rbac.Install(s.Context(), s.admin,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}))
}

func (s *suite) get(config *rest.Config, path string) (int, string) {
	s.Helper()
	client, err := rest.HTTPClientFor(config)
	must(s, err)
	response, err := client.Get("https://" + s.address + path)
	must(s, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(s, err)
	return response.StatusCode, string(body)
}
