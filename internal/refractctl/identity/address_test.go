// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// side returns a cluster that cannot be accessed. config is only used for its host.
func side(id string, config *rest.Config) *cluster.Side {
	return &cluster.Side{Cluster: &cluster.Cluster{Name: id, Config: config, KnownID: id}, Installation: &release.Installation{ClusterID: id}}
}

// accessible returns a cluster that seems to be accessible, but has no server.
func accessible(id string) *cluster.Side {
	s := side(id, nil)
	s.Client = struct{ client.Client }{}
	return s
}

// TestWhoAnswersAtTheAddress checks that an address is accepted only if an API server with a certificate from the
// provider's CA responds, even with a request for authentication. An address that must not be checked is accepted, too.
// No credentials may be sent to the server. (Package test/join tests this with real API servers.)
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
			provider := side("milan", &rest.Config{Host: "https://milan.example", BearerToken: "of an administrator"})
			if !test.untrusted {
				provider.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			}
			o := &Address{Consumer: side("rome", nil), Provider: provider, ChosenURL: server.URL, IsUnchecked: test.unchecked}
			if test.nobody {
				o.ChosenURL = "https://" + closed.Addr().String()
			}
			err := o.Check(t.Context())
			assert.Empty(t, authorization, "credentials are sent to whoever answers")
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "--api-server-url="+o.ChosenURL)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// TestTheAddressLeadsNowhereElse checks that a server is refused if it redirects the check to another server.
func TestTheAddressLeadsNowhereElse(t *testing.T) {
	asked := false
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	}))
	defer elsewhere.Close()
	// Both servers have the same certificate, so verifying the certificate would not be sufficient to detect the
	// redirect.
	server := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL+"/version", http.StatusTemporaryRedirect))
	defer server.Close()
	provider := side("milan", &rest.Config{Host: "https://milan.example"})
	provider.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	o := &Address{Consumer: side("rome", nil), Provider: provider, ChosenURL: server.URL}
	require.ErrorContains(t, o.Check(t.Context()), "redirects to another server")
	assert.False(t, asked)
}

// TestAddressesThatMeanThisMachine checks addresses that k3d, kind, Docker Desktop and others write to kubeconfigs, but
// that would lead a pod to itself or nowhere. Such an address must be refused if it comes from the kubeconfig. If the
// user has set it with the flag, it must be refused only if no server can have this address.
func TestAddressesThatMeanThisMachine(t *testing.T) {
	// found is true if the host is accepted in the kubeconfig. chosen is true if it is accepted in the flag.
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
		"milan.invalid":           {true, true}, // the connection will show whether a server responds
		"localhost.milan.invalid": {true, true},
	} {
		server := &url.URL{Scheme: "https", Host: host + ":6443"}
		o := &Address{Consumer: accessible("rome"), Provider: side("milan", &rest.Config{Host: server.String()})}
		err := o.checkHost(t.Context(), server)
		assert.Equal(t, want.found, err == nil, "%s in the kubeconfig: %v", host, err)
		if err != nil {
			assert.ErrorContains(t, err, "which pods of rome cannot reach: set an address that they can reach with --remote-api-server-url")
		}
		o.ChosenURL = server.String()
		err = o.checkHost(t.Context(), server)
		assert.Equal(t, want.chosen, err == nil, "%s in the flag: %v", host, err)
	}
}

// TestAnAddressIsOnlyAnAddress checks that the address contains no credentials, because it becomes a part of the
// consumer's kubeconfig. The error must not contain the password.
func TestAnAddressIsOnlyAnAddress(t *testing.T) {
	for _, address := range []string{"https://admin:secret@milan.invalid:6443", "https://admin@milan.invalid", "https://milan.invalid:6443/?timeout=1s", "https://milan.invalid/#first"} {
		for _, isUnchecked := range []bool{false, true} {
			chosen := &Address{Consumer: accessible("rome"), Provider: side("milan", &rest.Config{Host: "https://milan.invalid"}), ChosenURL: address, IsUnchecked: isUnchecked}
			found := &Address{Consumer: accessible("rome"), Provider: side("milan", &rest.Config{Host: address})}
			for _, a := range []*Address{chosen, found} {
				err := a.Check(t.Context())
				assert.ErrorContains(t, err, "without user, query and fragment, give one with --remote-api-server-url", address)
				assert.NotContains(t, err.Error(), "secret")
			}
		}
	}
	for _, address := range []string{"http://admin:secret@milan.invalid", "https://admin:secret%@milan.invalid"} {
		err := (&Address{Consumer: accessible("rome"), Provider: side("milan", &rest.Config{Host: address})}).Check(t.Context())
		assert.ErrorContains(t, err, "must be an https URL")
		assert.NotContains(t, err.Error(), "secret")
	}
}

