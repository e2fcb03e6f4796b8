// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/release"
)

// What answers at the address that a consumer is to be given. (Package test/join tries the same with API servers.)
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

// Clusters that are joined stay joined, whatever is compared by a later version.
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

// The token of a peering goes to the API server of the provider alone, whatever file names that provider.
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
