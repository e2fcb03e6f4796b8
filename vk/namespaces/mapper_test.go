// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
)

// heard is a Handler that records its calls.
type heard struct {
	mu    sync.Mutex
	calls []string
}

func (h *heard) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func (h *heard) StartNamespace(local, remote string) { h.note("start %s %s", local, remote) }
func (h *heard) StopNamespace(local string)          { h.note("stop %s", local) }
func (h *heard) NamespacesChanged()                  { h.note("changed") }

func (h *heard) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func newTestMapper(t *testing.T) (*Mapper, *heard, *clocktesting.FakeClock) {
	t.Helper()
	// The test fills the store directly, so the client sends no requests, and its address is not used.
	client, err := dynamic.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	handler, clock := &heard{}, clocktesting.NewFakeClock(time.Unix(100000, 0))
	m, err := New(Options{Client: client, TenantNamespace: "tenant", RemoteClusterID: "milan", Handler: handler, Events: record.NewFakeRecorder(100), Clock: clock})
	require.NoError(t, err)
	return m, handler, clock
}

// put replaces the NamespaceMaps in the store with a single map that has the given mapping, and evaluates it.
func put(t *testing.T, m *Mapper, uid string, born time.Time, mapping map[string]any) {
	t.Helper()
	desired := map[string]any{}
	for local, entry := range mapping {
		fields, _ := entry.(map[string]any)
		if remote, ok := fields["remoteNamespace"].(string); ok {
			desired[local] = remote
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"desiredMapping": desired}, "status": map[string]any{"currentMapping": mapping},
	}}
	object.SetName("milan")
	object.SetNamespace("tenant")
	object.SetUID(types.UID(uid))
	object.SetCreationTimestamp(metav1.NewTime(born))
	require.NoError(t, m.informer.GetStore().Replace([]any{object}, ""))
	m.evaluateMaps()
}

// TestSilenceOfANewMap checks that a namespace that is missing from a new map counts as offloaded until the grace
// period ends, unless the map contained the namespace before.
func TestSilenceOfANewMap(t *testing.T) {
	m, handler, clock := newTestMapper(t)
	certain := func(namespace string) bool {
		m.mu.RLock()
		defer m.mu.RUnlock()
		return m.isCertain(namespace)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); m.endGraces(t.Context()) }()

	put(t, m, "old", clock.Now().Add(-time.Hour), map[string]any{"shop": entry("shop-a", "Accepted")})
	if !certain("elsewhere") || certain("shop") {
		t.Error("what an old map names, and only that, should be extended for certain")
	}
	put(t, m, "old", clock.Now().Add(-time.Hour), nil)
	if want, got := []string{"start shop shop-a", "changed", "stop shop", "changed"}, handler.said(); !cmp.Equal(want, got) {
		t.Errorf("the handler heard %q, want %q", got, want)
	}

	put(t, m, "new", clock.Now(), map[string]any{"mail": entry("mail-a", "Accepted")})
	if certain("elsewhere") || certain("shop") {
		t.Error("the silence of a new map is taken for its word")
	}
	put(t, m, "new", clock.Now(), nil)
	if !certain("mail") {
		t.Error("a new map names a namespace no more: that should be certain")
	}
	handler.said()
	await(t, "nobody waits for the grace to end", clock.HasWaiters)
	clock.Step(time.Minute + 2*time.Second)
	if !certain("elsewhere") {
		t.Error("the map is old enough: its silence should be certain")
	}
	await(t, "nobody is told that the grace has ended", func() bool { return len(handler.said()) > 0 })
}

// await waits until done returns true. After a timeout, the test fails with the text in complaint.
func await(t *testing.T, complaint string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, 2*time.Minute, time.Millisecond, complaint)
}

// TestRemoteNamespaceOfADoubtfulNamespace checks that a namespace is still reflected after its entry has become
// invalid, and that no other namespace gets its remote namespace until the entry is corrected.
func TestRemoteNamespaceOfADoubtfulNamespace(t *testing.T) {
	m, handler, clock := newTestMapper(t)
	old := clock.Now().Add(-time.Hour)
	put(t, m, "u", old, map[string]any{"shop": entry("shop-remote", "Accepted")})
	put(t, m, "u", old, map[string]any{"shop": []any{"nonsense"}, "mail": entry("shop-remote", "Accepted")})
	if diff := cmp.Diff(map[string]string{"shop": "shop-remote"}, m.Running()); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
	put(t, m, "u", old, map[string]any{"mail": entry("shop-remote", "Accepted")})
	want := []string{"start shop shop-remote", "changed", "changed", "stop shop", "start mail shop-remote", "changed"}
	if got := handler.said(); !cmp.Equal(want, got) {
		t.Errorf("the handler heard %q, want %q", got, want)
	}
}
