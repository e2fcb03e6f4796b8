// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/test/support/testenv"
)

// unbounded has no limits.
var unbounded connection.Limits

// whoami returns the user name that the API server derives from the client's credentials.
func whoami(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.UserInfo.Username
}

func TestCredentialsAreRenewedUnderneathClients(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	admin, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	kubeconfigOf := func(user string) []byte {
		path := filepath.Join(t.TempDir(), user)
		require.NoError(t, cluster.KubeconfigFor(path, user))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return content
	}
	store := connection.Secret{Client: admin, Namespace: "default", Name: "provider"}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	usable := func(kubeconfig []byte) error {
		_, err := connection.Parse(kubeconfig)
		return err
	}
	problems := make(chan error, 10)
	problem := func(err error) { problems <- err }
	expectProblem := func(words string) {
		t.Helper()
		select {
		case err := <-problems:
			if !strings.Contains(err.Error(), words) {
				t.Errorf("got the problem %q, want %q", err, words)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("no problem was told, want %q", words)
		}
	}
	read := make(chan []byte, 1)
	go func() {
		kubeconfig, err := store.Await(ctx, 50*time.Millisecond, usable, problem)
		if err == nil {
			read <- kubeconfig
		}
	}()
	expectProblem(`"provider" not found`)
	// The Secret does not exist at first. It is then created without content, gets an invalid kubeconfig, and finally a
	// valid one.
	secret, err := admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "provider"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	if _, err := store.Read(ctx); err == nil || !strings.Contains(err.Error(), `default/provider has no kubeconfig`) {
		t.Errorf("an empty Secret gives %v", err)
	}
	write := func(kubeconfig []byte) {
		t.Helper()
		secret.Data = map[string][]byte{"kubeconfig": kubeconfig}
		secret, err = admin.CoreV1().Secrets("default").Update(ctx, secret, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	expectProblem(`default/provider has no kubeconfig`)
	write([]byte("}"))
	expectProblem(`in Secret default/provider, not a kubeconfig`)
	write(kubeconfigOf("alice"))
	known := <-read

	config, err := connection.Parse(known)
	require.NoError(t, err)
	conn, err := connection.New(config, unbounded)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(conn.Config())
	require.NoError(t, err)
	if got := whoami(t, client); got != "alice" {
		t.Fatalf("the API server sees %s", got)
	}

	changes := make(chan []byte, 10)
	followed := make(chan error, 1)
	take := func(kubeconfig []byte) error {
		err := usable(kubeconfig)
		if err == nil {
			changes <- kubeconfig
		}
		return err
	}
	go func() { followed <- store.Follow(ctx, known, take, problem) }()
	write(nil)
	expectProblem("is empty")
	write([]byte("}"))
	expectProblem("not a kubeconfig")
	write(kubeconfigOf("bob"))
	renewed, err := connection.Parse(<-changes)
	require.NoError(t, err)
	require.NoError(t, conn.Update(renewed))
	if got := whoami(t, client); got != "bob" {
		t.Errorf("after the renewal the same client is %s", got)
	}
	if err := conn.Update(&rest.Config{Host: "https://"}); err == nil {
		t.Error("a kubeconfig without server is accepted")
	}
	if got := whoami(t, client); got != "bob" {
		t.Errorf("after a refused renewal the client is %s", got)
	}
	require.NoError(t, admin.CoreV1().Secrets("default").Delete(ctx, "provider", metav1.DeleteOptions{}))
	expectProblem("was deleted")
	stop()
	require.NoError(t, <-followed)
}

func TestMovedServerIsFollowed(t *testing.T) {
	server := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s %s", name, r.Host, r.URL.Path) }))
		t.Cleanup(s.Close)
		return s
	}
	first, second := server("first"), server("second")
	conn, err := connection.New(&rest.Config{Host: first.URL}, unbounded)
	require.NoError(t, err)
	get := func() string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, first.URL+"/x", nil)
		require.NoError(t, err)
		response, err := conn.Streams().RoundTrip(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(body)
	}
	if got, want := get(), "first "+strings.TrimPrefix(first.URL, "http://")+" /x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	require.NoError(t, conn.Update(&rest.Config{Host: second.URL}))
	if got, want := get(), "second "+strings.TrimPrefix(second.URL, "http://")+" /x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	require.NoError(t, conn.Update(&rest.Config{Host: second.URL + "/prefix/"}))
	if got, want := get(), "second "+strings.TrimPrefix(second.URL, "http://")+" /prefix/x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	require.NoError(t, conn.Update(&rest.Config{Host: first.URL}))
	if got, want := get(), "first "+strings.TrimPrefix(first.URL, "http://")+" /x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnusableKubeconfigsSayWhy(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	const cluster = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1'}}]\n"
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	for text, want := range map[string]string{
		"":                               "is empty",
		"}":                              "not a kubeconfig",
		"just words":                     "plain text: use the output",
		"apiVersion: v1\nkind: Pod\n":    "its kind is Pod: use the output",
		"apiVersion: v1\nkind: Config\n": "has no cluster for its current context",
		head + cluster + "users: [{name: u, user: {tokenFile: " + file + "}}]":                                                                  `tokenFile "` + file,
		head + cluster + "users: [{name: u, user: {client-certificate: " + file + ", client-key: " + file + "}}]":                               "put its content into client-certificate-data",
		head + "clusters: [{name: c, cluster: {server: 'https://127.0.0.1', certificate-authority: " + file + "}}]\nusers: [{name: u}]":         "certificate-authority-data",
		head + cluster + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: rm, interactiveMode: Never}}}]": `runs a command, exec "rm"`,
	} {
		if _, err := connection.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", text, err, want)
		}
	}
	require.NoError(t, os.WriteFile(file, []byte(head+"clusters: [{name: c, cluster: {server: 'https://'}}]\nusers: [{name: u}]"), 0o600))
	if _, err := connection.ParseFile(file); err == nil || !strings.Contains(err.Error(), "server address") {
		t.Errorf("a file without server gives %v", err)
	}
	require.NoError(t, os.WriteFile(file, []byte(head+cluster+"users: [{name: u, user: {tokenFile: "+file+"}}]"), 0o600))
	if _, err := connection.ParseFile(file); err != nil {
		t.Errorf("a file of this machine that names another: %v", err)
	}
	if _, err := connection.New(&rest.Config{Host: "https://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}, unbounded); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("a missing CA gives %v", err)
	}
}
