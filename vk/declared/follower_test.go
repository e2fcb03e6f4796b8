// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

// clusters contains two control planes, which are started by the first test. ReflectionPlugins are defined in one of
// them, and not in the other one.
var clusters struct {
	once          sync.Once
	err           error
	with, without *testenv.Cluster
	labs          atomic.Int32
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, cluster := range []*testenv.Cluster{clusters.with, clusters.without} {
		if cluster != nil {
			_ = cluster.Stop()
		}
	}
	os.Exit(code)
}

func startClusters(t *testing.T) {
	t.Helper()
	clusters.once.Do(func() {
		var started []*testenv.Cluster
		started, clusters.err = testenv.StartAll(context.Background(),
			testenv.Options{Name: "with", CRDPaths: []string{"../../api/crds"}, NoScheduler: true}, testenv.Options{Name: "without", NoScheduler: true})
		if clusters.err == nil {
			clusters.with, clusters.without = started[0], started[1]
		}
	})
	require.NoError(t, clusters.err)
}

const tenant = "liqo-tenant-milan"

// lab contains a control plane with the roles of the chart, and the chains of a virtual kubelet. Each test has its own
// virtual node.
type lab struct {
	*testing.T
	node     string
	cluster  *testenv.Cluster
	admin    client.Client
	kubelet  *rest.Config
	wasm     []byte
	registry *host.Registry
	chains   *source.Chains
	events   *record.FakeRecorder
	patches  atomic.Int32 // number of writes that the virtual kubelet has requested
}

// countPatches is a transport that counts write requests.
type countPatches struct {
	next http.RoundTripper
	lab  *lab
}

func (c countPatches) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		c.lab.patches.Add(1)
	}
	return c.next.RoundTrip(request)
}

func newLab(t *testing.T, grants bool) *lab {
	t.Helper()
	startClusters(t)
	l := &lab{T: t, node: fmt.Sprintf("node-%d", clusters.labs.Add(1)), cluster: clusters.with, events: record.NewFakeRecorder(100)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, plugins.AddToScheme} {
		l.must(add(scheme))
	}
	var err error
	l.admin, err = client.New(l.cluster.Config(), client.Options{Scheme: scheme})
	l.must(err)
	l.must(client.IgnoreAlreadyExists(l.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})))
	t.Cleanup(func() {
		for _, object := range []client.Object{&plugins.ReflectionPlugin{}, &plugins.PluginRevision{}, &plugins.PluginModule{}} {
			assert.NoError(t, l.admin.DeleteAllOf(context.Background(), object))
		}
	})
	if grants {
		l.grant()
	}
	l.kubelet, err = l.cluster.ConfigFor(l.node)
	l.must(err)
	l.kubelet.Wrap(func(next http.RoundTripper) http.RoundTripper { return countPatches{next, l} })
	l.wasm, err = os.ReadFile("../../examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
	l.must(err)
	l.newChains()
	return l
}

// grant grants the virtual kubelet its roles.
func (l *lab) grant() {
	l.Helper()
	kubelet := rbac.Kubelet{NodeName: l.node, TenantNamespace: tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.User(l.node), Plugins: true}
	for _, object := range kubelet.Objects() {
		l.must(client.IgnoreAlreadyExists(l.admin.Create(l.Context(), object.(client.Object))))
	}
}

// newChains replaces the chains with new ones, as in a new process.
func (l *lab) newChains() {
	l.Helper()
	h, err := host.New(l.Context(), host.NewConfig())
	l.must(err)
	l.registry = host.NewRegistry(nil)
	l.chains, err = source.NewChains(l.Context(), source.ChainsConfig{Host: h, Registry: l.registry, Kinds: []string{"Service", "ConfigMap"}})
	l.must(err)
	l.Cleanup(func() {
		assert.NoError(l, errors.Join(l.chains.Close(context.Background()), h.Close(context.Background())))
	})
}

func (l *lab) must(err error) {
	l.Helper()
	require.NoError(l, err)
}

