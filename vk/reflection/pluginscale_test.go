// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// manyObjects is the number of objects in the tests that count the requests of evaluations.
const manyObjects = 10_000

// countRequests is a transport that counts requests, and passes them on.
type countRequests struct {
	next   http.RoundTripper
	number *atomic.Int64
}

func (c countRequests) RoundTrip(request *http.Request) (*http.Response, error) {
	c.number.Add(1)
	return c.next.RoundTrip(request)
}

// countingManager returns a Manager that is not running, its chains, and the number of its requests to both clusters.
func countingManager(t *testing.T) (*reflection.Manager, *source.Chains, *atomic.Int64) {
	t.Helper()
	number := &atomic.Int64{}
	m, chains := idleManager(t, func(next http.RoundTripper) http.RoundTripper { return countRequests{next, number} })
	return m, chains, number
}

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestRehearsalOfManyPodsRequestsNothing checks that a rehearsal of 10,000 pods, which compares the results of the
// present chains with the results of another revision, three times for each pod, sends no requests.
func TestRehearsalOfManyPodsRequestsNothing(t *testing.T) {
	m, chains, requests := countingManager(t)
	require.NoError(t, chains.Declare(t.Context(), []source.Declared{declaredPlugin("team", "team-1", module(t, "1",
		fmt.Sprintf(setsLabel, "v1")))})[0].Err)
	putPods(t, m, manyObjects)
	next, _, err := chains.NewCandidate(t.Context(), []source.Declared{declaredPlugin("team", "team-2", module(t, "2",
		fmt.Sprintf(setsLabel, "v2")))})
	require.NoError(t, err)
	defer next.Close(t.Context())
	p := m.NewPreview(next.Registry(), rate.NewLimiter(rate.Inf, 1))
	kinds := m.PreviewKinds(func(kind string) bool { return kind == reflection.PodKind })
	require.Len(t, kinds, 1)
	require.Len(t, kinds[0].Keys, manyObjects)
	begin := processorTime(t)
	for _, key := range kinds[0].Keys {
		compared, err := p.Compare(t.Context(), kinds[0], key, "team")
		require.NoError(t, err)
		require.True(t, compared.Outgoing.Differs())
		require.False(t, compared.Varies)
	}
	t.Logf("%d pods were compared in %s of processor time", manyObjects, processorTime(t)-begin)
	require.Zero(t, requests.Load())
}

// TestSwapsLoseNothing checks that if a plugin is swapped again and again while 200 objects per second are created, no
// object fails, and neither the memory nor the number of goroutines grows. All revisions except for the last one have
// the same results. Therefore each object must be written once, and once more if it was written before the last swap,
// and must have the label of the last revision.
func TestSwapsLoseNothing(t *testing.T) {
	swaps := 1000
	if testing.Short() {
		swaps = 100
	}
	l := newDeclaredLab(t)
	revisions := [3]source.Declared{}
	for n, label := range [3]string{"v1", "v1", "v2"} {
		version := fmt.Sprint(n + 1)
		revisions[n] = declaredPlugin("team", "team-"+version, module(t, version, fmt.Sprintf(setsLabel, label)))
	}
	l.declare(revisions[0])
	l.Start()
	l.settled(1) // the only copy so far is the copy of the root CA
	before, goroutines, heap := len(l.Remote.Writes(t)), runtime.NumGoroutine(), heapInUse()

	swapped := make(chan time.Duration, 1)
	go func() {
		begin, pace := time.Now(), rate.NewLimiter(100, 1)
		for n := range swaps {
			if err := pace.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			next := revisions[(n+1)%2]
			if n == swaps-1 {
				next = revisions[2]
			}
			for _, s := range l.chains.Declare(t.Context(), []source.Declared{next}) {
				if s.Err != nil {
					t.Errorf("swap %d: %v", n, s.Err)
				}
			}
		}
		swapped <- time.Since(begin)
	}()
	created, pace := 0, rate.NewLimiter(200, 1)
	var took time.Duration
	for later := 0; later < 20; { // some objects are created after the last swap
		require.NoError(t, pace.Wait(t.Context()))
		l.labelled(fmt.Sprintf("map-%d", created), "do: pass")
		created++
		select {
		case took = <-swapped:
		default:
		}
		if took > 0 {
			later++
		}
	}
	t.Logf("%d swaps in %s, %d objects created meanwhile", swaps, took, created)
	l.settled(created + 1)
	l.Eventually(func() error {
		copies, err := l.Remote.Of("ConfigMap", l.RemoteNS).List(t.Context(), metav1.ListOptions{LabelSelector: "offloading.liqo.io/origin=rome,by!=v2"})
		if err != nil {
			return err
		}
		if len(copies.Items) > 0 {
			return fmt.Errorf("%d copies do not have the label of the last revision", len(copies.Items))
		}
		return nil
	})
	writes := map[string]int{}
	for _, write := range l.Remote.Writes(t)[before:] {
		writes[write]++
	}
	require.Len(t, writes, created+1, "no copy is lost; the root CA was written before")
	again := 0
	for write, times := range writes {
		require.LessOrEqual(t, times, 2, write)
		again += times - 1
	}
	t.Logf("%d copies were written again after the last swap", again)
	require.Empty(t, reflectiontest.Must(l.Local.Of("Event", l.Namespace).List(t.Context(), metav1.ListOptions{}))(t).Items)
	l.Eventually(func() error {
		if now := runtime.NumGoroutine(); now > goroutines+10 {
			return fmt.Errorf("%d goroutines, %d before", now, goroutines)
		}
		return nil
	})
	after := heapInUse()
	t.Logf("heap: %d KiB before, %d KiB after, of it %d objects", heap>>10, after>>10, created)
	require.Less(t, after, heap+uint64(created)*16<<10+8<<20)
}

// heapInUse returns the bytes of reachable objects.
func heapInUse() uint64 {
	for range 2 { // the second GC frees objects that Go finalizers kept alive
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
