// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	core "github.com/refract-project/refract/api/core/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// withoutPoll makes the controller determine a status only after a watch event.
func withoutPoll(o *controllers.Options) { o.ForeignClusters.RefreshInterval = time.Hour }

// awaitIdle waits until the controller has handled all earlier events of ForeignClusters, including the events of its
// own writes. For this, it waits until another ForeignCluster that was changed last is up to date, because the
// controller has only one worker. Otherwise, a reconciliation after a write could detect the next change, although the
// test requires that the watch detects it.
func awaitIdle(t *testing.T, in *controllertest.Cluster, other string) {
	t.Helper()
	for _, status := range []core.ConditionStatus{core.ConditionStatusEstablished, core.ConditionStatusError} {
		in.Patch(t, &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: other}},
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.NetworkStatusAnnotation, status))
		await(t, in, other, core.NetworkStatusCondition, status, "SetByAnnotation")
	}
}

// TestNetworksAreWatched checks that a change of a Connection or a PeerNetwork changes the status of the ForeignCluster
// at once. A change that does not affect the state of the network, such as the time of a measurement, causes no write.
func TestNetworksAreWatched(t *testing.T) {
	tenant(t, &consumer, "fano")
	tenant(t, &consumer, "osimo")
	tenant(t, &consumer, "matelica")
	hand := &controllertest.ShiftedClock{}
	m := consumer.StartManager(t, withoutPoll, func(o *controllers.Options) { o.Clock = hand })
	for _, id := range []string{"fano", "osimo", "matelica"} {
		await(t, &consumer, id, core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	}
	expect := func(status core.ConditionStatus, reason string) {
		t.Helper()
		await(t, &consumer, "fano", core.NetworkStatusCondition, status, reason)
		awaitIdle(t, &consumer, "matelica")
	}
	awaitIdle(t, &consumer, "matelica")

	connection := connectionOf("fano", "Connected", time.Now())
	consumer.Create(t, connection)
	expect(core.ConditionStatusEstablished, "ConnectionEstablished")
	consumer.Patch(t, connection, `{"status":{"value":"Error"}}`)
	begun := time.Now()
	await(t, &consumer, "fano", core.NetworkStatusCondition, core.ConditionStatusPending, "ConnectionNotEstablished")
	t.Logf("the status has followed after %s", time.Since(begun).Round(time.Millisecond))
	awaitIdle(t, &consumer, "matelica")
	consumer.Patch(t, connection, `{"status":{"value":"Connected"}}`)
	expect(core.ConditionStatusEstablished, "ConnectionEstablished")

	// A new time of a measurement changes nothing, unless the measurement was stale.
	writes := len(m.Writes.About("fano"))
	consumer.Patch(t, connection, `{"status":{"latency":{"timestamp":"2026-01-01T00:00:00Z"}}}`)
	another := connectionOf("osimo", "Connected", time.Now())
	// This object comes later in the same watch.
	consumer.Create(t, another)
	await(t, &consumer, "osimo", core.NetworkStatusCondition, core.ConditionStatusEstablished, "ConnectionEstablished")
	awaitIdle(t, &consumer, "matelica")
	assert.Len(t, m.Writes.About("fano"), writes, "a write without a change: %q", m.Writes.About("fano"))
	awaitStale(t, hand, "fano")
	awaitIdle(t, &consumer, "matelica")
	consumer.Patch(t, connection, `{"status":{"latency":{"timestamp":"2026-01-01T00:00:10Z"}}}`)
	expect(core.ConditionStatusEstablished, "ConnectionEstablished")
	consumer.Patch(t, connection, `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"nobody"}}}`)
	expect(core.ConditionStatusNone, "NotChecked")
	consumer.Delete(t, connection)
	consumer.Delete(t, another)

	declared := &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("fano"), Name: "fano"}, Spec: plugins.PeerNetworkSpec{ClusterID: "fano"}}
	consumer.Create(t, declared)
	say := func(connected, message string) {
		consumer.PatchStatus(t, declared, fmt.Sprintf(`{"status":{"checkedAt":%q,"conditions":[{"type":"Connected","status":%q,"reason":"Handshake","message":%q,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
			time.Now().UTC().Format(time.RFC3339), connected, message))
	}
	say("True", "two seconds ago")
	expect(core.ConditionStatusEstablished, "SetByPeerNetwork")
	say("False", "no answer")
	expect(core.ConditionStatusError, "SetByPeerNetwork")
	writes = len(m.Writes.About("fano"))
	say("False", "still no answer")
	consumer.Patch(t, declared, `{"spec":{"mode":"None"}}`)
	expect(core.ConditionStatusNone, "NoNetwork")
	assert.Len(t, m.Writes.About("fano"), writes+1, "a new message alone is written by no event: %q", m.Writes.About("fano"))
	consumer.Delete(t, declared)
	expect(core.ConditionStatusNone, "NotChecked")
}

// TestNetworksAreWatchedOnceTheirCRDsAreInstalled checks that the CRDs of a network may be installed, removed and
// installed again while the controllers are running.
func TestNetworksAreWatchedOnceTheirCRDsAreInstalled(t *testing.T) {
	definitions := []*unstructured.Unstructured{
		definition(t, "testdata/connections.yaml"),
		definition(t, "../../api/crds/plugins.refract.io_peernetworks.yaml"),
	}
	remove := func() {
		t.Helper()
		for _, crd := range definitions {
			if err := provider.Client.Delete(t.Context(), crd.DeepCopy()); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			provider.AwaitGone(t, crd.DeepCopy())
		}
	}
	install := func() {
		t.Helper()
		for _, crd := range definitions {
			provider.Create(t, crd.DeepCopy())
		}
		for _, kind := range []string{plugins.PeerNetworkKind, networking.ConnectionKind} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(plugins.GroupVersion.WithKind(kind + "List"))
			if kind == networking.ConnectionKind {
				list.SetGroupVersionKind(networking.GroupVersion.WithKind(kind + "List"))
			}
			controllertest.Eventually(t, kind+" to be served", func() error { return provider.Client.List(t.Context(), list) })
		}
	}
	remove()
	isInstalled := false
	t.Cleanup(func() { assert.True(t, isInstalled, "the other tests need the CRDs") })
	tenant(t, &provider, "jesi")
	tenant(t, &provider, "tolentino")
	m := provider.StartManager(t, withoutPoll)
	for _, id := range []string{"jesi", "tolentino"} {
		await(t, &provider, id, core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	}
	awaitIdle(t, &provider, "tolentino")
	assert.Len(t, m.Writes.About("foreignclusters", "jesi"), 1, "writes about the ForeignCluster after its creation")

	for range 2 {
		install()
		isInstalled = true
		provider.Create(t, connectionOf("jesi", "Connected", time.Now()))
		await(t, &provider, "jesi", core.NetworkStatusCondition, core.ConditionStatusEstablished, "ConnectionEstablished")
		awaitIdle(t, &provider, "tolentino")
		declared := &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("jesi"), Name: "jesi"},
			Spec: plugins.PeerNetworkSpec{ClusterID: "jesi", Mode: plugins.NoNetwork}}
		provider.Create(t, declared)
		await(t, &provider, "jesi", core.NetworkStatusCondition, core.ConditionStatusNone, "NoNetwork")
		awaitIdle(t, &provider, "tolentino")
		isInstalled = false
		remove()
		await(t, &provider, "jesi", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
		awaitIdle(t, &provider, "tolentino")
	}
	install()
	isInstalled = true
}

func definition(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.TrimPrefix(string(text), "---\n")), &crd.Object))
	return crd
}