// follower returns a new follower.
func (l *lab) follower(change ...func(*Options)) *Follower {
	l.Helper()
	options := Options{Local: l.kubelet, NodeName: l.node, RemoteClusterID: "milan-cluster", Chains: l.chains, Events: l.events,
		RetryFirst: 50 * time.Millisecond, RetryMost: 200 * time.Millisecond, PermissionGrace: 500 * time.Millisecond, RecheckEvery: 100 * time.Millisecond}
	for _, apply := range change {
		apply(&options)
	}
	f, err := NewFollower(options)
	l.must(err)
	l.Cleanup(f.Close)
	return f
}

// run runs a follower as the leader until the end of the test.
func (l *lab) run(f *Follower) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	l.Cleanup(func() { cancel(); assert.NoError(l, <-ended) })
	f.Lead()
}

// store stores the parts of the module.
func (l *lab) store() {
	l.Helper()
	parts, err := pluginrevision.SplitModule(l.wasm, l.digest())
	l.must(err)
	for _, part := range parts {
		l.must(l.admin.Create(l.Context(), part))
	}
}

func (l *lab) digest() string {
	sum := sha256.Sum256(l.wasm)
	return hex.EncodeToString(sum[:])
}

// module returns the only part of the module.
func (l *lab) module() *plugins.PluginModule {
	return &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: plugins.PluginModuleName(l.digest(), 0)}}
}

// declare creates a plugin with an active revision, NAME-1, that removes the label one.example.com/x of Services.
func (l *lab) declare(name string, change func(*plugins.PluginRevisionSpec)) *plugins.ReflectionPlugin {
	l.Helper()
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Kinds = []string{"Service"}
	p.Spec.Source.ConfigMap = &plugins.ConfigMapSource{Name: name, Key: "m.wasm"}
	l.must(l.admin.Create(l.Context(), p))
	l.activate(p, 1, change)
	return p
}

// activate creates a revision of a plugin, and makes it the active one.
func (l *lab) activate(p *plugins.ReflectionPlugin, number int64, change func(*plugins.PluginRevisionSpec)) {
	l.Helper()
	l.create(p, number, change)
	before := p.DeepCopy()
	p.Status.ActiveRevision = fmt.Sprintf("%s-%d", p.Name, number)
	l.must(l.admin.Status().Patch(l.Context(), p, client.MergeFrom(before)))
}

// create creates a revision of a plugin.
func (l *lab) create(p *plugins.ReflectionPlugin, number int64, change func(*plugins.PluginRevisionSpec)) {
	l.Helper()
	isController := true
	r := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", p.Name, number), OwnerReferences: []metav1.OwnerReference{{
		APIVersion: plugins.GroupVersion.String(), Kind: plugins.ReflectionPluginKind, Name: p.Name, UID: p.UID, Controller: &isController,
	}}}}
	r.Spec = plugins.PluginRevisionSpec{Plugin: p.Name, Number: number, SHA256: l.digest(), Size: int64(len(l.wasm)), Parts: 1, Source: "configMap/" + p.Name, PolicyName: "configMap/" + p.Name}
	r.Spec.Manifest = plugins.PluginManifest{Version: "1.0.0", Kinds: []string{"*"}, Hooks: []string{"outgoing"}}
	r.Spec.Kinds, r.Spec.FailurePolicy = []string{"Service"}, plugins.FailPluginPolicy
	r.Spec.Config = &runtime.RawExtension{Raw: []byte(`{"labels":["one.example.com/*"]}`)}
	if change != nil {
		change(&r.Spec)
	}
	l.must(l.admin.Create(l.Context(), r))
}

// cross runs the outgoing chain on an object in the namespace shop with the labels one.example.com/x and app. It
// reports whether the first label is still there.
func (l *lab) cross(kind string) (isLeft bool, err error) {
	doc := document.New()
	doc.Reset(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "web", "labels": map[string]any{"one.example.com/x": "1", "app": "web"}}})
	if _, err := l.registry.Run(l.Context(), kind, host.Outgoing, doc, &host.Env{Domain: "shop", Namespace: "shop"}); err != nil {
		return false, err
	}
	return doc.Root().View().Field("metadata").Field("labels").Field("one.example.com/x").Exists(), nil
}

