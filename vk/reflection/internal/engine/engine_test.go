// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	services   = corev1.SchemeGroupVersion.WithResource("services")

	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	serviceKind   = corev1.SchemeGroupVersion.WithKind("Service")
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret")
	eventKind     = corev1.SchemeGroupVersion.WithKind("Event")
)

// chains runs one function instead of plugins.
type chains struct {
	run func(hook host.Hook, doc *document.Document) (*host.Outcome, error)
}

func (c *chains) Run(_ context.Context, _ string, hook host.Hook, doc *document.Document, _ *host.Env) (*host.Outcome, error) {
	if c.run == nil {
		return &host.Outcome{}, nil
	}
	return c.run(hook, doc)
}

func (c *chains) Subscribe(func(string, host.Hook, uint64)) (cancel func()) { return func() {} }

// pair is a Manager between the stubs of two clusters.
type pair struct {
	t              *testing.T
	here, provider *apistub.Server
	m              *Manager
	chains         *chains
}

// newPair returns a pair whose Manager reflects ConfigMaps and Services until the test ends. The namespace shop is
// offloaded.
func newPair(t *testing.T, edit func(p *pair, o *Options)) *pair {
	t.Helper()
	p := &pair{t: t, here: newCluster(t), provider: newCluster(t), chains: &chains{}}
	o := Options{
		Local: p.here.Config(), Remote: p.provider.Config(), LocalClusterID: "rome", RemoteClusterID: "milan", NodeName: "milan", TenantNamespace: "tenant",
		Registry: p.chains, ProbeEvery: 10 * time.Millisecond, CallTimeout: 2 * time.Second, Log: slog.New(slog.DiscardHandler),
		Kinds: []Kind{
			{Name: "ConfigMap", Source: configMaps, Policy: DenyList, Workers: 2, Tracked: true},
			{Name: "Service", Source: services, Policy: DenyList, Workers: 2, Status: objects.Status{Back: true, Subresource: true, Fields: []string{"loadBalancer"}}},
		},
	}
	p.here.Put(p.t, object("offloading.liqo.io/v1beta1", "VirtualNode", "tenant", "milan"))
	p.offload(map[string]string{"shop": "shop-rome"})
	if edit != nil {
		edit(p, &o)
	}
	var err error
	p.m, err = New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return p
}

// newCluster returns the stub of a cluster with the namespaces of the tests.
func newCluster(t *testing.T) *apistub.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	server := apistub.New(t, scheme)
	server.Serve("ips", schema.GroupVersionKind{Group: "ipam.liqo.io", Version: "v1alpha1", Kind: "IP"})
	for _, name := range []string{"shop", "shop-rome", "tenant"} {
		server.Put(t, object("v1", "Namespace", "", name))
	}
	return server
}

// offload writes a NamespaceMap with these remote namespaces.
func (p *pair) offload(namespaces map[string]string) {
	desired, current := map[string]any{}, map[string]any{}
	for local, remote := range namespaces {
		desired[local], current[local] = remote, map[string]any{"remoteNamespace": remote, "phase": "Accepted"}
	}
	m := object("offloading.liqo.io/v1beta1", "NamespaceMap", "tenant", "milan")
	m.SetLabels(map[string]string{wire.RemoteClusterIDLabel: "milan", wire.RemoteIDLabel: "milan", wire.ReplicationLabel: "true"})
	if present := p.here.Get(offloadingv1beta1.GroupVersion.WithKind("NamespaceMap"), "tenant", "milan"); present != nil {
		m.SetUID(present.GetUID())
	}
	m.Object["spec"], m.Object["status"] = map[string]any{"desiredMapping": desired}, map[string]any{"currentMapping": current}
	p.here.Put(p.t, m)
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": name}}}
}

func configMap(value string) *unstructured.Unstructured {
	made := object("v1", "ConfigMap", "shop", "settings")
	made.Object["data"] = map[string]any{"value": value}
	return made
}

// await waits for a condition.
func (p *pair) await(what string, done func() bool) {
	p.t.Helper()
	require.Eventually(p.t, done, time.Minute, time.Millisecond, what)
}

// put creates or changes the ConfigMap in this cluster.
func (p *pair) put(value string, annotations map[string]string) {
	changed := configMap(value)
	if present := p.here.Get(configMapKind, "shop", "settings"); present != nil {
		changed.SetUID(present.GetUID())
	}
	if annotations != nil {
		changed.SetAnnotations(annotations)
	}
	p.here.Put(p.t, changed)
}

