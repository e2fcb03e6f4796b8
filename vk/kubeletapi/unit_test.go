// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	testclock "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/internal/printable"
)

func TestWhatCallersNeed(t *testing.T) {
	tests := []struct {
		method, path string
		want         []string
	}{
		{"GET", "/containerLogs/ns/pod/app", []string{"get nodes/proxy"}},
		{"GET", "/pods", []string{"get nodes/pods", "get nodes/proxy"}},
		{"GET", "/podsecrets", []string{"get nodes/proxy"}},
		{"GET", "/runningpods/", []string{"get nodes/pods", "get nodes/proxy"}},
		{"GET", "/stats/summary", []string{"get nodes/stats"}},
		{"GET", "/metrics/resource", []string{"get nodes/metrics"}},
		{"GET", "/metrics", []string{"get nodes/metrics"}},
		{"GET", "/healthz", []string{"get nodes/healthz", "get nodes/proxy"}},
		{"GET", "/healthz/ping", []string{"get nodes/healthz", "get nodes/proxy"}},
		{"GET", "/configz", []string{"get nodes/configz", "get nodes/proxy"}},
		{"GET", "/flagz", []string{"get nodes/configz"}},
		{"GET", "/statusz", []string{"get nodes/statusz"}},
		{"GET", "/logs/", []string{"get nodes/log"}},
		{"POST", "/checkpoint/ns/pod/app", []string{"create nodes/checkpoint"}},
		{"GET", "/debug/pprof/", []string{"get nodes/proxy"}},
		{"POST", "/exec/ns/pod/app", []string{"create nodes/proxy"}},
		{"GET", "/exec/ns/pod/app", []string{"create nodes/proxy"}},
		{"GET", "/attach/ns/pod/app", []string{"create nodes/proxy"}},
		{"GET", "/portForward/ns/pod", []string{"create nodes/proxy"}},
		{"DELETE", "/pods", []string{" nodes/pods", " nodes/proxy"}},
	}
	for _, test := range tests {
		request := httptest.NewRequest(test.method, test.path, nil)
		var got []string
		for _, a := range requiredAccess("milan", &user.DefaultInfo{Name: "me"}, request) {
			r := a.ResourceAttributes
			got = append(got, r.Verb+" "+r.Resource+"/"+r.Subresource)
			if r.Name != "milan" || a.User != "me" || a.NonResourceAttributes != nil {
				t.Errorf("%s %s asks about %+v", test.method, test.path, a)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", test.method, test.path, diff)
		}
	}
}

func TestQueries(t *testing.T) {
	tests := []struct {
		name      string
		translate translator
		in, want  string
	}{
		{"exec", execQuery, "command=sh&command=-c&input=1&output=1&tty=1", "command=sh&command=-c&container=app&stderr=false&stdin=true&stdout=true&tty=true"},
		{"exec without command", execQuery, "output=1", `error: no command given: the parameter "command" is missing`},
		{"attach", streamQuery, "output=1&error=1", "container=app&stderr=true&stdin=false&stdout=true&tty=false"},
		{"not a boolean", streamQuery, "tty=maybe", `error: parameter "tty" is "maybe": use 1 or 0`},
		{"logs", logQuery, "follow=true&tailLines=3&stream=Stderr", "container=app&follow=true&stream=Stderr&tailLines=3"},
		{"logs without trust in the provider's kubelet", logQuery, "insecureSkipTLSVerifyBackend=true", "container=app"},
		{"logs of former clients", logQuery, "tail=3", "container=app&tailLines=3"},
		{"all logs of former clients", logQuery, "tail=all", "container=app"},
		{"port-forward", portForwardQuery, "", ""},
		{"port-forward with ports", portForwardQuery, "port=80,443", "ports=80&ports=443"},
		{"port-forward to nowhere", portForwardQuery, "port=99999", `error: parameter "port" is "99999": use numbers from 1 to 65535`},
	}
	for _, test := range tests {
		query, err := url.ParseQuery(test.in)
		require.NoError(t, err)
		translated, err := test.translate("app", query)
		got := translated.Encode()
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

// provider returns a server whose provider is a fake API server. The fake API server has two pods: web, which was
// created for a local pod, and theirs, which another client has created. It passes all other requests to handle.
func provider(t *testing.T, handle http.HandlerFunc) *Server {
	t.Helper()
	pods := http.NewServeMux()
	answer := func(origin string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"metadata":{"labels":{"offloading.liqo.io/origin":%q,"offloading.liqo.io/nodename":"milan"}}}`, origin)
		}
	}
	pods.HandleFunc("GET /prefix/api/v1/namespaces/shop-remote/pods/web", answer("rome"))
	pods.HandleFunc("GET /prefix/api/v1/namespaces/shop-remote/pods/theirs", answer("paris"))
	pods.HandleFunc("GET /prefix/api/v1/namespaces/shop-remote/pods/new", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	pods.HandleFunc("GET /prefix/api/v1/namespaces/shop-remote/pods/secret", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","message":"pods is forbidden"}`)
	})
	if handle != nil {
		pods.HandleFunc("/", handle)
	}
	remote := httptest.NewServer(pods)
	t.Cleanup(remote.Close)
	target, err := url.Parse(remote.URL + "/prefix")
	require.NoError(t, err)
	return New(Config{
		NodeName: "milan", ClusterID: "rome", Pods: runningPods{}, Namespaces: shop{}, Remote: Remote{URL: target, Transport: http.DefaultTransport},
		Metrics: http.NotFoundHandler(),
	})
}

