// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// manyObjects is the number of objects in the tests that count the requests of evaluations.
const manyObjects = 10_000

// countRequests is a transport that counts requests of a method, or all if it is empty, and passes them on.
type countRequests struct {
	next   http.RoundTripper
	method string
	number *atomic.Int64
}

func (c countRequests) RoundTrip(request *http.Request) (*http.Response, error) {
	if c.method == "" || c.method == request.Method {
		c.number.Add(1)
	}
	return c.next.RoundTrip(request)
}

// countingManager returns a Manager that is not running, its chains, and the number of its requests to both clusters.
func countingManager(t *testing.T) (*reflection.Manager, *source.Chains, *atomic.Int64) {
	t.Helper()
	number := &atomic.Int64{}
	m, chains := idleManager(t, func(next http.RoundTripper) http.RoundTripper { return countRequests{next, "", number} })
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

// swapped is the number of swaps in TestSwapsLoseNothing. The figure in RATIONALE.md was measured with 1,000.
var swapped = flag.Int("swapped", 100, "swaps in TestSwapsLoseNothing")

// Load of TestSwapsLoseNothing. There are so many writers that the time of one request does not limit them.
const (
	swapsPerSecond   = 50
	changesPerSecond = 240
	writers          = 16
	// minReflected is the number of objects per second that must be reflected meanwhile, in a run of 1,000 swaps.
	minReflected = 200
)

// TestSwapsLoseNothing checks that if a plugin is swapped again and again while objects are created and updated, no
// object fails, is lost, or is written twice, and neither the memory nor the number of goroutines grows. All revisions
// except for the last one have the same results. Therefore a copy must be written at most once for each change of its
// object, and once more after the last swap.
func TestSwapsLoseNothing(t *testing.T) {
	patches := &atomic.Int64{}
	l := newDeclaredLab(t, func(o *reflection.Options) {
		o.Remote = rest.CopyConfig(o.Remote)
		o.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return countRequests{next, http.MethodPatch, patches} })
	})
	revisions := [3]source.Declared{}
	for n, label := range [3]string{"v1", "v1", "v2"} {
		version := fmt.Sprint(n + 1)
		revisions[n] = declaredPlugin("team", "team-"+version, module(t, version, fmt.Sprintf(setsLabel, label)))
	}
	l.declare(revisions[0])
	l.Start()
	l.settled(1) // the only copy so far is the copy of the root CA
	before, goroutines, heap := len(l.Remote.Writes(t)), runtime.NumGoroutine(), heapInUse()

	// Revisions with the same results are swapped while objects are written.
	load := l.newLoad()
	stop := load.start()
	begin, earlier, pace := time.Now(), patches.Load(), rate.NewLimiter(swapsPerSecond, 1)
	for n := range *swapped {
		require.NoError(t, pace.Wait(t.Context()))
		l.declare(revisions[(n+1)%2])
	}
	took := time.Since(begin)
	reflected := float64(patches.Load()-earlier) / took.Seconds()
	stop()
	t.Logf("%d swaps in %s; meanwhile %.0f objects were reflected per second; there were %d changes of %d objects",
		*swapped, took.Round(time.Millisecond), reflected, load.changes(), load.created())
	load.awaitCopies("v1")
	load.requireWrites(before, 0)
	if *swapped >= 1000 {
		require.GreaterOrEqual(t, reflected, float64(minReflected), "objects reflected per second")
	}

	// Swaps alone must write nothing, and must not need more memory.
	before, filled := len(l.Remote.Writes(t)), heapInUse()
	for n := range *swapped {
		l.declare(revisions[n%2])
	}
	l.declare(revisions[0])
	l.Settled()
	t.Logf("heap: %d KiB at first, %d KiB with %d objects, %d KiB after as many swaps again",
		heap>>10, filled>>10, load.created(), heapInUse()>>10)
	require.Len(t, l.Remote.Writes(t), before)

	// The last revision has other results. Objects are also written while it is swapped.
	load.forget()
	stop = load.start()
	load.await(50)
	l.declare(revisions[2])
	load.await(100)
	stop()
	load.awaitCopies("v2")
	load.requireWrites(before, 1)
	require.Empty(t, reflectiontest.Must(l.Local.Of("Event", l.Namespace).List(t.Context(), metav1.ListOptions{}))(t).Items)
	l.Eventually(func() error {
		if now := runtime.NumGoroutine(); now > goroutines+10 {
			return fmt.Errorf("%d goroutines, %d before", now, goroutines)
		}
		return nil
	})
}

// load creates and updates ConfigMaps.
type load struct {
	*declaredLab
	mu   sync.Mutex
	maps []*loadedMap
}

