// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/refract-project/refract/test/support/testenv/tools"
)

// kubectl runs kubectl on the consumer with one of the two streaming protocols, SPDY or WebSocket.
func (s *suite) kubectl(ctx context.Context, stdin, protocol string, args ...string) (stdout, stderr string, code int) {
	s.Helper()
	path, err := tools.Kubectl()
	require.NoError(s, err)
	c := exec.CommandContext(ctx, path, append([]string{"--kubeconfig=" + s.consumer.Kubeconfig(), "-n=shop"}, args...)...)
	websockets := fmt.Sprint(protocol == "websocket")
	c.Env = append(c.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
	var out, problems bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &problems
	_ = c.Run() // the exit code is returned
	return out.String(), problems.String(), c.ProcessState.ExitCode()
}

func testKubectl(t *testing.T, s *suite) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	t.Run("logs", func(t *testing.T) {
		if out, errs, _ := s.kubectl(ctx, "", "", "logs", "web", "-c=app", "--tail=7"); out != "logs of shop-remote/web/app, tail 7\n" {
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
	path, err := tools.Kubectl()
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, path, "--kubeconfig="+s.consumer.Kubeconfig(), "-n=shop", "port-forward", "--address=127.0.0.1", pod, ":8080")
	c.Env = append(c.Environ(), "KUBECTL_PORT_FORWARD_WEBSOCKETS="+fmt.Sprint(protocol == "websocket"))
	output, err := c.StdoutPipe()
	require.NoError(s, err)
	require.NoError(s, c.Start())
	defer func() { cancel(); _ = c.Wait() }()
	var port int
	_, err = fmt.Fscanf(output, "Forwarding from 127.0.0.1:%d -> 8080\n", &port)
	require.NoError(s, err, "port-forward")
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(s, err)
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	got, err := io.ReadAll(conn)
	if string(got) != "port 8080 says HELLO" || err != nil {
		s.Errorf("port-forward: got %q, %v", got, err)
	}
}

// followLogs reads the first line of a log that is still being written, and closes the connection.
func (s *suite) followLogs() {
	ctx, leave := context.WithTimeout(s.Context(), 2*time.Minute)
	defer leave()
	stream, err := s.admin.CoreV1().Pods("shop").GetLogs("web", &corev1.PodLogOptions{Container: "app", Follow: true}).Stream(ctx)
	require.NoError(s, err)
	line := make([]byte, 100)
	n, err := stream.Read(line)
	if string(line[:n]) != "first line\n" || err != nil {
		s.Errorf("got %q, %v", line[:n], err)
	}
	leave()
	_ = stream.Close()
	select {
	case <-followersGone:
	case <-time.After(2 * time.Minute):
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
	require.NoError(s, err)
	sizes := make(chan remotecommand.TerminalSize, 1)
	sizes <- remotecommand.TerminalSize{Width: 132, Height: 43}
	defer close(sizes)
	var out bytes.Buffer
	assert.NoErrorf(s, executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: oneSize{sizes}}), "exec with a terminal by %s", protocol)
	return out.String()
}