// runningPods is a PodSource where every pod exists except for pods with the name db.
type runningPods struct{}

func (runningPods) Pods() []*corev1.Pod                    { return nil }
func (runningPods) Pod(_, name string) (*corev1.Pod, bool) { return &corev1.Pod{}, name != "db" }

// shop is a NamespaceMapper with one offloaded namespace, shop.
type shop struct{}

func (shop) Remote(local string) (string, bool) { return "shop-remote", local == "shop" }

func logsRequest(namespace, pod string) *http.Request {
	request := httptest.NewRequest(http.MethodGet, "/containerLogs/"+namespace+"/"+pod+"/app?follow=true", nil)
	request.SetPathValue("namespace", namespace)
	request.SetPathValue("pod", pod)
	request.SetPathValue("container", "app")
	return request
}

func TestCredentialsDoNotLeaveTheCluster(t *testing.T) {
	var seen *http.Request
	s := provider(t, func(_ http.ResponseWriter, r *http.Request) { seen = r })
	request := logsRequest("shop", "web")
	for key, value := range map[string]string{
		"Authorization": "Bearer secret", "Cookie": "session=secret", "X-Remote-User": "secret", "Impersonate-User": "secret",
		"Sec-Websocket-Protocol": "base64url.bearer.authorization.k8s.io.secret, v5.channel.k8s.io",
		"Accept":                 "text/plain",
	} {
		request.Header.Set(key, value)
	}
	s.serveSubresource("log", logQuery).ServeHTTP(httptest.NewRecorder(), request)
	if seen == nil {
		t.Fatal("the provider was not asked")
	}
	if got, want := seen.URL.String(), "/prefix/api/v1/namespaces/shop-remote/pods/web/log?container=app&follow=true"; got != want {
		t.Errorf("the provider was asked for %s, want %s", got, want)
	}
	for key, values := range seen.Header {
		if strings.Contains(strings.Join(values, " "), "secret") {
			t.Errorf("the provider got %s: %s", key, values)
		}
	}
	if got := strings.TrimSpace(seen.Header.Get("Sec-Websocket-Protocol")); got != "v5.channel.k8s.io" {
		t.Errorf("the subprotocol became %q", got)
	}
}