// eventually waits until check returns no error.
func (l *lab) eventually(what string, check func() error) {
	l.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	l.Fatalf("%s: %v", what, err)
}

// expect waits until Services are mutated, reflected unchanged, or held.
func (l *lab) expect(want string) {
	l.Helper()
	l.eventually("Services are "+want, func() error {
		got := "mutated"
		isLeft, err := l.cross("Service")
		var held *host.HeldError
		switch {
		case errors.As(err, &held):
			got = "held"
		case err != nil:
			got = err.Error()
		case isLeft:
			got = "left"
		}
		if got != want {
			return fmt.Errorf("they are %s", got)
		}
		return nil
	})
}

// entry waits until a revision has an entry with the given state and reason. If both are empty, it waits until there is
// no entry.
func (l *lab) entry(revision string, state plugins.PluginState, reason string) (message string) {
	l.Helper()
	l.eventually("the entry of "+revision, func() error {
		r := &plugins.PluginRevision{}
		if err := l.admin.Get(l.Context(), client.ObjectKey{Name: revision}, r); err != nil {
			return err
		}
		entries := r.Status.VirtualNodes
		if state == "" && len(entries) == 0 {
			return nil
		}
		if len(entries) != 1 || entries[0].Name != l.node || entries[0].State != state || entries[0].Reason != reason {
			return fmt.Errorf("it is %+v", entries)
		}
		message = entries[0].Message
		return nil
	})
	return message
}

// TestBrokenModulesHold checks that a module that is missing or was altered holds the kinds of its plugin from the
// start, and no other kinds, until the module is correct again.
func TestBrokenModulesHold(t *testing.T) {
	l := newLab(t, true)
	l.declare("strip", func(s *plugins.PluginRevisionSpec) { s.Kinds = []string{"Service", "Ingress.networking.k8s.io"} })
	f := l.follower()
	l.must(f.ReadPlugins(t.Context()))
	l.expect("held")
	isLeft, err := l.cross("ConfigMap")
	l.must(err)
	assert.True(t, isLeft, "another kind is concerned")
	assert.Equal(t, []string{"Service"}, f.Statuses()[0].Held)
	l.run(f)
	message := l.entry("strip-1", plugins.FailedPlugin, "ModuleMissing")
	assert.Contains(t, message, "nothing is written or deleted for objects of Service that it selects")
	assert.Contains(t, <-l.events.Events, "Warning ModuleMissing revision strip-1 on virtual node "+l.node)

	l.store()
	l.expect("mutated")
	l.entry("strip-1", plugins.ActivePlugin, "Running")
	assert.Contains(t, <-l.events.Events, "Normal Running")

	// The module of a running plugin is not read again, and a revision that cannot be read does not stop the plugin.
	l.must(l.admin.Delete(t.Context(), l.module()))
	altered := l.module()
	altered.Spec = plugins.PluginModuleSpec{SHA256: l.digest(), Parts: 1, Data: []byte("altered")}
	l.must(l.admin.Create(t.Context(), altered))
	p := &plugins.ReflectionPlugin{}
	l.must(l.admin.Get(t.Context(), client.ObjectKey{Name: "strip"}, p))
	wasm := l.wasm
	l.wasm = append(append([]byte{}, wasm...), 0, 1, 0) // the module has another digest and is not stored
	l.activate(p, 2, nil)
	assert.Contains(t, l.entry("strip-2", plugins.FailedPlugin, "ModuleMissing"), "version 1.0.0, which ran before, runs on")
	failed := &plugins.PluginRevision{}
	l.must(l.admin.Get(t.Context(), client.ObjectKey{Name: "strip-2"}, failed))
	assert.Equal(t, "strip-1", failed.Status.VirtualNodes[0].RunningRevision)
	l.entry("strip-1", "", "")
	l.expect("mutated")
	assert.Equal(t, "strip-1", f.Statuses()[0].Revision, "what runs")

	// A new process has no earlier revision.
	l.wasm = wasm
	l.activate(p, 3, nil)
	l.newChains()
	second := l.follower()
	l.must(second.ReadPlugins(t.Context()))
	l.expect("held")
	assert.Contains(t, second.Statuses()[0].Err.Error(), "PluginModule "+altered.Name)
	_, reason := classifyError(second.Statuses()[0].Err)
	assert.Equal(t, DigestMismatchReason, reason)
}