// value returns the value in the copy of the ConfigMap, or "" if there is no copy.
func (p *pair) value() string {
	copied := p.provider.Get(configMapKind, "shop-rome", "settings")
	if copied == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(copied.Object, "data", "value")
	return value
}

// awaitEvent waits for an Event in this cluster that contains a text.
func (p *pair) awaitEvent(text string) {
	p.t.Helper()
	p.await("no Event has "+text, func() bool { return p.hasEvent(text) })
}

// hasEvent reports whether an Event in this cluster contains a text.
func (p *pair) hasEvent(text string) bool {
	return slices.ContainsFunc(p.here.All(eventKind, "shop"), func(event *unstructured.Unstructured) bool {
		return strings.Contains(fmt.Sprint(event.Object["reason"], " ", event.Object["message"]), text)
	})
}

// TestLifeOfAnObject checks the copy of an object during its life: it is created, changed with the object, recreated
// after it was deleted on the provider, deleted while the object is excluded from reflection, created again, and
// deleted with the object. At the end, the namespace must no longer be reflected after its offloading has ended.
func TestLifeOfAnObject(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.put("a", nil)
	p.await("it does not cross", func() bool { return p.value() == "a" })
	p.put("b", nil)
	p.await("a change does not cross", func() bool { return p.value() == "b" })
	p.provider.Remove(configMapKind, "shop-rome", "settings")
	p.await("a deleted copy does not come back", func() bool { return p.value() == "b" })
	p.put("b", map[string]string{wire.SkipReflectionAnnotation: "true"})
	p.await("an excluded object keeps its copy", func() bool { return p.value() == "" })
	p.awaitEvent(wire.ReflectionDisabledReason)
	p.put("c", nil)
	p.await("an object that is not excluded any more does not cross", func() bool { return p.value() == "c" })
	p.here.Remove(configMapKind, "shop", "settings")
	p.await("the copy of a deleted object stays", func() bool { return p.value() == "" })
	require.True(t, p.m.Ready())
	p.offload(nil)
	p.await("the namespace is still reflected", func() bool { return len(p.m.Namespaces()) == 0 })
}

// TestACopyDoesNotBecomeOlder checks that after Copy has returned the result of a write, it does not return an older
// state, not even while the watch delivers the result. Otherwise an evaluation would repeat the write.
func TestACopyDoesNotBecomeOlder(t *testing.T) {
	t.Parallel()
	const changes = 100
	p := newPair(t, nil)
	p.put("0", nil)
	var s *Scope
	p.await("it does not cross", func() bool {
		if s = p.m.Scope("ConfigMap", "shop"); s == nil {
			return false
		}
		copied, _ := s.Copy("settings")
		return copied != nil
	})
	ended, reading := &atomic.Bool{}, &sync.WaitGroup{}
	for range 4 {
		reading.Go(func() {
			for last := uint64(0); !ended.Load(); {
				copied, _ := s.Copy("settings")
				version, err := strconv.ParseUint(copied.GetResourceVersion(), 10, 64)
				if err != nil || version < last {
					t.Errorf("after version %d of the copy, version %d was returned, %v", last, version, err)
					return
				}
				last = version
			}
		})
	}
	for n := range changes {
		value := strconv.Itoa(n + 1)
		p.put(value, nil)
		p.await("a change does not cross", func() bool { return p.value() == value })
	}
	ended.Store(true)
	reading.Wait()
}

// TestAPreviewUnpacksNothing checks that cached objects and copies that are packed stay packed when a preview compares
// them. Otherwise a rehearsal would unpack the whole cache.
func TestAPreviewUnpacksNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.here.Put(p.t, object("v1", "Service", "shop", "web"))
	var s *Scope
	p.await("it does not cross", func() bool {
		s = p.m.Scope("Service", "shop")
		return s != nil && s.CachedCopy("web") != nil
	})
	key, remote := s.Key("web"), queue.Key{Namespace: "shop-rome", Name: "web"}
	isPacked := func(i *informer.Informer, key queue.Key) bool {
		first := i.Peek(key) // Peek returns the same pointer again if the object is not packed
		return first != i.Peek(key)
	}
	arePacked := func() bool { return isPacked(s.objects, key) && isPacked(s.copies, remote) }
	p.await("they are not packed", func() bool {
		s.objects.Pack()
		s.copies.Pack()
		return arePacked()
	})
	kinds := p.m.PreviewKinds(func(kind string) bool { return kind == "Service" })
	require.Len(t, kinds, 1)
	compared, err := p.m.NewPreview(p.chains, rate.NewLimiter(rate.Inf, 1)).Compare(t.Context(), kinds[0], key, "")
	require.NoError(t, err)
	require.True(t, compared.HasCopy)
	require.NotNil(t, compared.Outgoing)
	require.True(t, arePacked(), "the preview has unpacked the object or its copy")
}

