// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package redirect_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/redirect"
)

var statuses = []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}

// TestRefuse checks that nothing is sent to the other server, for any request and any redirect status.
func TestRefuse(t *testing.T) {
	var seen atomic.Int32
	record := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) })
	plain, encrypted := httptest.NewServer(record), httptest.NewTLSServer(record)
	t.Cleanup(plain.Close)
	t.Cleanup(encrypted.Close)
	for _, target := range []string{plain.URL, encrypted.URL} {
		for _, status := range statuses {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target+"/_all?pretty", status)
			}))
			t.Cleanup(server.Close)
			config := &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			redirect.Refuse(config)
			clients, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			secrets := clients.CoreV1().Secrets("shop")
			for verb, ask := range map[string]func() error{
				"get":    func() error { _, err := secrets.Get(t.Context(), "db", metav1.GetOptions{}); return err },
				"list":   func() error { _, err := secrets.List(t.Context(), metav1.ListOptions{}); return err },
				"watch":  func() error { _, err := secrets.Watch(t.Context(), metav1.ListOptions{}); return err },
				"delete": func() error { return secrets.Delete(t.Context(), "db", metav1.DeleteOptions{}) },
				"create": func() error {
					_, err := secrets.Create(t.Context(), &corev1.Secret{StringData: map[string]string{"password": "x"}}, metav1.CreateOptions{})
					return err
				},
				"patch": func() error {
					_, err := secrets.Patch(t.Context(), "db", types.MergePatchType, []byte(`{"data":{}}`), metav1.PatchOptions{})
					return err
				},
				"logs": func() error {
					return clients.CoreV1().Pods("shop").GetLogs("web", &corev1.PodLogOptions{}).Do(t.Context()).Error()
				},
				"version": func() error { _, err := clients.Discovery().ServerVersion(); return err },
			} {
				t.Run(fmt.Sprintf("%d %s %s", status, verb, strings.SplitN(target, ":", 2)[0]), func(t *testing.T) {
					err := ask()
					var refused *redirect.Error
					require.ErrorAs(t, err, &refused)
					assert.Equal(t, redirect.Error{From: server.URL, To: target}, *refused)
					assert.Zero(t, seen.Load(), "the request went to the other server")
				})
			}
		}
	}
}

// TestSameServer checks that redirects within the same server are followed.
func TestSameServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			http.Redirect(w, r, "/moved", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, `{"gitVersion":"v1.36.0"}`)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	redirect.Refuse(config)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	version, err := clients.Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, "v1.36.0", version.GitVersion)
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"https://milan:6443/a", "https://milan:6443/b?c=d", true},
		{"https://milan", "https://MILAN:443/", true},
		{"http://milan", "http://milan:80", true},
		{"https://[::1]:6443", "https://[::1]:6443", true},
		{"https://milan:6443", "http://milan:6443", false},
		{"https://milan:6443", "https://milan:6444", false},
		{"https://milan:6443", "https://milan.evil.example:6443", false},
		{"https://milan:6443", "https://rome:6443", false},
	} {
		from, err := url.Parse(c.from)
		require.NoError(t, err)
		to, err := url.Parse(c.to)
		require.NoError(t, err)
		assert.Equal(t, c.same, redirect.Check(from, to) == nil, "%s → %s", c.from, c.to)
	}
}