// TestIgnoredFailureDoesNotHold checks that objects are reflected without the plugin if the failure policy is Ignore.
func TestIgnoredFailureDoesNotHold(t *testing.T) {
	l := newLab(t, true)
	l.declare("strip", func(s *plugins.PluginRevisionSpec) { s.FailurePolicy = plugins.IgnorePluginPolicy })
	f := l.follower()
	l.must(f.ReadPlugins(t.Context()))
	l.expect("left")
	l.run(f)
	assert.Contains(t, l.entry("strip-1", plugins.FailedPlugin, "ModuleMissing"), "objects are reflected without it")
	l.store()
	l.expect("mutated")
}

// TestStartWithoutPermission checks that the virtual kubelet waits if declared plugins are defined and it is not
// allowed to read them. This is tested in a new process, and in a process that could read them before.
func TestStartWithoutPermission(t *testing.T) {
	l := newLab(t, false)
	l.store()
	l.declare("strip", nil)
	unavailable := make(chan string, 10)
	wereRead := &atomic.Bool{}
	f := l.follower(func(o *Options) {
		o.WereRead, o.Unavailable = wereRead, func(reason string) { unavailable <- reason }
	})
	first := make(chan error, 1)
	go func() { first <- f.ReadPlugins(t.Context()) }()
	reason := <-unavailable
	assert.Contains(t, reason, "forbidden")
	assert.Contains(t, reason, "nothing is reflected")
	assert.Contains(t, reason, "get, list and watch reflectionplugins and pluginrevisions")
	select {
	case err := <-first:
		t.Fatalf("it has not waited: %v", err)
	case <-time.After(4 * f.options.PermissionGrace):
	}
	l.grant()
	l.must(<-first)
	assert.Empty(t, unavailable)
	l.expect("mutated")
	l.run(f)
	l.entry("strip-1", plugins.ActivePlugin, "Running")
	assert.True(t, wereRead.Load())

	role := &rbacv1.ClusterRoleBinding{}
	l.must(l.admin.Get(t.Context(), client.ObjectKey{Name: "liqo-node-" + l.node}, role))
	l.must(l.admin.Delete(t.Context(), role.DeepCopy()))
	var waits atomic.Pointer[string]
	second := l.follower(func(o *Options) {
		o.WereRead, o.Waiting = wereRead, func(reason string) { waits.Store(&reason) }
	})
	l.newChains()
	second.options.Chains = l.chains
	l.eventually("the permission to be gone", func() error {
		if _, err := second.readActive(t.Context()); err == nil {
			return errors.New("it is still there")
		}
		return nil
	})
	read := make(chan error, 1)
	go func() { read <- second.ReadPlugins(t.Context()) }()
	l.eventually("the reason of waiting", func() error {
		if waits.Load() == nil {
			return errors.New("none")
		}
		return nil
	})
	assert.Contains(t, *waits.Load(), "the declared plugins are not read yet")
	select {
	case err := <-read:
		t.Fatalf("it has not waited: %v", err)
	case <-time.After(4 * second.options.PermissionGrace):
	}
	role.ResourceVersion, role.UID = "", ""
	l.must(l.admin.Create(t.Context(), role))
	l.must(<-read)
	l.expect("mutated")
}

