// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package kindtest tests kinds between the stubs of two API servers, without a control plane.
//
// A Pair either runs, or is prepared: then a test fills the caches with Sync, calls one evaluation with Reconcile, and
// looks at its error and its writes. Nothing happens in the background, and the clock stands still.
package kindtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// Names of the two sides of a Pair.
const (
	Namespace       = "shop"      // offloaded namespace of this cluster
	RemoteNamespace = "shop-rome" // its remote namespace
	LocalCluster    = "rome"
	RemoteCluster   = "milan" // cluster ID of the provider, and name of its virtual node
	Tenant          = "tenant"
)

// Chain replaces the plugins of one hook.
type Chain func(doc *document.Document, env *host.Env) (*host.Outcome, error)

// Chains replaces the plugins of all kinds. A hook without a Chain leaves objects unchanged. The zero value is ready
// for use. Chains is safe for concurrent use.
type Chains struct{ outgoing, incoming atomic.Pointer[Chain] }

// Set replaces the plugins of a hook with chain.
func (c *Chains) Set(hook host.Hook, chain Chain) {
	if hook == host.Outgoing {
		c.outgoing.Store(&chain)
	} else {
		c.incoming.Store(&chain)
	}
}

// Run implements mutation.Runner.
func (c *Chains) Run(_ context.Context, _ string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error) {
	chain := c.outgoing.Load()
	if hook == host.Incoming {
		chain = c.incoming.Load()
	}
	if chain == nil {
		return &host.Outcome{}, nil
	}
	return (*chain)(doc, env)
}

// Subscribe implements mutation.Chains. The chains are never swapped, so nothing is called.
func (c *Chains) Subscribe(func(string, host.Hook, uint64)) (cancel func()) { return func() {} }

// Skip is a Chain whose plugin skips every object.
func Skip(*document.Document, *host.Env) (*host.Outcome, error) {
	return &host.Outcome{Skipped: true, Skipper: "strict", SkipReason: "not today"}, nil
}

// Fail is a Chain whose plugin runs out of fuel.
func Fail(*document.Document, *host.Env) (*host.Outcome, error) { return nil, &host.OutOfFuelError{} }

// Warn is a Chain whose plugin warns.
func Warn(*document.Document, *host.Env) (*host.Outcome, error) {
	return &host.Outcome{Warnings: []host.Warning{{Plugin: "strict", Message: "careful"}}}, nil
}

// Pair is a Manager between the stubs of two clusters.
type Pair struct {
	Here, Provider *apistub.Server
	Manager        *engine.Manager
	Clock          *clocktesting.FakeClock
	Events         apistub.Events // Events about objects of this cluster; used only if the Pair does not run
	Chains         Chains
	Worker         *evaluation.Worker

	t *testing.T
}

// New returns a Pair of clusters with the given kinds. edit changes the options of the Manager. It may be nil.
func New(t *testing.T, edit func(*engine.Options), kinds ...engine.Kind) *Pair {
	t.Helper()
	p := &Pair{t: t, Here: newCluster(t), Provider: newCluster(t)}
	p.Clock = clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
	p.Worker = evaluation.NewWorker(slog.New(slog.DiscardHandler))
	o := engine.Options{
		Local: p.Here.Config(), Remote: p.Provider.Config(), LocalClusterID: LocalCluster, RemoteClusterID: RemoteCluster,
		NodeName: RemoteCluster, TenantNamespace: Tenant,
		Registry: &p.Chains, Kinds: kinds, CallTimeout: 30 * time.Second, Clock: p.Clock, Log: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&o)
	}
	var err error
	p.Manager, err = engine.New(o)
	require.NoError(t, err)
	return p
}

func newCluster(t *testing.T) *apistub.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	server := apistub.New(t, scheme)
	for _, name := range []string{Namespace, RemoteNamespace, Tenant} {
		server.Put(t, Object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}"))
	}
	return server
}

// Prepare returns the ready scope of a kind in a Manager that does not run. The kinds in beside also get ready scopes
// for the same namespace.
func (p *Pair) Prepare(kind string, beside ...string) *engine.Scope {
	p.t.Helper()
	p.Manager.ReportTo(&p.Events)
	s := p.Manager.Prepare(p.t.Context(), kind, Namespace, RemoteNamespace)
	p.Manager.PrepareBeside(s, beside...)
	p.Manager.OwnNode()
	return s
}

// Reconcile evaluates one object of a kind.
func (p *Pair) Reconcile(kind, name string) error {
	p.t.Helper()
	return p.Manager.Evaluate(p.t.Context(), p.Worker, kind, Key(name))
}

