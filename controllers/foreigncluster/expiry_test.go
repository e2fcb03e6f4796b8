// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/internal/credentials"
)

// TestExpiringCredentials checks that an Event is created before the credentials for a provider expire.
func TestExpiringCredentials(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	months := credentials.Validity{From: from, Until: from.AddDate(0, 0, 90)}
	const manual = "renew them with refractctl peer --credentials=certificate; set authentication.enabled of the chart in cluster milan first to have them renewed automatically from then on"
	for days, want := range map[int]string{
		1: "", 59: "",
		61: "Warning CredentialsExpire the credentials for cluster milan in Secret liqo-tenant-milan/kubeconfig expire at 2026-04-01T00:00:00Z: renew them with refractctl peer, or replace the kubeconfig",
		70: "Warning CredentialsExpire the credentials for cluster milan in Secret liqo-tenant-milan/kubeconfig expire at 2026-04-01T00:00:00Z: " + manual,
		91: "Warning CredentialsExpire the credentials for cluster milan in Secret liqo-tenant-milan/kubeconfig have expired at 2026-04-01T00:00:00Z: renew them with refractctl peer, or replace the kubeconfig",
	} {
		recorder := events.NewFakeRecorder(10)
		c := NewController(nil, nil, recorder, Options{Clock: clocktesting.NewFakeClock(from.AddDate(0, 0, days))})
		f := &facts{id: "milan", cluster: &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}}
		for range 2 { // the second call must not write another Event
			c.warnOfExpiry(f, types.NamespacedName{Namespace: "liqo-tenant-milan", Name: "kubeconfig"}, months, days == 70)
		}
		c.warnOfExpiry(f, types.NamespacedName{}, credentials.Validity{}, false) // the expiry is unknown
		close(recorder.Events)
		var said []string
		for event := range recorder.Events {
			said = append(said, event)
		}
		if want == "" {
			assert.Empty(t, said, "after %d days", days)
			continue
		}
		assert.Equal(t, []string{want}, said, "after %d days", days)
	}
}
