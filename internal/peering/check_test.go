// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/rest"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/release"
)

// at returns an API server whose clock shows the given time. With the zero time the API server sends no Date header.
func at(t *testing.T, name string, clock time.Time) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		if !clock.IsZero() {
			w.Header().Set("Date", clock.UTC().Format(http.TimeFormat))
		}
	}))
	t.Cleanup(server.Close)
	return &Cluster{Name: name, Config: &rest.Config{Host: server.URL}}
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
		o := &Options{Consumer: at(t, "rome", now), Provider: at(t, "milan", test.provider)}
		err := o.checkClocks(t.Context())
		if test.want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, test.want)
	}
}

func TestUnknownRangesAreWorthAWarning(t *testing.T) {
	of := func(id string) *Cluster {
		return &Cluster{Name: id, installation: &release.Installation{ClusterID: id}}
	}
	rome, milan := of("rome"), of("milan")
	ranges := func(text string) []netip.Prefix {
		if text == "" {
			return nil
		}
		return []netip.Prefix{netip.MustParsePrefix(text)}
	}
	for _, test := range []struct {
		here, there string
		network     plugins.NetworkMode
		overlapping bool
		warnings    []string
	}{
		{"10.1.0.0/16", "10.2.0.0/16", plugins.ReachableNetwork, false, nil},
		{"", "10.2.0.0/16", plugins.ReachableNetwork, false, []string{"rome --pod-cidrs"}},
		{"10.1.0.0/16", "", plugins.ReachableNetwork, false, []string{"milan --remote-pod-cidrs"}},
		{"", "", plugins.ReachableNetwork, false, []string{"rome --pod-cidrs", "milan --remote-pod-cidrs"}},
		{"", "", plugins.NoNetwork, false, nil},
		{"", "", plugins.ReachableNetwork, true, nil},
	} {
		var warnings []string
		o := &Options{Consumer: rome, Provider: milan, network: test.network, OverlappingRanges: &test.overlapping,
			ranges: map[*Cluster][]netip.Prefix{rome: ranges(test.here), milan: ranges(test.there)},
			Progress: func(line string) {
				id, warning, _ := strings.Cut(line, ": warning: the pod ranges are unknown")
				warnings = append(warnings, id+" "+warning[strings.LastIndex(warning, " ")+1:])
			}}
		assert.NoError(t, o.checkRanges(t.Context()))
		assert.Equal(t, test.warnings, warnings, "%v", test)
	}
}

func TestVersionsMayDifferByOneMinor(t *testing.T) {
	of := func(name, version string) *Cluster {
		return &Cluster{Name: name, installation: &release.Installation{Version: version}}
	}
	for provider, allowed := range map[string]bool{"1.4.0": true, "1.5.9": true, "1.3.0": true, "1.6.0": false, "1.2.0": false, "2.4.0": false, "my-build": true} {
		err := (&Options{Consumer: of("rome", "1.4.2"), Provider: of("milan", provider)}).checkVersions(t.Context())
		if allowed {
			assert.NoError(t, err, provider)
			continue
		}
		assert.ErrorContains(t, err, "more than one minor version apart", provider)
	}
}