// Run offloads the namespace, registers the virtual node, and runs the Manager until the test ends.
func (p *Pair) Run() {
	p.t.Helper()
	p.Here.Put(p.t, Object(p.t, `{apiVersion: offloading.liqo.io/v1beta1, kind: VirtualNode, metadata: {name: milan,
  namespace: tenant}}`),
		Object(p.t, `{apiVersion: v1, kind: Node, metadata: {name: milan,
  labels: {`+wire.TypeLabel+`: `+wire.VirtualNodeType+`, `+wire.RemoteClusterIDLabel+`: milan}}}`))
	p.Offload(map[string]string{Namespace: RemoteNamespace})
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Manager.Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		require.NoError(p.t, <-ended)
	})
}

// Offload writes a NamespaceMap with the remote namespace of each offloaded namespace.
func (p *Pair) Offload(namespaces map[string]string) {
	p.t.Helper()
	desired, current := map[string]any{}, map[string]any{}
	for local, remote := range namespaces {
		desired[local], current[local] = remote, map[string]any{"remoteNamespace": remote, "phase": "Accepted"}
	}
	m := Object(p.t, `{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceMap, metadata: {name: milan, namespace: tenant}}`)
	m.SetLabels(map[string]string{wire.RemoteClusterIDLabel: RemoteCluster, wire.RemoteIDLabel: RemoteCluster,
		wire.ReplicationLabel: "true"})
	m.Object["spec"], m.Object["status"] = map[string]any{"desiredMapping": desired}, map[string]any{"currentMapping": current}
	p.Here.Put(p.t, m)
}

// Await waits until done returns true. The fake clock advances quickly during the wait.
func (p *Pair) Await(problem string, done func() bool) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		if done() {
			return true
		}
		p.Clock.Step(50 * time.Millisecond)
		return false
	}, time.Minute, time.Millisecond, problem)
}

// HasEvent reports whether this cluster has an Event that contains all texts. It works only if the Pair runs.
func (p *Pair) HasEvent(texts ...string) bool {
	return slices.ContainsFunc(p.Here.All(schema.GroupVersionKind{Version: "v1", Kind: "Event"}, Namespace),
		func(event *unstructured.Unstructured) bool {
			text := fmt.Sprint(event.Object["reason"], " ", event.Object["message"])
			return !slices.ContainsFunc(texts, func(part string) bool { return !strings.Contains(text, part) })
		})
}

// Sync updates one object in a cache, as the watch of the server would. An object of the provider is stored only if it
// has the labels of a copy.
func (p *Pair) Sync(server *apistub.Server, cached *informer.Informer, kind schema.GroupVersionKind, namespace, name string) {
	p.t.Helper()
	object := server.Get(kind, namespace, name)
	if isOurs := labels.SelectorFromSet(wire.ReflectionLabels(LocalCluster,
		RemoteCluster)); object != nil && (server == p.Here || isOurs.Matches(labels.Set(object.GetLabels()))) {
		require.NoError(p.t, cached.Put(object))
	} else if known := cached.Get(namespace, name); known != nil {
		require.NoError(p.t, cached.Drop(known))
	}
}

// Queued removes all objects of a kind from the queue, and returns their sorted names.
func (p *Pair) Queued(kind string) (names []string) {
	p.t.Helper()
	q := p.Manager.Env(kind).Queue
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return names
}

// AwaitQueued checks that the queue contains no object of a kind, and that it contains one after the clock has advanced
// by the given delay.
func (p *Pair) AwaitQueued(kind string, after time.Duration) {
	p.t.Helper()
	q := p.Manager.Env(kind).Queue
	require.Eventually(p.t, p.Clock.HasWaiters, time.Minute, time.Millisecond)
	require.Zero(p.t, q.Len(), "the object is enqueued too early")
	require.Eventually(p.t, func() bool {
		p.Clock.Step(after)
		return q.Len() > 0
	}, time.Minute, time.Millisecond, "the object is not enqueued")
}

// Key returns the queue key of an object in the offloaded namespace.
func Key(name string) queue.Key { return queue.Key{Namespace: Namespace, Name: name} }

// Object parses a manifest.
func Object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, object.UnmarshalJSON(encoded))
	return object
}

// RequireClass checks the class of an evaluation's error in one direction. The class "" means that there must be no
// error.
func RequireClass(t *testing.T, want failure.Class, direction evaluation.Direction, err error) {
	t.Helper()
	found := evaluation.Directions(err)[direction]
	if want == "" {
		require.NoError(t, found)
		return
	}
	require.Error(t, found)
	class, _ := failure.Classify(found)
	require.Equal(t, want, class, found)
}

// RequireRetry checks that the error causes the evaluation to be repeated after the given time.
func RequireRetry(t *testing.T, want time.Duration, err error) {
	t.Helper()
	var later *failure.RetryAfter
	require.ErrorAs(t, err, &later)
	require.Equal(t, want, later.After)
}
