// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// lossy is a transport to the provider that can lose responses.
type lossy struct {
	next http.RoundTripper
	late time.Duration // delay after which a create whose response is lost reaches the provider
	// While armed is set, the response to the next create of a ShadowPod is lost, and all later requests fail until cut
	// is reset.
	armed atomic.Bool
	// ending has the same effect as armed for the next deletion of a ShadowPod.
	ending atomic.Bool
	cut    atomic.Bool
	held   pause  // while it is on, watches deliver no events
	only   string // if set, held and expire apply only to watches of paths with this suffix
	// While expire is on, watches deliver no events. Afterwards they must start again with a list.
	expire pause
}

var errLost = &lostConnection{}

type lostConnection struct{}

func (*lostConnection) Error() string   { return "connection reset by peer" }
func (*lostConnection) Timeout() bool   { return false }
func (*lostConnection) Temporary() bool { return false }

// RoundTrip implements http.RoundTripper.
func (y *lossy) RoundTrip(request *http.Request) (*http.Response, error) {
	if y.cut.Load() {
		return nil, errLost
	}
	if shadows := strings.HasSuffix(request.URL.Path, "/shadowpods"); shadows && request.Method == http.MethodPost && y.armed.CompareAndSwap(true, false) {
		y.cut.Store(true)
		sent := request.Clone(request.Context())
		if y.late > 0 {
			body, _ := io.ReadAll(request.Body)
			sent = request.Clone(context.WithoutCancel(request.Context()))
			sent.Body = io.NopCloser(bytes.NewReader(body))
			time.AfterFunc(y.late, func() { y.send(sent) })
		} else {
			y.send(sent)
		}
		return nil, errLost
	}
	if strings.Contains(request.URL.Path, "/shadowpods/") && request.Method == http.MethodDelete && y.ending.CompareAndSwap(true, false) {
		y.cut.Store(true)
		y.send(request)
		return nil, errLost
	}
	response, err := y.next.RoundTrip(request)
	if err == nil && request.URL.Query().Has("watch") && strings.HasSuffix(request.URL.Path, y.only) {
		response.Body = &heldBody{response.Body, &y.held, &y.expire}
	}
	return response, err
}

func (y *lossy) send(request *http.Request) {
	if response, err := y.next.RoundTrip(request); err == nil {
		_ = response.Body.Close()
	}
}

// pause makes all callers of wait block while it is on. The zero value is off.
type pause struct {
	mu   sync.Mutex
	over chan struct{} // closed by Store(false); nil while it is off
}

// Store switches the pause on or off.
func (g *pause) Store(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case on && g.over == nil:
		g.over = make(chan struct{})
	case !on && g.over != nil:
		close(g.over)
		g.over = nil
	}
}

// wait waits until the pause is over, and reports whether the pause was on.
func (g *pause) wait() (paused bool) {
	g.mu.Lock()
	over := g.over
	g.mu.Unlock()
	if over == nil {
		return false
	}
	<-over
	return true
}

type heldBody struct {
	io.ReadCloser
	held, expire *pause
}

// expired is the watch event of an API server whose history does not reach back to the requested version.
const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}`

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.expire.wait() {
		return copy(p, expired), io.EOF
	}
	b.held.wait()
	return n, err
}

// throughLossy makes the manager use a lossy transport to the provider, and returns it.
func (l *lab) throughLossy() *lossy {
	way := &lossy{}
	l.Options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { way.next = next; return way })
	l.Cleanup(func() { way.held.Store(false); way.expire.Store(false) })
	return way
}

// TestCreateWhoseAnswerIsLost checks that a pod is not removed before its ShadowPod is deleted, even if the pod is
// deleted after the response to the create of the ShadowPod was lost and before the watch shows the result. If it were
// removed earlier, a StatefulSet would create its next pod while the pod is still running.
func TestCreateWhoseAnswerIsLost(t *testing.T) {
	for name, late := range map[string]time.Duration{"arrived before": 0, "arrives later": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			way := l.throughLossy()
			way.late = late
			l.Start()
			way.armed.Store(true)
			way.held.Store(true)
			l.Pod("web-0")
			l.Eventually(func() error {
				if !way.cut.Load() {
					return errors.New("no ShadowPod was asked for")
				}
				return nil
			})
			l.Local.Delete(t, "Pod", l.Namespace, "web-0")
			l.Eventually(func() error {
				if pod := reflection.Pod(l.Manager, l.Namespace, "web-0"); pod == nil || pod.GetDeletionTimestamp() == nil {
					return errors.New("the pod is not known to be going")
				}
				return nil
			})
			way.cut.Store(false)

			seen := false
			l.Eventually(func() error {
				// The pod must be read before the ShadowPod: if the pod no longer exists, it cannot appear again in
				// the meantime.
				gone := l.Local.Get(t, "Pod", l.Namespace, "web-0") == nil
				there := l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web-0") != nil
				if gone && there || gone && !seen {
					t.Fatal("the pod was let go while the provider has, or will have, its ShadowPod")
				}
				if seen = seen || there; !seen || there {
					return errors.New("the ShadowPod has not come and gone")
				}
				return nil
			})
			way.held.Store(false)
			l.Absent(l.Local, "Pod", l.Namespace, "web-0")
		})
	}
}

// TestCopiesThatAreGoneThoughTheCacheHasThem checks that copies that were deleted while the provider's watches
// deliver no events are recreated at the next change to their objects, at once and with a single attempt.
func TestCopiesThatAreGoneThoughTheCacheHasThem(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind, reflection.ConfigMapKind)
	})
	way := l.throughLossy()
	l.Start()
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {a: b}}`)
	l.Pod("web")
	of := map[string]string{"Service": "Service", "ConfigMap": "ConfigMap", "Pod": "ShadowPod"}
	for _, copied := range of {
		l.Present(l.Remote, copied, l.RemoteNS, "web")
	}
	l.Settled()
	way.held.Store(true)
	before := len(l.Remote.Writes(t))
	for kind, copied := range of {
		l.Remote.Delete(t, copied, l.RemoteNS, "web")
		l.Local.PatchYAML(t, kind, l.Namespace, "web", `{metadata: {labels: {turn: second}}}`)
		l.Present(l.Remote, copied, l.RemoteNS, "web", reflectiontest.Field("metadata.labels/turn", "second"))
	}
	l.Settled()
	if writes := l.Remote.Writes(t)[before:]; len(writes) > 2*len(of) {
		t.Errorf("what was gone was written by %q", writes)
	}
	way.held.Store(false)
	l.Quiet("that the watches show it", func() {})
	for kind := range of {
		l.Local.DeleteNow(t, kind, l.Namespace, "web")
	}
	for _, copied := range of {
		l.Absent(l.Remote, copied, l.RemoteNS, "web")
	}
}