// TestOrphansAreRemoved checks that a copy is deleted if its object was deleted while no virtual kubelet was running,
// and that an object of another client is not deleted.
func TestOrphansAreRemoved(t *testing.T) {
	t.Parallel()
	foreign := object("v1", "ConfigMap", "shop-rome", "theirs")
	p := newPair(t, func(p *pair, _ *Options) {
		orphan := object("v1", "ConfigMap", "shop-rome", "settings")
		orphan.SetLabels(wire.ReflectionLabels("rome", "milan"))
		p.provider.Put(p.t, orphan)
		p.provider.Put(p.t, foreign)
	})
	p.await("the orphan stays", func() bool { return p.provider.Get(configMapKind, "shop-rome", "settings") == nil })
	assert.NotNil(t, p.provider.Get(configMapKind, "shop-rome", "theirs"))
}

// TestAStatusComesBackAlthoughItsUpdateIsRefused checks that the status of a copy is still reflected while the provider
// rejects updates to the copy.
func TestAStatusComesBackAlthoughItsUpdateIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.here.Put(p.t, object("v1", "Service", "shop", "web"))
	p.await("it does not cross", func() bool { return p.provider.Get(serviceKind, "shop-rome", "web") != nil })
	p.provider.OnRequest(func(r apistub.Request) *apistub.Failure {
		if r.Verb == "patch" && r.Resource == "services" {
			return apistub.Refuse(apierrors.NewForbidden(services.GroupResource(), "web", errors.New("exceeded quota: x")))
		}
		return nil
	})
	changed := p.here.Get(serviceKind, "shop", "web")
	changed.Object["spec"] = map[string]any{"type": "LoadBalancer"}
	p.here.Put(p.t, changed)
	copied := p.provider.Get(serviceKind, "shop-rome", "web")
	copied.Object["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "9.9.9.9"}}}}
	p.provider.Put(p.t, copied)
	p.await("the status does not come back", func() bool {
		return strings.Contains(fmt.Sprint(p.here.Get(serviceKind, "shop", "web").Object["status"]), "9.9.9.9")
	})
	p.awaitEvent("ask the provider to raise the quota")
}

// TestAnOutageParksObjects checks that objects wait without an Event while the provider does not respond, and are
// reflected when it responds again.
func TestAnOutageParksObjects(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.put("a", nil)
	p.await("it does not cross", func() bool { return p.value() == "a" })
	var down atomic.Bool
	down.Store(true)
	p.provider.OnRequest(func(r apistub.Request) *apistub.Failure {
		switch {
		case !down.Load():
			return nil
		case r.IsWrite():
			return apistub.Unavailable
		default:
			return apistub.Lost
		}
	})
	p.put("b", nil)
	p.await("the outage is not noticed", func() bool { return p.m.reflector("ConfigMap").evaluated.Load() > 1 })
	assert.Equal(t, "a", p.value())
	down.Store(false)
	p.await("the change does not cross after the outage", func() bool { return p.value() == "b" })
	assert.Empty(t, p.here.All(eventKind, "shop"), "the node reports an outage, and not each object")
}

// TestAFailedPluginChangesNothing checks that after a plugin has failed, the copy is unchanged and the object is
// retried.
func TestAFailedPluginChangesNothing(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	p := newPair(t, func(p *pair, _ *Options) {
		p.chains.run = func(host.Hook, *document.Document) (*host.Outcome, error) {
			if fails.Load() {
				return nil, &host.OutOfFuelError{}
			}
			return &host.Outcome{}, nil
		}
	})
	p.put("a", nil)
	p.await("it does not cross", func() bool { return p.value() == "a" })
	fails.Store(true)
	p.put("b", nil)
	p.awaitEvent(failure.PluginOutOfFuelReason)
	assert.Equal(t, "a", p.value())
	fails.Store(false)
	p.await("it is not tried again", func() bool { return p.value() == "b" })
}

