// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
)

// TestUpdatesOfNetworks checks that only updates that may change the state of a network cause a reconciliation, because
// a reconciliation reads from the API server. The time of a measurement only matters if the measurement was stale.
func TestUpdatesOfNetworks(t *testing.T) {
	t.Parallel()
	stale := measurements{seen: map[string]map[string]measurement{"rome": {
		"Connection liqo-tenant-rome/rome": {stale: true}, "PeerNetwork liqo-tenant-rome/rome": {stale: true},
	}}}
	for name, test := range map[string]struct {
		reports       networkReports
		field         []string
		before, after any
		measured      *measurements
		want          bool
	}{
		"nothing":                  {connectionReports(), []string{"status", "value"}, "Connected", "Connected", nil, false},
		"value":                    {connectionReports(), []string{"status", "value"}, "Connected", "Error", nil, true},
		"cluster":                  {connectionReports(), []string{"metadata", "labels", wire.RemoteClusterIDLabel}, "rome", "milan", nil, true},
		"spec of a Connection":     {connectionReports(), []string{"spec", "type"}, "Server", "Client", nil, false},
		"latency":                  {connectionReports(), []string{"status", "latency", "value"}, "1ms", "2ms", nil, false},
		"time":                     {connectionReports(), []string{"status", "latency", "timestamp"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", nil, false},
		"time of a stale one":      {connectionReports(), []string{"status", "latency", "timestamp"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", &stale, true},
		"latency of a stale one":   {connectionReports(), []string{"status", "latency", "value"}, "1ms", "2ms", &stale, false},
		"spec of a PeerNetwork":    {peerNetworkReports(), []string{"metadata", "generation"}, int64(1), int64(2), nil, true},
		"condition":                {peerNetworkReports(), []string{"status", "conditions"}, conditions("True", "Up", ""), conditions("False", "Up", ""), nil, true},
		"reason":                   {peerNetworkReports(), []string{"status", "conditions"}, conditions("True", "Up", ""), conditions("True", "ConnectionEstablished", ""), nil, true},
		"no condition any more":    {peerNetworkReports(), []string{"status", "conditions"}, conditions("False", "Up", ""), []any{}, nil, true},
		"message":                  {peerNetworkReports(), []string{"status", "conditions"}, conditions("True", "Up", "1 s ago"), conditions("True", "Up", "2 s ago"), nil, false},
		"time of the check":        {peerNetworkReports(), []string{"status", "checkedAt"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", nil, false},
		"time of a stale check":    {peerNetworkReports(), []string{"status", "checkedAt"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", &stale, true},
		"status that is malformed": {peerNetworkReports(), []string{"status", "conditions"}, conditions("True", "Up", ""), "none", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Controller{}
			if test.measured != nil {
				c.measured.seen = test.measured.seen
			}
			with := func(value any) *unstructured.Unstructured {
				object := &unstructured.Unstructured{Object: map[string]any{}}
				object.SetNamespace("liqo-tenant-rome")
				object.SetName("rome")
				object.SetLabels(map[string]string{wire.RemoteClusterIDLabel: "rome"})
				assert.NoError(t, unstructured.SetNestedField(object.Object, value, test.field...))
				return object
			}
			assert.Equal(t, test.want, c.isNetworkChanged(test.reports, with(test.before), with(test.after)))
		})
	}
}

func conditions(status, reason, message string) []any {
	return []any{map[string]any{"type": "Connected", "status": status, "reason": reason, "message": message, "lastTransitionTime": time.Unix(0, 0).UTC().Format(time.RFC3339)}}
}
