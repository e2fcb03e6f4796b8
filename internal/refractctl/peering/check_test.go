// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// at returns a cluster whose API server reports the given time. With the zero time, the API server sends no Date
// header.
func at(t *testing.T, name string, clock time.Time) *cluster.Side {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		if !clock.IsZero() {
			w.Header().Set("Date", clock.UTC().Format(http.TimeFormat))
		}
	}))
	t.Cleanup(server.Close)
	return &cluster.Side{Cluster: &cluster.Cluster{Name: name, Config: &rest.Config{Host: server.URL}}, Installation: &release.Installation{ClusterID: name}}
}

func TestClocksMustAgree(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		provider time.Time
		want     string
	}{
		{now, ""}, {now.Add(30 * time.Second), ""}, {time.Time{}, ""},
		{now.Add(10 * time.Minute), "apart: synchronise them (NTP)"},
		{now.Add(-10 * time.Minute), "the clocks of rome and milan are "},
	} {
		err := newPair(at(t, "rome", now), at(t, "milan", test.provider), nil).checkClocks(t.Context())
		if test.want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, test.want)
	}
}

func TestVersionsMayDifferByOneMinor(t *testing.T) {
	of := func(name, version string) *cluster.Side {
		return &cluster.Side{Cluster: &cluster.Cluster{Name: name}, Installation: &release.Installation{Version: version}}
	}
	for provider, allowed := range map[string]bool{"1.4.0": true, "1.5.9": true, "1.3.0": true, "1.6.0": false, "1.2.0": false, "2.4.0": false, "my-build": true} {
		err := newPair(of("rome", "1.4.2"), of("milan", provider), nil).checkVersions()
		if allowed {
			assert.NoError(t, err, provider)
			continue
		}
		assert.ErrorContains(t, err, "more than one minor version apart", provider)
	}
}
