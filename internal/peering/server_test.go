// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/release"
)

// Answers of different servers at the provider's address for the consumer. (Package test/join tests the same with API
// servers.)
func TestWhoAnswersAtTheAddress(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for name, test := range map[string]struct {
		status    int
		body      string
		untrusted bool
		nobody    bool
		unchecked bool
		want      string
	}{
		"an API server":                    {status: http.StatusOK, body: `{"gitVersion":"v1.36.3"}`},
		"one that tells strangers nothing": {status: http.StatusUnauthorized},
		"one that forbids it":              {status: http.StatusForbidden, body: "{}"},
		"a web page":                       {status: http.StatusOK, body: "<html>", want: "the server there is not an API server (GET /version: 200 OK)"},
		"a proxy":                          {status: http.StatusBadGateway, want: "the server there is not an API server (GET /version: 502 Bad Gateway)"},
		"another authority":                {status: http.StatusOK, body: `{"gitVersion":"v1.36.3"}`, untrusted: true, want: "another server than milan answers there"},
		"nobody":                           {nobody: true, want: "does not answer there"},
		"nobody, who is not asked":         {nobody: true, unchecked: true},
	} {
		t.Run(name, func(t *testing.T) {
			var authorization string
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				authorization += request.Header.Get("Authorization")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			provider := &Cluster{Name: "milan", Config: &rest.Config{Host: "https://milan.example", BearerToken: "of an administrator"}}
			if !test.untrusted {
				provider.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			}
			o := &Options{Consumer: &Cluster{Name: "rome"}, Provider: provider, APIServerURL: server.URL, UncheckedURL: test.unchecked}
			if test.nobody {
				o.APIServerURL = "https://" + closed.Addr().String()
			}
			err := o.checkServer(t.Context())
			assert.Empty(t, authorization, "credentials are sent to whoever answers")
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "--api-server-url="+o.APIServerURL)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// A server that redirects the check to another one is refused.
func TestTheAddressLeadsNowhereElse(t *testing.T) {
	asked := false
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	}))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL+"/version", http.StatusTemporaryRedirect)) // both have the certificate of httptest
	defer server.Close()
	provider := &Cluster{Name: "milan", Config: &rest.Config{Host: "https://milan.example"}}
	provider.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	o := &Options{Consumer: &Cluster{Name: "rome"}, Provider: provider, APIServerURL: server.URL}
	require.ErrorContains(t, o.checkServer(t.Context()), "redirects to another server")
	assert.False(t, asked)
}

func TestPodsMustNotHaveAddressesOfServices(t *testing.T) {
	of := func(id string) *Cluster {
		return &Cluster{Name: id, installation: &release.Installation{ClusterID: id}}
	}
	rome, milan := of("rome"), of("milan")
	for _, test := range []struct{ pods, services, remotePods, remoteServices, want string }{
		{"10.1.0.0/16", "10.96.0.0/12", "10.2.0.0/16", "10.96.0.0/12", ""},
		{"10.1.0.0/16", "10.96.0.0/12", "10.100.0.0/16", "10.3.0.0/16", "the pod range 10.100.0.0/16 of milan overlaps with the Service range 10.96.0.0/12 of rome"},
		{"10.1.0.0/16", "10.3.0.0/16", "10.2.0.0/16", "10.1.0.1/32", "the pod range 10.1.0.0/16 of rome overlaps with the Service range 10.1.0.1/32 of milan"},
	} {
		one := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
		o := &Options{Consumer: rome, Provider: milan, Progress: func(string) {},
			ranges:        map[*Cluster][]netip.Prefix{rome: one(test.pods), milan: one(test.remotePods)},
			serviceRanges: map[*Cluster][]netip.Prefix{rome: one(test.services), milan: one(test.remoteServices)}}
		err := o.checkRanges(t.Context())
		if test.want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, test.want)
		assert.True(t, strings.Contains(err.Error(), "--network=none"), "the remedy: %v", err)
	}
}

// Joined clusters stay joined even if a later version compares more.
func TestOverlapOfJoinedClusters(t *testing.T) {
	of := func(id string) *Cluster {
		return &Cluster{Name: id, installation: &release.Installation{ClusterID: id}}
	}
	rome, milan := of("rome"), of("milan")
	ranges := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	for name, test := range map[string]struct{ pods, services map[*Cluster][]netip.Prefix }{
		"pods":     {pods: map[*Cluster][]netip.Prefix{rome: ranges, milan: ranges}},
		"Services": {pods: map[*Cluster][]netip.Prefix{rome: ranges}, services: map[*Cluster][]netip.Prefix{milan: ranges}},
	} {
		var said []string
		o := &Options{Consumer: rome, Provider: milan, Progress: func(line string) { said = append(said, line) }, ranges: test.pods, serviceRanges: test.services, joined: true, networkKept: true}
		require.NoError(t, o.checkRanges(t.Context()), name)
		assert.Contains(t, strings.Join(said, "\n"), "overlap", name)
		o.networkKept = false
		assert.Error(t, o.checkRanges(t.Context()), name)
	}
}