// TestStartWithoutDefinitions checks that ReadPlugins does not wait if declared plugins are not defined.
func TestStartWithoutDefinitions(t *testing.T) {
	startClusters(t)
	f, err := NewFollower(Options{Local: clusters.without.Config(), NodeName: "milan", RemoteClusterID: "milan-cluster", Events: record.NewFakeRecorder(1), PermissionGrace: time.Hour})
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.ReadPlugins(t.Context()))
	assert.True(t, f.unavailable)
}

// hiddenRevisions is a transport that simulates an API server with a definition of ReflectionPlugins but not of
// PluginRevisions.
type hiddenRevisions struct {
	next   http.RoundTripper
	hidden *atomic.Bool
}

func (h hiddenRevisions) RoundTrip(request *http.Request) (*http.Response, error) {
	if h.hidden.Load() && strings.HasSuffix(request.URL.Path, "/pluginrevisions") {
		request = request.Clone(request.Context())
		request.URL.Path = strings.TrimSuffix(request.URL.Path, "pluginrevisions") + "undefined"
	}
	return h.next.RoundTrip(request)
}

// TestStartWithoutRevisions checks that ReadPlugins waits if plugins are active but PluginRevisions are not defined, so
// that nothing is reflected without the plugins. If no plugin is active, it does not wait.
func TestStartWithoutRevisions(t *testing.T) {
	l := newLab(t, true)
	hidden := &atomic.Bool{}
	hidden.Store(true)
	config := l.cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return hiddenRevisions{next, hidden} })
	waiting := make(chan string, 10)
	options := Options{Local: config, NodeName: l.node, RemoteClusterID: "milan-cluster", Chains: l.chains, Events: l.events,
		RetryFirst: 10 * time.Millisecond, Waiting: func(reason string) { waiting <- reason }}
	read := func() (*Follower, chan error) {
		f, err := NewFollower(options)
		l.must(err)
		t.Cleanup(f.Close)
		done := make(chan error, 1)
		go func() { done <- f.ReadPlugins(t.Context()) }()
		return f, done
	}
	f, done := read()
	l.must(<-done)
	assert.True(t, f.unavailable)

	l.store()
	l.declare("strip", nil)
	f, done = read()
	select {
	case reason := <-waiting:
		assert.Contains(t, reason, "pluginrevisions.plugins.refract.io")
	case err := <-done:
		t.Fatalf("reflection begins without the active plugin: %v", err)
	}
	hidden.Store(false)
	l.must(<-done)
	assert.False(t, f.unavailable)
	l.expect("mutated")
}

// TestStartWithoutPermissionAndDefinitions checks a virtual kubelet that is not allowed to read declared plugins, as
// with the roles of Liqo. If declared plugins are not defined, it starts without an Event. If it is not allowed to
// discover this either, it starts with an Event.
func TestStartWithoutPermissionAndDefinitions(t *testing.T) {
	startClusters(t)
	config, err := clusters.without.ConfigFor("milan")
	require.NoError(t, err)
	hidden := rest.CopyConfig(config)
	hidden.Wrap(func(next http.RoundTripper) http.RoundTripper { return hiddenGroups{next} })
	for name, c := range map[string]struct {
		config *rest.Config
		events int
	}{"discoverable": {config, 0}, "hidden": {hidden, 1}} {
		t.Run(name, func(t *testing.T) {
			unavailable := make(chan string, 10)
			f, err := NewFollower(Options{Local: c.config, NodeName: "milan", RemoteClusterID: "milan-cluster",
				Events: record.NewFakeRecorder(1), PermissionGrace: time.Millisecond,
				RetryFirst: 10 * time.Millisecond, Unavailable: func(reason string) { unavailable <- reason }})
			require.NoError(t, err)
			defer f.Close()
			require.NoError(t, f.ReadPlugins(t.Context()))
			assert.True(t, f.unavailable)
			assert.Len(t, unavailable, c.events)
		})
	}
}

// hiddenGroups is a transport that requests API groups as a user without the role system:discovery would.
type hiddenGroups struct{ next http.RoundTripper }