// TestOnlyTheKnownCopyIsDeleted checks that if another client has replaced a copy while the watches deliver no
// events, the new object is not deleted, because the UID of the known copy is a precondition.
func TestOnlyTheKnownCopyIsDeleted(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	way := l.throughLossy()
	l.Start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {mode: fast}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings")
	l.Settled()
	way.held.Store(true)
	l.Remote.Delete(t, "ConfigMap", l.RemoteNS, "settings")
	foreign := l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {whose: theirs}}`)
	l.Local.Delete(t, "ConfigMap", l.Namespace, "settings")
	l.Eventually(func() error {
		if !slices.Contains(l.Remote.Writes(t), "delete configmaps settings") {
			return errors.New("the copy was not asked to be deleted")
		}
		return nil
	})
	way.held.Store(false)
	l.Settled()
	if now := l.Remote.Get(t, "ConfigMap", l.RemoteNS, "settings"); now == nil || now.GetUID() != foreign.GetUID() {
		t.Errorf("what was there in place of the copy became %v", now)
	}
}

// unseenShadow returns a lab with a pod web-0 that was created while the watches of the provider deliver no events.
// When expire is switched off, the watches start again with a list of the existing objects.
func unseenShadow(t *testing.T) (*lab, *lossy) {
	t.Helper()
	l := newLab(t)
	way := l.throughLossy()
	l.Start()
	l.Pod("marker")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "marker")
	l.Settled()
	way.expire.Store(true)
	l.Pod("web-0")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web-0")
	return l, way
}

// TestAShadowPodInAGapOfTheWatch checks that a local pod that is created and deleted while the provider's watches
// deliver no events is removed. The watches then start again with a list, so they report neither the creation nor the
// deletion of the ShadowPod.
func TestAShadowPodInAGapOfTheWatch(t *testing.T) {
	t.Parallel()
	l, way := unseenShadow(t)
	l.Local.Delete(t, "Pod", l.Namespace, "web-0")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web-0")
	way.expire.Store(false)
	l.Absent(l.Local, "Pod", l.Namespace, "web-0")
}

// TestEndOfAPodThatIsNotSeenYet checks that the final statuses of the containers are shown even if the watch of
// ShadowPods reports the end of a pod earlier than the watch of pods.
func TestEndOfAPodThatIsNotSeenYet(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ChainsForPods()
	way := l.throughLossy()
	way.only = "/pods"
	l.Start()
	l.Pod("job")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "job")
	l.Settled()
	way.held.Store(true)
	l.RunRemote("job", `{phase: Succeeded, containerStatuses: [{name: web, image: "web:1", imageID: "", ready: false, restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed}}}]}`)
	l.Remote.PatchYAML(t, "ShadowPod", l.RemoteNS, "job", `{status: {phase: Succeeded}}`, "status")
	l.Eventually(func() error {
		for _, request := range l.Remote.Requests(t) {
			if request.Verb == "get" && request.ObjectRef.Resource == "pods" && request.ObjectRef.Name == "job" {
				return nil
			}
		}
		return errors.New("the provider was not asked for the pod")
	})
	way.held.Store(false)
	l.Present(l.Local, "Pod", l.Namespace, "job", reflectiontest.Field("status.phase", "Succeeded"), func(pod *unstructured.Unstructured) error {
		if statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses"); len(statuses) != 1 {
			return errors.New("how its container ended is not shown")
		}
		return nil
	})
}

// TestDeletionWhoseAnswerIsLost checks that a pod is also removed if the response to the deletion of its ShadowPod is
// lost, so that the next deletion finds no ShadowPod.
func TestDeletionWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	l, way := unseenShadow(t)
	way.ending.Store(true)
	l.Local.Delete(t, "Pod", l.Namespace, "web-0")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web-0")
	way.cut.Store(false)
	way.expire.Store(false)
	l.Absent(l.Local, "Pod", l.Namespace, "web-0")
}
