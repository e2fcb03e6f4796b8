// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/vk/kubeletapi"
)

func testAccess(t *testing.T, s *suite) {
	for user, rules := range map[string][]rbacv1.PolicyRule{
		"nobody":  nil,
		"reader":  {{APIGroups: []string{""}, Resources: []string{"nodes/pods"}, Verbs: []string{"get"}}},
		"watcher": {{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}}},
		"runner":  {{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"create"}, ResourceNames: []string{"milan"}}},
		"scraper": {{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}},
		"prober":  {{APIGroups: []string{""}, Resources: []string{"nodes/healthz"}, Verbs: []string{"get"}}},
		"auditor": {{APIGroups: []string{""}, Resources: []string{"nodes/configz", "nodes/log"}, Verbs: []string{"get"}}},
	} {
		s.grant(user, rules)
	}
	stranger, err := s.provider.ConfigFor("reader", "system:masters") // its certificate is signed by the CA of another cluster
	require.NoError(t, err)
	token, err := s.consumer.ServiceAccountConfig(t.Context(), "tenant", "default")
	require.NoError(t, err)
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
		{"watcher", "/containerLogs/shop/web/app", http.StatusOK, "logs of shop-remote/web/app"},
		{"watcher", "/containerLogs/shop-remote/theirs/app", http.StatusNotFound, "not bound to node milan"},
		{"watcher", exec, http.StatusForbidden, `verb "create"`},
		// The caller is allowed to use exec. The error is from the provider, because the request does not upgrade the
		// connection.
		{"runner", exec, http.StatusBadRequest, "pgrade"},
		{"runner", "/pods", http.StatusForbidden, ""},
		{"scraper", "/metrics", http.StatusOK, "process_start_time_seconds"},
		{"scraper", "/metrics/resource", http.StatusOK, "resource_scrape_error 1"},
		{"scraper", "/metrics/slis", http.StatusNotFound, "/metrics/resource"},
		{"scraper", "/healthz", http.StatusForbidden, "[nodes/healthz nodes/proxy]"},
		{"scraper", "/pods", http.StatusForbidden, "[nodes/pods nodes/proxy]"},
		{"watcher", "/metrics", http.StatusForbidden, "[nodes/metrics]"},
		{"prober", "/healthz", http.StatusOK, "ok"},
		{"prober", "/healthz/ping", http.StatusOK, "ok"},
		{"prober", "/metrics", http.StatusForbidden, "[nodes/metrics]"},
		{"watcher", "/healthz", http.StatusOK, "ok"},
		{"watcher", "/runningpods", http.StatusOK, `"name":"web"`},
		{"reader", "/runningpods/", http.StatusOK, `"name":"web"`},
		{"auditor", "/configz", http.StatusNotFound, "virtual node milan: it has no KubeletConfiguration"},
		{"watcher", "/configz", http.StatusNotFound, "KubeletConfiguration"},
		{"scraper", "/configz", http.StatusForbidden, "[nodes/configz nodes/proxy]"},
		{"auditor", "/logs/syslog", http.StatusNotFound, "kubectl logs"},
		{"watcher", "/logs/", http.StatusForbidden, "[nodes/log]"},
		{"watcher", "/debug/pprof/heap", http.StatusNotFound, "--enable-profiling"},
		{"watcher", "/elsewhere", http.StatusNotFound, "GET /elsewhere is not served by virtual node milan"},
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
			config, err = s.consumer.ConfigFor(test.caller)
			require.NoError(t, err)
		}
		if code, body := s.get(config, test.path); code != test.want || !strings.Contains(body, test.says) {
			t.Errorf("%q asks for %s: got %d %q, want %d with %q", test.caller, test.path, code, body, test.want, test.says)
		}
	}
}

// testFailedReview checks that callers with all permissions are refused while the reviews of tokens and permissions
// fail.
func testFailedReview(t *testing.T, s *suite) {
	config, err := s.consumer.ConfigFor("without-reviews")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	authority, err := dynamiccertificates.NewStaticCAContent("client-ca", s.consumer.CA())
	require.NoError(t, err)
	handler := kubeletapi.New(kubeletapi.Config{
		NodeName: "milan", Remote: kubeletapi.Remote{URL: &url.URL{}}, Access: kubeletapi.NewAccess("milan", client, authority),
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the metrics were read") }),
	}).Handler()
	caller, err := s.consumer.ConfigFor("root", "system:masters")
	require.NoError(t, err)
	certificates, err := certutil.ParseCertsPEM(caller.CertData)
	require.NoError(t, err)
	token, err := s.consumer.ServiceAccountConfig(t.Context(), "tenant", "default")
	require.NoError(t, err)
	for _, path := range []string{"/healthz", "/metrics", "/exec/shop/web/app?command=true&output=1"} {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.TLS = &tls.ConnectionState{PeerCertificates: certificates}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		assert.Equal(t, http.StatusInternalServerError, recorder.Code, path)
		assert.Contains(t, recorder.Body.String(), `User "without-reviews" cannot create resource "subjectaccessreviews"`, path)

		request = httptest.NewRequest(http.MethodGet, path, nil)
		request.Header.Set("Authorization", "Bearer "+token.BearerToken)
		recorder = httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		assert.Equal(t, http.StatusUnauthorized, recorder.Code, path)
	}
}

func (s *suite) grant(user string, rules []rbacv1.PolicyRule) {
	s.Helper()
	s.grantTo(rbac.User(user), user, rules)
}

func (s *suite) grantTo(subject rbacv1.Subject, name string, rules []rbacv1.PolicyRule) {
	s.Helper()
	require.NoError(s, rbac.Install(s.Context(), s.admin,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}))
}

func (s *suite) get(config *rest.Config, path string) (int, string) {
	s.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(s, err)
	// The client must not follow redirects, because a redirect would lead to another path behind the API server's
	// proxy.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Get("https://" + s.address + path)
	require.NoError(s, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	return response.StatusCode, string(body)
}