func (h hiddenGroups) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Path == "/apis/plugins.refract.io/v1alpha1" {
		request = request.Clone(request.Context())
		request.URL.Path = "/metrics" // this user may not read this path
	}
	return h.next.RoundTrip(request)
}

// TestNamespaceSelectors checks that labels of namespaces are watched as soon as a plugin selects by them. An object in
// a namespace with unknown labels is not evaluated.
func TestNamespaceSelectors(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", nil)
	f := l.follower()
	l.must(f.ReadPlugins(t.Context()))
	changed := make(chan string, 1000)
	f.Namespaces().Subscribe(func(namespace string) { changed <- namespace })
	l.run(f)
	l.entry("strip-1", plugins.ActivePlugin, "Running")
	f.namespaces.mu.Lock()
	assert.Nil(t, f.namespaces.informer, "namespaces are watched although no plugin selects by their labels")
	f.namespaces.mu.Unlock()

	l.activate(p, 2, func(s *plugins.PluginRevisionSpec) {
		s.Match = &plugins.PluginMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}
	})
	l.entry("strip-2", plugins.ActivePlugin, "Running")
	_, err := l.cross("Service")
	var unknown *host.SelectorError
	require.ErrorAs(t, err, &unknown)
	assert.Contains(t, err.Error(), "the labels of namespace shop are not known yet")

	await := func() {
		t.Helper()
		for end := time.After(30 * time.Second); ; {
			select {
			case namespace := <-changed:
				if namespace == "shop" {
					return
				}
			case <-end:
				t.Fatal("the objects of the namespace are not evaluated again")
			}
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"tier": "web"}}}
	l.must(l.admin.Create(t.Context(), namespace))
	await()
	l.expect("mutated")
	label := func(key, value string) {
		t.Helper()
		before := namespace.DeepCopy()
		namespace.Labels[key] = value
		l.must(l.admin.Patch(t.Context(), namespace, client.MergeFrom(before)))
	}
	label("other", "label")
	label("tier", "db")
	await()
	l.expect("left")
	assert.Empty(t, changed, "a label that no plugin selects by causes evaluations")
	label("tier", "web")
	await()
	l.expect("mutated")
}

// TestOtherSelectors checks that plugins for other providers do not run and have no entry, and that objects are
// selected by their labels.
func TestOtherSelectors(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", func(s *plugins.PluginRevisionSpec) { s.Match = &plugins.PluginMatch{Providers: []string{"turin"}} })
	f := l.follower()
	l.must(f.ReadPlugins(t.Context()))
	l.expect("left")
	l.run(f)
	for n, c := range []struct {
		match plugins.PluginMatch
		want  string
	}{
		{plugins.PluginMatch{Providers: []string{"turin", "milan-cluster"}}, "mutated"},
		{plugins.PluginMatch{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}, "left"},
		{plugins.PluginMatch{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}, "mutated"},
		{plugins.PluginMatch{ObjectSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}, "mutated"},
	} {
		l.activate(p, int64(n+2), func(s *plugins.PluginRevisionSpec) { s.Match = &c.match })
		l.expect(c.want)
	}
	l.entry("strip-1", "", "")
	l.entry("strip-5", plugins.ActivePlugin, "Running")
}

// TestWrongRevisionsHold checks that the kinds of a ReflectionPlugin are held if its active revision belongs to another
// plugin or does not exist.
func TestWrongRevisionsHold(t *testing.T) {
	l := newLab(t, true)
	l.store()
	l.declare("strip", nil)
	thief := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "thief"}}
	thief.Spec.Kinds = []string{"ConfigMap"}
	thief.Spec.Source.ConfigMap = &plugins.ConfigMapSource{Name: "thief", Key: "m.wasm"}
	l.must(l.admin.Create(t.Context(), thief))
	f := l.follower()
	for _, revision := range []string{"strip-1", "gone-1"} {
		thief.Status.ActiveRevision = revision
		l.must(l.admin.Status().Update(t.Context(), thief))
		l.must(f.ReadPlugins(t.Context()))
		l.expect("mutated")
		_, err := l.cross("ConfigMap")
		var held *host.HeldError
		require.ErrorAs(t, err, &held, revision)
		assert.Contains(t, held.Reason, "PluginRevision "+revision)
	}
	l.run(f)
	l.entry("strip-1", plugins.ActivePlugin, "Running")
}

