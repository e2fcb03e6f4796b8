// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/crds"
	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/reflection"
)

var reflectedResources = pluginsv1alpha1.ReflectedResourceGVR

// clusters contains two control planes, which all tests share. The first test starts them. Each test has its own
// virtual node, users, roles, remote namespace and resources.
var clusters struct {
	once             sync.Once
	err              error
	consumer, remote *testenv.Cluster
	labs             atomic.Int32
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, cluster := range []*testenv.Cluster{clusters.consumer, clusters.remote} {
		if cluster != nil {
			_ = cluster.Stop()
		}
	}
	os.Exit(code)
}

func startClusters() {
	dir, err := os.MkdirTemp("", "refract-crds-")
	if err != nil {
		clusters.err = err
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if clusters.err = os.CopyFS(dir, crds.FS()); clusters.err != nil {
		return
	}
	started, err := testenv.StartAll(context.Background(),
		testenv.Options{Name: "rome", CRDPaths: []string{dir}, NoScheduler: true},
		testenv.Options{Name: "milan", CRDPaths: []string{dir}, NoScheduler: true})
	if clusters.err = err; err == nil {
		clusters.consumer, clusters.remote = started[0], started[1]
	}
}

// lab contains a Follower between the two clusters. The Follower only has the permissions of the chart's roles.
type lab struct {
	*testing.T
	local, remote         *cluster
	node, tenant          string
	kubelet               rbac.Kubelet
	consumer              rbac.Consumer
	engine                *recorder
	shop, remoteNamespace string // an offloaded namespace and its remote namespace
	options               Options
	follower              *Follower
	cancel                func()
}

// cluster is one of the two clusters, with the clients of an administrator.
type cluster struct {
	*testenv.Cluster
	dynamic dynamic.Interface
	core    kubernetes.Interface
}

func newLab(t *testing.T) *lab {
	t.Helper()
	testenv.NeedControlPlane(t)
	clusters.once.Do(startClusters)
	if clusters.err != nil {
		t.Fatal(clusters.err)
	}
	n := clusters.labs.Add(1)
	l := &lab{T: t, node: fmt.Sprintf("node-%d", n), shop: fmt.Sprintf("node-%d-shop", n), remoteNamespace: fmt.Sprintf("shop-%d", n)}
	l.engine = &recorder{kinds: map[string]reflection.Kind{}, remoteNamespaces: map[string]string{l.shop: l.remoteNamespace}}
	l.local, l.remote = l.side(clusters.consumer), l.side(clusters.remote)
	l.tenant = fmt.Sprintf("tenant-%d", n)
	l.register(l.node, true)
	l.namespace(l.local, l.tenant)
	l.namespace(l.local, l.shop)
	l.namespace(l.remote, l.remoteNamespace)
	prefix := l.node + "-refract"
	l.kubelet = rbac.Kubelet{Prefix: prefix, NodeName: l.node, TenantNamespace: l.tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.User("kubelet-" + l.node)}
	l.consumer = rbac.Consumer{Prefix: l.node + "-milan", Subject: rbac.User("rome-" + l.node)}
	l.install(l.local, append(l.kubelet.Objects(), l.kubelet.ExtendedNamespace(l.shop))...)
	l.install(l.remote, append(l.consumer.Objects(), l.consumer.RemoteNamespace(l.remoteNamespace))...)
	l.options = Options{
		Local: must(l.local.ConfigFor("kubelet-" + l.node))(t), Remote: must(l.remote.ConfigFor("rome-" + l.node))(t),
		LocalClusterID: "rome", RemoteClusterID: "milan", NodeName: l.node, Engine: l.engine, RolePrefix: prefix,
		RetryFirst: 50 * time.Millisecond, RetryMost: 200 * time.Millisecond, CallTimeout: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return l
}

func (l *lab) side(c *testenv.Cluster) *cluster {
	return &cluster{Cluster: c, dynamic: must(dynamic.NewForConfig(c.Config()))(l.T), core: must(kubernetes.NewForConfig(c.Config()))(l.T)}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

// register creates a Node for a virtual node, so that the virtual node exists.
func (l *lab) register(name string, labelled bool) {
	l.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if labelled {
		node.Labels = map[string]string{wire.TypeLabel: wire.VirtualNodeType}
	}
	must(l.local.core.CoreV1().Nodes().Create(l.Context(), node, metav1.CreateOptions{}))(l.T)
}

func (l *lab) namespace(c *cluster, name string) {
	l.Helper()
	must(c.core.CoreV1().Namespaces().Create(l.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(l.T)
}

// another creates a namespace and its remote namespace. The virtual kubelet has no permissions in either of them.
func (l *lab) another(name string) (local, remoteNamespace string) {
	l.Helper()
	local, remoteNamespace = l.node+"-"+name, l.remoteNamespace+"-"+name
	l.namespace(l.local, local)
	l.namespace(l.remote, remoteNamespace)
	return local, remoteNamespace
}

func (l *lab) install(c *cluster, objects ...rbac.Object) {
	l.Helper()
	require.NoError(l, rbac.Install(l.Context(), c.core, objects...))
}

// start starts a Follower, which stops at the end of the test or when stop is called.
func (l *lab) start() *lab {
	l.Helper()
	l.follower = must(New(l.options))(l.T)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = l.follower.Run(ctx) }()
	l.cancel = sync.OnceFunc(func() { cancel(); <-ended })
	l.Cleanup(l.cancel)
	return l
}

// create creates an object from YAML.
func (l *lab) create(c *cluster, gvr schema.GroupVersionResource, namespace, text string) *unstructured.Unstructured {
	l.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(l, yaml.Unmarshal([]byte(text), &object.Object))
	return must(c.dynamic.Resource(gvr).Namespace(namespace).Create(l.Context(), object, metav1.CreateOptions{}))(l.T)
}

// reflect creates a ReflectedResource, which is deleted after the test.
func (l *lab) reflect(name, spec string) {
	l.Helper()
	l.create(l.local, reflectedResources, "", fmt.Sprintf(
		"{apiVersion: plugins.refract.io/v1alpha1, kind: ReflectedResource, metadata: {name: %s}, spec: %s}", name, spec))
	l.Cleanup(func() {
		_ = l.local.dynamic.Resource(reflectedResources).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// change patches the spec of a ReflectedResource.
func (l *lab) change(name, spec string) {
	l.Helper()
	body := must(yaml.YAMLToJSON([]byte("spec: " + spec)))(l.T)
	must(l.local.dynamic.Resource(reflectedResources).Patch(l.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}))(l.T)
}

// define installs a CustomResourceDefinition, which is removed after the test. Every test uses its own API group,
// because the removal takes a long time.
func (l *lab) define(c *cluster, text string) {
	l.Helper()
	created := l.create(c, definitionsResource, "", text)
	l.Cleanup(func() { l.undefine(c, created.GetName()) })
}

// grant grants the virtual kubelet's users all permissions that a test needs for the resources of an API group.
func (l *lab) grant(group string) {
	l.Helper()
	for c, role := range map[*cluster]string{l.local: rbac.VirtualKubeletExtended().Named(l.kubelet.Prefix), l.remote: rbac.VirtualKubeletRemote().Named(l.consumer.Prefix)} {
		l.allow(c, role, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"*"}})
	}
}

func (l *lab) allow(c *cluster, name string, rules ...rbacv1.PolicyRule) {
	l.Helper()
	role := must(c.core.RbacV1().ClusterRoles().Get(l.Context(), name, metav1.GetOptions{}))(l.T)
	role.Rules = append(role.Rules, rules...)
	must(c.core.RbacV1().ClusterRoles().Update(l.Context(), role, metav1.UpdateOptions{}))(l.T)
}

func (l *lab) undefine(c *cluster, name string) {
	l.Helper()
	_ = c.dynamic.Resource(definitionsResource).Delete(context.Background(), name, metav1.DeleteOptions{})
}

// widgets returns the definition of a small resource in an API group.
func widgets(group, scope string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: %[2]s
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`, group, scope)
}

// get returns a ReflectedResource and its entry for our virtual node.
func (l *lab) get(name string) (*unstructured.Unstructured, *pluginsv1alpha1.VirtualNodeReflection) {
	l.Helper()
	object := must(l.local.dynamic.Resource(reflectedResources).Get(l.Context(), name, metav1.GetOptions{}))(l.T)
	typed := &pluginsv1alpha1.ReflectedResource{}
	require.NoError(l, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
	for _, entry := range typed.Status.VirtualNodes {
		if entry.Name == l.node {
			return object, &entry
		}
	}
	return object, nil
}

// condition waits until the condition Ready has the given reason, refers to the current spec, and contains all of the
// given words.
func (l *lab) condition(name, reason string, words ...string) metav1.Condition {
	l.Helper()
	var found metav1.Condition
	l.eventually(func() error {
		object, entry := l.get(name)
		if entry == nil || len(entry.Conditions) != 1 {
			return fmt.Errorf("%s has the entry %+v", name, entry)
		}
		found = entry.Conditions[0]
		if found.Reason != reason || found.ObservedGeneration != object.GetGeneration() || (found.Status == metav1.ConditionTrue) != (reason == pluginsv1alpha1.ReflectingReason) {
			return fmt.Errorf("%s is %s %s of generation %d, want %s of %d: %s", name, found.Status, found.Reason, found.ObservedGeneration, reason, object.GetGeneration(), found.Message)
		}
		for _, word := range words {
			if !strings.Contains(found.Message, word) {
				return fmt.Errorf("%s says %q, want a word of %q", name, found.Message, word)
			}
		}
		return nil
	})
	return found
}

var advice = regexp.MustCompile(`(?m)^(.*) does not let this virtual kubelet .*\. Add to (?:ClusterRole (\S+) here|the ClusterRole there that is bound to rome in .*, its name ends in (-\S+)):\n((?:[- ] ?.*\n)+)`)

// follow follows the instructions in the message of a condition exactly.
func (l *lab) follow(message string) {
	l.Helper()
	found := advice.FindAllStringSubmatch(message, -1)
	if len(found) == 0 {
		l.Fatalf("no rule can be read from the message %q", message)
	}
	for _, match := range found {
		c, role := l.local, match[2]
		if strings.HasPrefix(match[1], "cluster milan") {
			c, role = l.remote, l.consumer.Prefix+match[3]
		}
		var rules []rbacv1.PolicyRule
		require.NoErrorf(l, yaml.UnmarshalStrict([]byte(match[4]), &rules), "%q is no list of rules", match[4])
		l.allow(c, role, rules...)
	}
}

// eventually waits until check returns nil. After a timeout, the test fails with the last error of check.
func (l *lab) eventually(check func() error) {
	l.Helper()
	testenv.Eventually(l.T, check)
}

// reflecting waits until the engine reflects a kind and check returns true.
func (l *lab) reflecting(name string, check func(reflection.Kind) bool) {
	l.Helper()
	l.eventually(func() error {
		if kind, ok := l.engine.kind(name); !ok || !check(kind) {
			return fmt.Errorf("the engine reflects %s as %+v", name, kind)
		}
		return nil
	})
}

// stopped waits until the engine no longer reflects a kind.
func (l *lab) stopped(name string) {
	l.Helper()
	l.eventually(func() error {
		if _, ok := l.engine.kind(name); ok {
			return errors.New("the engine still reflects " + name)
		}
		return nil
	})
}