// TestASkippedObjectHasNoCopy checks that an object that a plugin skips has no copy, and that an Event reports
// warnings, the skip and a panic. After the panic, the object must still be reflected.
func TestASkippedObjectHasNoCopy(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(p *pair, _ *Options) {
		p.chains.run = func(_ host.Hook, doc *document.Document) (*host.Outcome, error) {
			switch value, _ := doc.Root().View().Field("data").Field("value").Value().(string); value {
			case "panic":
				panic("a fault in this code")
			case "skip":
				return &host.Outcome{Skipped: true, Skipper: "strict", SkipReason: "not today"}, nil
			case "warn":
				return &host.Outcome{Warnings: []host.Warning{{Plugin: "strict", Message: "careful"}}}, nil
			}
			return &host.Outcome{}, nil
		}
	})
	p.put("warn", nil)
	p.await("it does not cross", func() bool { return p.value() == "warn" })
	p.awaitEvent("plugin strict: careful")
	p.put("skip", nil)
	p.await("the copy stays", func() bool { return p.value() == "" })
	p.awaitEvent("plugin strict: not today")
	p.put("panic", nil)
	p.awaitEvent("internal error: a fault in this code")
	p.put("a", nil)
	p.await("the object is stuck", func() bool { return p.value() == "a" })
}

// TestOnlyTheLeaderReflects checks that a virtual kubelet writes the objects that all virtual nodes of a provider share
// only while it is the leader.
func TestOnlyTheLeaderReflects(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.put("a", nil)
	p.await("it does not cross", func() bool { return p.value() == "a" })
	p.m.SetLeading(false)
	p.put("b", nil)
	p.await("the scope is still there", func() bool { return p.m.Scope("ConfigMap", "shop") == nil })
	assert.Equal(t, "a", p.value())
	p.m.SetLeading(true)
	p.await("the new leader does not reflect", func() bool { return p.value() == "b" })
}

// TestAStandbyWritesNothing checks that until Lead is called, a Manager that stands by only fills its caches and
// writes nothing.
func TestAStandbyWritesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(_ *pair, o *Options) { o.StandBy = true })
	p.put("a", nil)
	p.await("the caches are not filled", func() bool { return p.m.settings.VirtualNode.HasSynced() })
	assert.Empty(t, p.value())
	_, evaluated := p.m.Backlog()
	assert.Zero(t, evaluated)
	p.m.Lead()
	p.await("it does not take over", func() bool { return p.value() == "a" })
}

// TestKindsStartAndStop checks that a kind that is added at run time is reflected, that its copies stay when it is
// stopped, and that StartKind rejects a kind that is already reflected or belongs to a virtual node.
func TestKindsStartAndStop(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	kind := Kind{Name: "Secret", Source: secrets, Policy: DenyList, Workers: 1}
	p.await("it does not run", func() bool { return p.m.Ready() })
	require.NoError(t, p.m.StartKind(kind))
	p.here.Put(p.t, object("v1", "Secret", "shop", "key"))
	p.await("it does not cross", func() bool { return p.provider.Get(secretKind, "shop-rome", "key") != nil })
	p.m.StopKind("Secret")
	assert.NotNil(t, p.provider.Get(secretKind, "shop-rome", "key"), "the copies stay")
	assert.Nil(t, p.m.Handler("Secret"))
	require.ErrorContains(t, p.m.StartKind(p.m.options.Kinds[0]), "it is reflected already")
	kind.PerNode = true
	require.ErrorContains(t, p.m.StartKind(kind), "cannot be reflected")
}

// TestADeniedKindIsReported checks that a kind that the provider does not let this cluster list is reported on its
// objects, and that other kinds are not affected.
func TestADeniedKindIsReported(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	p := newPair(t, func(p *pair, o *Options) {
		o.Clock = clock
		p.provider.OnRequest(func(r apistub.Request) *apistub.Failure {
			if !r.IsWrite() && r.Resource == "services" {
				return apistub.Refuse(apierrors.NewForbidden(services.GroupResource(), "", errors.New("cannot list")))
			}
			return nil
		})
	})
	p.here.Put(p.t, object("v1", "Service", "shop", "web"))
	p.put("a", nil)
	p.await("other kinds are affected", func() bool { return p.value() == "a" })
	p.await("the denial is not reported", func() bool {
		clock.Step(time.Second)
		return p.hasEvent("does not grant services in namespace shop-rome")
	})
}