// TestStatesAreWrittenOnce checks that only the leader writes states, and only if they have changed. A state that
// another component reports is kept until it is withdrawn.
func TestStatesAreWrittenOnce(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", nil)
	l.activate(p, 2, nil)
	f := l.follower()
	l.must(f.ReadPlugins(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	quiet := func() {
		t.Helper()
		before := l.patches.Load()
		for range 20 {
			f.refreshSoon()
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the absence of writes cannot be awaited
		}
		assert.Equal(t, before, l.patches.Load())
	}
	quiet() // this follower is not the leader
	f.Lead()
	l.entry("strip-2", plugins.ActivePlugin, "Running")
	quiet()
	assert.EqualValues(t, 1, l.patches.Load())
	f.ReportState("strip-1", plugins.VirtualNodePlugin{State: plugins.StandbyPlugin, Reason: RehearsedReason})
	l.entry("strip-1", plugins.StandbyPlugin, RehearsedReason)
	quiet()
	f.WithdrawState("strip-1")
	l.entry("strip-1", "", "")
	cancel()
	l.must(<-ended)

	// The next leader writes nothing that already exists.
	before := l.patches.Load()
	next := l.follower()
	l.newChains()
	next.options.Chains = l.chains
	l.must(next.ReadPlugins(t.Context()))
	l.run(next)
	l.expect("mutated")
	f = next
	quiet()
	assert.Equal(t, before, l.patches.Load())
}

// TestDeniedStatesAreReported checks that an admission policy that denies the state of a revision is reported by one
// Event on the revision, and that the state is written once the policy allows it.
func TestDeniedStatesAreReported(t *testing.T) {
	l := newLab(t, true)
	l.store()
	l.declare("strip", nil)
	const denying = "denies-states"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: denying}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{plugins.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"pluginrevisions/status"}},
		}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "ours", Expression: fmt.Sprintf("request.userInfo.username == %q", l.node)}},
		Validations:     []admissionv1.Validation{{Expression: "false"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: denying},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: denying, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	for _, object := range []client.Object{policy, binding} {
		l.must(l.admin.Create(t.Context(), object))
		t.Cleanup(func() { _ = l.admin.Delete(context.Background(), object) })
	}
	kubelet, err := client.New(l.kubelet, client.Options{Scheme: l.admin.Scheme()})
	l.must(err)
	l.eventually("the policy to be in force", func() error {
		revision := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: "strip-1"}}
		if err := kubelet.Status().Patch(t.Context(), revision, client.RawPatch(types.MergePatchType, []byte(`{"status":{"virtualNodes":[]}}`)), client.DryRunAll); admission.DenyingPolicy(err) != denying {
			return fmt.Errorf("the attempt ends with %w", err)
		}
		return nil
	})
	f := l.follower()
	l.must(f.ReadPlugins(t.Context()))
	l.run(f)
	denials := func() (found []string) {
		for {
			select {
			case event := <-l.events.Events:
				if strings.HasPrefix(event, "Warning "+admission.DeniedReason) {
					found = append(found, event)
				}
			default:
				return found
			}
		}
	}
	var said []string
	l.eventually("an Event about the denial", func() error {
		if said = append(said, denials()...); len(said) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	attempts := l.patches.Load()
	l.eventually("another attempt", func() error {
		if l.patches.Load() < attempts+2 {
			return errors.New("there is none")
		}
		return nil
	})
	said = append(said, denials()...)
	require.Len(t, said, 1)
	require.Contains(t, said[0], "virtual node "+l.node+": ValidatingAdmissionPolicy "+denying+" denied a request")
	l.must(l.admin.Delete(t.Context(), binding))
	l.entry("strip-1", plugins.ActivePlugin, "Running")
}