// The token of a peering is sent only to the API server of the provider, whichever file names that provider.
func TestWhereATokenIsSent(t *testing.T) {
	inUse := &rest.Config{Host: "https://milan.example", BearerToken: "renewed", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("milan")}}
	for name, test := range map[string]struct {
		config rest.Config
		want   bool
	}{
		"another address of the same authority":    {rest.Config{Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("milan")}}, true},
		"the same address, a public authority":     {rest.Config{Host: "https://milan.example"}, true},
		"another address, a public authority":      {rest.Config{Host: "https://evil.example"}, false},
		"another address of another authority":     {rest.Config{Host: "https://evil.example", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("evil")}}, false},
		"the same address, whoever answers there":  {rest.Config{Host: "https://milan.example", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false},
		"the same address of another authority":    {rest.Config{Host: "https://milan.example", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("evil")}}, false},
		"the same authority, which is not checked": {rest.Config{Host: "https://evil.example", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false},
	} {
		assert.Equal(t, test.want, leadsTo(&test.config, inUse), name)
	}
}

// Addresses that k3d, kind, Docker Desktop and others write into kubeconfigs lead a pod to itself, or nowhere.
func TestAddressesThatMeanThisMachine(t *testing.T) {
	// The fields are whether the host is accepted from the kubeconfig, and from the flag.
	for host, want := range map[string]struct{ found, chosen bool }{
		"127.0.0.1":               {false, true},
		"127.8.8.8":               {false, true},
		"0.0.0.0":                 {false, false},
		"[::]":                    {false, false},
		"[::1]":                   {false, true},
		"[::ffff:127.0.0.1]":      {false, true},
		"[::ffff:0.0.0.0]":        {false, false},
		"169.254.1.1":             {false, true},
		"[fe80::1]":               {false, true},
		"224.0.0.1":               {false, false},
		"localhost":               {false, true},
		"LOCALHOST":               {false, true},
		"localhost.":              {false, true},
		"kubernetes.localhost":    {false, true},
		"10.0.0.1":                {true, true},
		"[2001:db8::1]":           {true, true},
		"milan.invalid":           {true, true}, // the connection shows whether anything is there
		"localhost.milan.invalid": {true, true},
	} {
		server := &url.URL{Scheme: "https", Host: host + ":6443"}
		o := &Options{Consumer: &Cluster{Name: "rome", Client: struct{ client.Client }{}}, Provider: &Cluster{Name: "milan", Config: &rest.Config{Host: server.String()}}}
		err := o.checkHost(t.Context(), server)
		assert.Equal(t, want.found, err == nil, "%s in the kubeconfig: %v", host, err)
		if err != nil {
			assert.ErrorContains(t, err, "which pods of rome cannot reach: set an address that they can reach with --remote-api-server-url")
		}
		o.APIServerURL = server.String()
		err = o.checkHost(t.Context(), server)
		assert.Equal(t, want.chosen, err == nil, "%s in the flag: %v", host, err)
	}
}

// Pods of the consumer do not use the proxy of the administrator's kubeconfig.
func TestAnAddressBehindAProxyIsRefused(t *testing.T) {
	proxy, err := url.Parse("http://user:secret@proxy.example:3128")
	require.NoError(t, err)
	provider := &Cluster{Name: "milan", Config: &rest.Config{Host: "https://milan.invalid:6443", Proxy: http.ProxyURL(proxy)}}
	o := &Options{Consumer: &Cluster{Name: "rome"}, Provider: provider}
	err = o.checkServer(t.Context())
	require.ErrorContains(t, err, "http://user:xxxxx@proxy.example:3128 (proxy-url), which pods of rome do not use: set the address that they can reach directly with --api-server-url")
	require.NotContains(t, err.Error(), "secret")
	o.APIServerURL, o.UncheckedURL = "https://milan.example:6443", true
	require.NoError(t, o.checkServer(t.Context()))
}

// A gateway may accept the administrator's token and no other one.
func TestCredentialsAreTriedWhereTheyAreUsed(t *testing.T) {
	accepted := "of rome"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasPrefix(request.URL.Path, "/k8s/clusters/c-milan/apis/authentication.k8s.io/") || request.Header.Get("Authorization") != "Bearer "+accepted {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`))
	}))
	defer server.Close()
	of := func(id string) *Cluster {
		return &Cluster{Name: id, installation: &release.Installation{ClusterID: id}}
	}
	rome, milan := of("rome"), of("milan")
	milan.Config = &rest.Config{Host: server.URL + "/k8s/clusters/c-milan"}
	milan.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	o := &Options{Consumer: rome, Provider: milan}
	kubeconfig, err := o.kubeconfig(o.server(), &clientcmdapi.AuthInfo{Token: "of rome"})
	require.NoError(t, err)
	require.NoError(t, o.checkKubeconfig(t.Context(), kubeconfig))
	accepted = "of an administrator"
	require.ErrorContains(t, o.checkKubeconfig(t.Context(), kubeconfig), "Set the address of the API server itself with --api-server-url")
	o.APIServerURL = o.server()
	require.ErrorContains(t, o.checkKubeconfig(t.Context(), kubeconfig), "a gateway that accepts only its own tokens")
	o.UncheckedURL = true
	require.NoError(t, o.checkKubeconfig(t.Context(), kubeconfig))
}