// TestWhatFollowsAnError checks for each class of errors when the object is retried.
func TestWhatFollowsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		after time.Duration // maximum delay of the retry, 0 if the object is not retried automatically
	}{
		"conflict":   {apierrors.NewConflict(configMaps.GroupResource(), "settings", errors.New("changed")), 5 * time.Millisecond},
		"refused":    {apierrors.NewForbidden(configMaps.GroupResource(), "settings", errors.New("no")), 5 * time.Millisecond},
		"throttled":  {apierrors.NewTooManyRequests("slow down", 4), 6*time.Second + time.Millisecond},
		"foreign":    {&failure.ForeignError{}, 30 * time.Second},
		"plugin":     {&host.OutOfFuelError{}, 5 * time.Second},
		"quarantine": {&oscillation.QuarantineError{Left: time.Minute}, time.Minute},
		"input":      {&failure.InputError{Problem: "no number"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clocktesting.NewFakeClock(time.Now())
			r := stoppedReflector(t, clock)
			r.failed(queue.Key{Namespace: "shop", Name: "settings"}, evaluation.Out, c.err)
			require.Zero(t, r.queue.Len())
			if c.after == 0 {
				clock.Step(time.Hour)
				assert.Zero(t, r.queue.Len())
				return
			}
			require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
			require.Eventually(t, func() bool {
				clock.Step(c.after)
				return r.queue.Len() == 1
			}, time.Minute, time.Millisecond)
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		clock := clocktesting.NewFakeClock(time.Now())
		r := stoppedReflector(t, clock)
		r.queue.Park(queue.Key{Namespace: "shop", Name: "settings"})
		clock.Step(time.Hour)
		assert.Zero(t, r.queue.Len(), "a parked object waits for the provider")
		r.m.providerChanged(false)
		r.m.providerChanged(true)
		require.Eventually(t, func() bool {
			clock.Step(time.Minute)
			return r.queue.Len() == 1
		}, time.Minute, time.Millisecond)
		class, reason := failure.Classify(breaker.ErrUnreachable)
		assert.Equal(t, failure.Unreachable, class)
		assert.Empty(t, reason, "the node reports it")
	})
}

// stoppedReflector returns the reflector of ConfigMaps of a Manager that does not run.
func stoppedReflector(t *testing.T, clock *clocktesting.FakeClock) *reflector {
	t.Helper()
	server := newCluster(t)
	m, err := New(Options{
		Local: server.Config(), Remote: server.Config(), LocalClusterID: "rome", RemoteClusterID: "milan", NodeName: "milan", TenantNamespace: "tenant",
		Registry: &chains{}, Kinds: []Kind{{Name: "ConfigMap", Source: configMaps, Policy: DenyList, Workers: 1}}, Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(m.all()[0].queue.ShutDown)
	return m.all()[0]
}

// TestNodesAndPatchesReconcile checks that a change to the VirtualNode appears in the context of plugins, and that the
// node counts as ours only after it was registered as the virtual node of this provider.
func TestNodesAndPatchesReconcile(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.put("a", nil)
	p.await("it does not cross", func() bool { return p.value() == "a" })
	assert.False(t, p.m.settings.NodeIsOurs())
	virtualNode := p.here.Get(offloadingv1beta1.GroupVersion.WithKind("VirtualNode"), "tenant", "milan")
	virtualNode.Object["spec"] = map[string]any{"offloadingPatch": map[string]any{"labelsNotReflected": []any{"a"}}, "ingressClasses": []any{map[string]any{"ingressClassName": "one"}, map[string]any{"ingressClassName": "two", "default": true}}}
	p.here.Put(p.t, virtualNode)
	p.await("the patch is not in the context", func() bool {
		root := p.m.Scope("ConfigMap", "shop").Context(host.Outgoing)
		return strings.Contains(fmt.Sprint(root["offloadingPatch"]), "labelsNotReflected") && root["ingressClass"] == "two"
	})
	node := object("v1", "Node", "", "milan")
	node.SetLabels(map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "milan"})
	p.here.Put(p.t, node)
	p.await("the node is not ours", p.m.settings.NodeIsOurs)
	assert.Equal(t, "milan", p.m.settings.ClusterOf("milan"))
	assert.True(t, p.m.settings.KnowsCluster("milan"))
	assert.Equal(t, "milan", p.m.settings.Node().GetName())
}