// loadedMap is a ConfigMap. Only one writer changes it.
type loadedMap struct {
	name    string
	value   int // of the last change
	changes int // number of changes since the last call of forget
}

func (l *declaredLab) newLoad() *load { return &load{declaredLab: l} }

// created returns the number of ConfigMaps.
func (w *load) created() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.maps)
}

// changes returns the number of changes since the last call of forget.
func (w *load) changes() (number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.maps {
		number += m.changes
	}
	return number
}

// forget resets the numbers of changes.
func (w *load) forget() {
	for _, m := range w.maps {
		m.changes = 0
	}
}

// await waits until there were n changes.
func (w *load) await(n int) {
	w.Helper()
	w.Eventually(func() error {
		if now := w.changes(); now < n {
			return fmt.Errorf("%d changes, want %d", now, n)
		}
		return nil
	})
}

// start starts to write. stop returns when the last change is written.
func (w *load) start() (stop func()) {
	ended, writing, pace := &atomic.Bool{}, &sync.WaitGroup{}, rate.NewLimiter(changesPerSecond, 1)
	for range writers {
		writing.Go(func() {
			for own, n := []*loadedMap{}, 0; !ended.Load() && !w.Failed(); n++ {
				// The first changes and every tenth one create a ConfigMap. The others update one after another, so
				// that there is time to reflect each change.
				_ = pace.Wait(w.Context())
				m := &loadedMap{}
				if n < 10 || n%10 == 0 {
					own = append(own, m)
				} else {
					m = own[n%len(own)]
				}
				w.change(m)
			}
		})
	}
	return func() { ended.Store(true); writing.Wait() }
}

// change creates or updates a ConfigMap. No two changes have the same result.
func (w *load) change(m *loadedMap) {
	maps, err := w.Local.Core.CoreV1().ConfigMaps(w.Namespace), error(nil)
	if m.value++; m.value == 1 {
		w.mu.Lock()
		m.name = fmt.Sprintf("map-%d", len(w.maps))
		w.maps = append(w.maps, m)
		w.mu.Unlock()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Data: map[string]string{"value": "1"}}
		_, err = maps.Create(w.Context(), object, metav1.CreateOptions{})
	} else {
		patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, m.value)
		_, err = maps.Patch(w.Context(), m.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		w.Error(err)
	}
	w.mu.Lock()
	m.changes++
	w.mu.Unlock()
}

// awaitCopies waits until every ConfigMap has a copy with its data and the label that the plugin sets.
func (w *load) awaitCopies(label string) {
	w.Helper()
	w.settled(len(w.maps) + 1) // including the root CA
	w.Eventually(func() error {
		copies, err := w.Remote.Core.CoreV1().ConfigMaps(w.RemoteNS).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := map[string]*corev1.ConfigMap{}
		for i := range copies.Items {
			found[copies.Items[i].Name] = &copies.Items[i]
		}
		for _, m := range w.maps {
			if c := found[m.name]; c == nil || c.Labels["by"] != label || c.Data["value"] != fmt.Sprint(m.value) {
				return fmt.Errorf("the copy of %s is %+v, want the label %s and the value %d", m.name, c, label, m.value)
			}
		}
		return nil
	})
	w.Settled()
}

// requireWrites checks the writes since the given number of first writes: each copy was written at most once for each
// change of its object, plus the number in more, and at least once if this sum is not 0.
func (w *load) requireWrites(first, more int) {
	w.Helper()
	writes := map[string]int{}
	for _, write := range w.Remote.Writes(w.T)[first:] {
		writes[write]++
	}
	for _, m := range w.maps {
		key := "patch configmaps " + m.name
		require.GreaterOrEqual(w, writes[key], min(1, m.changes+more), key)
		if writes[key] > m.changes+more {
			w.logRequests(m.name)
		}
		require.LessOrEqual(w, writes[key], m.changes+more, key)
		delete(writes, key)
	}
	delete(writes, "patch configmaps kube-root-ca.crt.rome")
	require.Empty(w, writes, "other writes")
}

// logRequests logs all requests that concern a ConfigMap or its copy.
func (w *load) logRequests(name string) {
	for side, requests := range map[string][]reflectiontest.Request{"consumer": w.Local.Requests(w.T), "provider": w.Remote.Requests(w.T)} {
		for _, r := range requests {
			if r.ObjectRef.Name == name {
				w.Logf("%s: %s %s: %d, %s to %s", side, r.Verb, r.RequestURI, r.ResponseStatus.Code, r.Received.Format(time.StampMicro), r.Ended.Format(time.StampMicro))
			}
		}
	}
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