func TestWhatCannotBeServed(t *testing.T) {
	s := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"container \"app\" is waiting to start","code":400}`)
	})
	dead := provider(t, nil)
	dead.config.Remote.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	tests := []struct {
		name           string
		server         *Server
		namespace, pod string
		wantCode       int
		want           string
	}{
		{"a pod of another node", s, "shop", "db", 404, "pod shop/db is not bound to node milan"},
		{"a namespace that is not offloaded", s, "stray", "web", 404, "namespace stray is not offloaded"},
		{"a pod that the provider does not have yet", s, "shop", "new", 404, "pod shop/new is not on the provider of node milan yet"},
		{"a pod of another client", s, "shop", "theirs", 403, "pod shop-remote/theirs of the provider of node milan does not belong to pod shop/theirs"},
		{"a pod that may not be seen", s, "shop", "secret", 403, "getting the pod from the provider, pods is forbidden"},
		{"the provider says why", s, "shop", "web", 400, `container "app" is waiting to start`},
		{"the provider is dead", dead, "shop", "web", 502, "calling the provider's API server for node milan"},
	}
	stream := logsRequest("shop", "web")
	stream.Header.Set("Upgrade", "websocket")
	stream.Header.Set("Connection", "Upgrade")
	refusal := httptest.NewRecorder()
	dead.serveSubresource("attach", streamQuery).ServeHTTP(refusal, stream)
	var status metav1.Status
	if err := json.Unmarshal(refusal.Body.Bytes(), &status); err != nil || status.Kind != "Status" || status.Code != 502 || !strings.Contains(status.Message, "provider's API server") {
		t.Errorf("a stream is refused with %s (%v)", refusal.Body, err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			answer := httptest.NewRecorder()
			test.server.serveSubresource("log", logQuery).ServeHTTP(answer, logsRequest(test.namespace, test.pod))
			if answer.Code != test.wantCode || !strings.HasPrefix(answer.Body.String(), test.want) {
				t.Errorf("got %d %q, want %d %q", answer.Code, answer.Body, test.wantCode, test.want)
			}
		})
	}
}

// TestTextsOfTheProviderAreEscaped checks that control characters in errors from the provider are escaped, so that the
// provider cannot control the terminal of a user of kubectl.
func TestTextsOfTheProviderAreEscaped(t *testing.T) {
	const attack = "\x1b[2Jno such pod\u202e"
	object, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: attack, Message: attack,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: attack}}}})
	require.NoError(t, err)
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	_, err = writer.Write(object)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	code, encoding, body := 0, "", ""
	s := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	for _, code = range []int{http.StatusOK, http.StatusBadRequest} {
		for encoding, body = range map[string]string{"": string(object), "gzip": zipped.String(), "identity": attack} {
			for _, isStream := range []bool{false, true} {
				if !isStream && code == http.StatusOK {
					continue // logs of containers must not be changed
				}
				request := logsRequest("shop", "web")
				request.Header.Set("Accept-Encoding", "gzip")
				if isStream {
					request.Header.Set("Upgrade", "websocket")
					request.Header.Set("Connection", "Upgrade")
				}
				answer := httptest.NewRecorder()
				s.serveSubresource("log", logQuery).ServeHTTP(answer, request)
				shown := answer.Body.String()
				var status metav1.Status
				if isStream && encoding == "" {
					require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &status))
					require.Nil(t, status.Details)
					shown = string(status.Reason) + status.Message
				}
				plain := printable.IsLine(strings.NewReplacer("\n", "", "\t", "").Replace(shown))
				if !plain || answer.Header().Get("Content-Encoding") != "" {
					t.Errorf("stream %t, code %d, encoding %q: got %q, headers %v", isStream, code, encoding, shown, answer.Header())
				}
				if encoding != "gzip" && !strings.Contains(shown, `\u001b[2Jno such pod\u202e`) {
					t.Errorf("stream %t, code %d, encoding %q: the error %q does not say why", isStream, code, encoding, shown)
				}
			}
		}
	}
}

func TestSelfSignedCertificateIsReplacedOnItsLastDay(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Now())
	source := SelfSignedCertificate("milan", net.ParseIP("127.0.0.1"), clk)
	get := func() *x509.Certificate {
		certificate, err := source(nil)
		require.NoError(t, err)
		return certificate.Leaf
	}
	first := get()
	if err := first.VerifyHostname("127.0.0.1"); err != nil || first.Subject.CommonName != "system:node:milan" {
		t.Errorf("certificate of %s: %v", first.Subject, err)
	}
	clk.SetTime(clk.Now().Add(363 * 24 * time.Hour))
	if !get().Equal(first) {
		t.Error("the certificate was replaced too early")
	}
	clk.SetTime(clk.Now().Add(36 * time.Hour))
	if get().Equal(first) {
		t.Error("the certificate was not replaced on its last day")
	}
}

func TestMissingCertificateFileIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "tls.crt")
	if _, err := CertificateFromFiles(t.Context(), missing, missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v", err)
	}
}

func TestChangedCertificateIsUsed(t *testing.T) {
	var pair [2][]byte
	source := parsedOnChange(func() ([]byte, []byte) { return pair[0], pair[1] })
	if _, err := source(nil); err == nil {
		t.Error("no certificate is no error")
	}
	for _, name := range []string{"first", "second"} {
		pair[0], pair[1] = pemPair(t, name)
		for range 2 {
			certificate, err := source(nil)
			require.NoError(t, err)
			leaf, err := x509.ParseCertificate(certificate.Certificate[0])
			if err != nil || leaf.Subject.CommonName != "system:node:"+name {
				t.Errorf("certificate of %v, %v, want %s", leaf.Subject, err, name)
			}
		}
	}
}

func pemPair(t *testing.T, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	made, err := selfSign(name, net.ParseIP("127.0.0.1"), time.Now())
	require.NoError(t, err)
	return encodePair(t, made)
}

func encodePair(t *testing.T, pair *tls.Certificate) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
}