// TestAnAddressBehindAProxyIsRefused checks that an address is refused if the administrator's kubeconfig contains a
// proxy, because the consumer's pods do not use this proxy.
func TestAnAddressBehindAProxyIsRefused(t *testing.T) {
	proxy, err := url.Parse("http://user:secret@proxy.example:3128")
	require.NoError(t, err)
	provider := side("milan", &rest.Config{Host: "https://milan.invalid:6443", Proxy: http.ProxyURL(proxy)})
	o := &Address{Consumer: side("rome", nil), Provider: provider}
	err = o.Check(t.Context())
	require.ErrorContains(t, err, "http://user:xxxxx@proxy.example:3128 (proxy-url), which pods of rome do not use: set the address that they can reach directly with --api-server-url")
	require.NotContains(t, err.Error(), "secret")
	o.ChosenURL, o.IsUnchecked = "https://milan.example:6443", true
	require.NoError(t, o.Check(t.Context()))
}

// TestAnAddressBehindAProxyOfTheEnvironmentIsRefused checks that an address from the kubeconfig or from the user is
// refused if this computer's environment sets a proxy for it. It must be accepted if NO_PROXY excludes it, or if it is
// not checked from this computer.
func TestAnAddressBehindAProxyOfTheEnvironmentIsRefused(t *testing.T) {
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	t.Setenv("https_proxy", "")
	t.Setenv("HTTPS_PROXY", "http://user:secret@proxy.example:3128")
	const found, other = "https://milan.invalid:6443", "https://10.0.0.1:6443"
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	for name, test := range map[string]struct {
		address Address
		proxy   func(*http.Request) (*url.URL, error) // proxy in the kubeconfig
		without string                                // value of NO_PROXY
		host    string                                // host that is refused, or "" if none is
	}{
		"the address of the kubeconfig":          {host: "milan.invalid"},
		"that address without the proxy":         {without: ".invalid"},
		"that address, unchecked":                {address: Address{IsUnchecked: true}},
		"that address, with its own proxy":       {proxy: direct},
		"an address of the user":                 {address: Address{ChosenURL: other}, host: "10.0.0.1"},
		"that one, whatever the kubeconfig says": {address: Address{ChosenURL: other}, proxy: direct, host: "10.0.0.1"},
		"that one without the proxy":             {address: Address{ChosenURL: other}, without: "10.0.0.0/8"},
		"that one, unchecked":                    {address: Address{ChosenURL: other, IsUnchecked: true}},
		"an address of this machine":             {address: Address{ChosenURL: "https://127.0.0.1:6443"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_PROXY", test.without)
			o := test.address
			o.Consumer, o.Provider = side("rome", nil), side("milan", &rest.Config{Host: found, Proxy: test.proxy})
			server, err := url.Parse(o.URL())
			require.NoError(t, err)
			err = o.checkProxy(server)
			if test.host == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "http://user:xxxxx@proxy.example:3128 (HTTPS_PROXY), which pods of rome do not use: add "+test.host+" to NO_PROXY")
			require.NotContains(t, err.Error(), "secret")
			require.Equal(t, err.Error(), o.Check(t.Context()).Error())
		})
	}
	t.Setenv("HTTPS_PROXY", "http://[")
	o := &Address{Consumer: side("rome", nil), Provider: side("milan", &rest.Config{Host: found})}
	require.ErrorContains(t, o.Check(t.Context()), "HTTPS_PROXY")
}

// TestCredentialsAreTriedWhereTheyAreUsed checks that the consumer's token is tested at the address that the consumer
// will use, because a gateway may accept only the administrator's token.
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
	milan := side("milan", &rest.Config{Host: server.URL + "/k8s/clusters/c-milan"})
	milan.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	o := &Address{Consumer: side("rome", nil), Provider: milan}
	kubeconfig, err := o.Kubeconfig(&clientcmdapi.AuthInfo{Token: "of rome"})
	require.NoError(t, err)
	require.NoError(t, o.CheckKubeconfig(t.Context(), kubeconfig))
	accepted = "of an administrator"
	require.ErrorContains(t, o.CheckKubeconfig(t.Context(), kubeconfig), "Set the address of the API server itself with --api-server-url")
	o.ChosenURL = o.URL()
	require.ErrorContains(t, o.CheckKubeconfig(t.Context(), kubeconfig), "a gateway that accepts only its own tokens")
	o.IsUnchecked = true
	require.NoError(t, o.CheckKubeconfig(t.Context(), kubeconfig))
}
