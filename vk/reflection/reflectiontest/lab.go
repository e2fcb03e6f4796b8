// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/api/crds"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/story"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/proxy"
	"github.com/refract-project/refract/vk/reflection"
)

// clusters contains the two control planes that all tests share. The first test that needs them starts them. Each lab
// has its own provider ID, node and namespaces in them.
var clusters struct {
	once             sync.Once
	err              error
	consumer, remote *testenv.Cluster
	labs             atomic.Int32
	granting         sync.Mutex // serializes changes of roles that several labs use
}

// Main implements TestMain. It runs the tests, stops the clusters that they have started, and then calls the functions
// in stops.
func Main(m *testing.M, stops ...func() error) {
	code := m.Run()
	for _, cluster := range []*testenv.Cluster{clusters.consumer, clusters.remote} {
		if cluster != nil {
			_ = cluster.Stop()
		}
	}
	for _, stop := range stops {
		_ = stop()
	}
	if folder, err := compiledPlugins(); err == nil {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

func startClusters() {
	definitions, err := os.MkdirTemp("", "crds-")
	if err == nil {
		defer func() { _ = os.RemoveAll(definitions) }()
		err = os.CopyFS(definitions, crds.FS())
	}
	if clusters.err = err; err != nil {
		return
	}
	started, err := testenv.StartAll(context.Background(),
		testenv.Options{Name: "rome", CRDPaths: []string{definitions}, NoScheduler: true, AuditLog: true},
		testenv.Options{Name: "milan", CRDPaths: []string{definitions}, NoScheduler: true, AuditLog: true})
	if clusters.err = err; err == nil {
		clusters.consumer, clusters.remote = started[0], started[1]
	}
}

// Lab consists of a provider, a virtual node and an offloaded namespace.
type Lab struct {
	*testing.T
	Local, Remote                         *Side
	ID, Node, Tenant, Namespace, RemoteNS string
	Chains                                *Chains
	Options                               reflection.Options
	Manager                               *reflection.Manager
	cancel                                func()
}

// New returns a Lab with a manager that is not running yet. Start starts the manager.
func New(t *testing.T, change ...func(*reflection.Options)) *Lab {
	t.Helper()
	return NewOn(t, Consumer(t), change...)
}

// Consumer returns the consumer cluster, which all labs share.
func Consumer(t *testing.T) *testenv.Cluster {
	t.Helper()
	needClusters(t)
	return clusters.consumer
}

func needClusters(t *testing.T) {
	t.Helper()
	testenv.NeedControlPlane(t)
	clusters.once.Do(startClusters)
	if clusters.err != nil {
		t.Fatal(clusters.err)
	}
}

// NewOn returns a lab that uses the given cluster as its consumer.
func NewOn(t *testing.T, consumer *testenv.Cluster, change ...func(*reflection.Options)) *Lab {
	t.Helper()
	needClusters(t)
	n := clusters.labs.Add(1)
	l := &Lab{T: t, ID: fmt.Sprintf("milan-%d", n), Node: fmt.Sprintf("node-%d", n), Tenant: fmt.Sprintf("liqo-tenant-milan-%d", n),
		Namespace: fmt.Sprintf("shop-%d", n), RemoteNS: fmt.Sprintf("shop-%d-rome", n), Chains: NewChains()}
	l.Local, l.Remote = l.side(consumer, "kubelet-"+l.Node), l.side(clusters.remote, "rome-"+l.Node)
	for _, name := range []string{l.Tenant, l.Namespace} {
		l.Local.CreateNamespace(t, name)
	}
	l.Remote.CreateNamespace(t, l.RemoteNS)
	l.Grant()
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: %s, liqo.io/type: virtual-node}}}`, l.Node, l.ID))
	l.Local.Create(t, "", fmt.Sprintf(`
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: %s, namespace: %s}
spec: {clusterID: %s}`, l.Node, l.Tenant, l.ID))
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.Options = reflection.Options{
		Local: Must(l.Local.Cluster.ConfigFor(l.Local.user))(t), Remote: Must(l.Remote.Cluster.ConfigFor(l.Remote.user))(t),
		LocalClusterID: "rome", RemoteClusterID: l.ID, NodeName: l.Node, NodeIP: "10.9.8.7", TenantNamespace: l.Tenant,
		// ConfigMaps are not reflected by default. Most tests count writes, and would have to count the ConfigMap of
		// the root CA, too.
		Kinds:    Kinds(reflection.PodKind, reflection.ServiceKind, reflection.EndpointSliceKind),
		Registry: l.Chains, SettleAfter: 200 * time.Millisecond, RecheckAfter: time.Second, ProbeEvery: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	for _, f := range change {
		f(&l.Options)
	}
	return l
}

func Must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

func (l *Lab) side(cluster *testenv.Cluster, user string) *Side {
	l.Helper()
	return &Side{Cluster: cluster, Dynamic: Must(dynamic.NewForConfig(cluster.Config()))(l.T),
		Core: Must(kubernetes.NewForConfig(cluster.Config()))(l.T), user: user}
}

// Grant grants the manager exactly the roles in the charts.
func (l *Lab) Grant() {
	l.Helper()
	clusters.granting.Lock()
	defer clusters.granting.Unlock()
	kubelet := rbac.Kubelet{NodeName: l.Node, TenantNamespace: l.Tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.User(l.Local.user)}
	require.NoError(l, rbac.Install(l.Context(), l.Local.Core, append(kubelet.Objects(), kubelet.ExtendedNamespace(l.Namespace))...))
	consumer := rbac.Consumer{Prefix: l.Node + "-", Subject: rbac.User(l.Remote.user)}
	require.NoError(l, rbac.Install(l.Context(), l.Remote.Core, append(consumer.Objects(), consumer.RemoteNamespace(l.RemoteNS))...))
	l.granted(l.Local, l.Tenant, "namespacemaps", offloadingv1beta1.GroupVersion.Group)
	l.granted(l.Local, "", "pods", "")
	l.granted(l.Local, l.Namespace, "services", "")
	l.granted(l.Remote, l.RemoteNS, "pods", "")
}

// Kinds returns the default kinds with the given names.
func Kinds(names ...string) []reflection.Kind {
	return slices.DeleteFunc(reflection.DefaultKinds(), func(kind reflection.Kind) bool { return !slices.Contains(names, kind.Name) })
}

// Admit grants the manager its usual permissions in a further namespace of the consumer.
func (l *Lab) Admit(namespace string) {
	l.Helper()
	kubelet := rbac.Kubelet{NodeName: l.Node, Subject: rbac.User(l.Local.user)}
	require.NoError(l, rbac.Install(l.Context(), l.Local.Core, kubelet.ExtendedNamespace(namespace)))
	l.granted(l.Local, namespace, "services", "")
}

// Allow grants the manager the permissions for a further resource in both clusters.
func (l *Lab) Allow(group, resource string) {
	l.Helper()
	for _, s := range []*Side{l.Local, l.Remote} {
		name := s.user + "-" + resource
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}}}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{rbac.User(s.user)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
		Must(s.Core.RbacV1().ClusterRoles().Create(l.Context(), role, metav1.CreateOptions{}))(l.T)
		Must(s.Core.RbacV1().ClusterRoleBindings().Create(l.Context(), binding, metav1.CreateOptions{}))(l.T)
		l.granted(s, "", resource, group)
	}
}

// granted waits until the authorizer of the API server uses the changed roles.
func (l *Lab) granted(s *Side, namespace, resource, group string) {
	l.Helper()
	client := Must(kubernetes.NewForConfig(Must(s.Cluster.ConfigFor(s.user))(l.T)))(l.T)
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "watch", Group: group, Resource: resource}}}
	l.Eventually(func() error {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(l.Context(), review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("%s may not watch %s in %q", s.user, resource, namespace)
		}
		return err
	})
}

// Start starts the manager and waits until it is ready.
func (l *Lab) Start() *Lab {
	l.Helper()
	l.StartUnready()
	l.Eventually(func() error {
		if !l.Manager.Ready() {
			return errors.New("the manager is not ready")
		}
		return nil
	})
	return l
}

func (l *Lab) StartUnready() {
	l.Helper()
	manager, err := reflection.New(l.Options)
	require.NoError(l, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = manager.Run(ctx) }()
	l.Manager, l.cancel = manager, sync.OnceFunc(func() { cancel(); <-ended })
	l.Cleanup(l.cancel)
}

func (l *Lab) Stop() { l.cancel() }

// MapNamespaces writes the NamespaceMap, as if the provider had accepted all namespaces.
func (l *Lab) MapNamespaces(extensions map[string]string) {
	l.Helper()
	current := map[string]any{}
	for local, remote := range extensions {
		current[local] = map[string]any{"remoteNamespace": remote, "phase": "Accepted"}
	}
	l.WriteMap(l.ID, current)
}

func (l *Lab) WriteMap(name string, current map[string]any) {
	l.Helper()
	maps := l.Local.Dynamic.Resource(offloadingv1beta1.NamespaceMapGVR).Namespace(l.Tenant)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"liqo.io/remote-cluster-id": l.ID, "liqo.io/remoteID": l.ID, "liqo.io/replication": "true"}},
	}}
	_, _ = maps.Create(l.Context(), object, metav1.CreateOptions{})
	desired := map[string]any{}
	for local, entry := range current {
		fields, _ := entry.(map[string]any)
		if remote, ok := fields["remoteNamespace"].(string); ok {
			desired[local] = remote
		}
	}
	present := Must(maps.Get(l.Context(), name, metav1.GetOptions{}))(l.T)
	present.Object["spec"] = map[string]any{"desiredMapping": desired}
	present = Must(maps.Update(l.Context(), present, metav1.UpdateOptions{}))(l.T)
	present.Object["status"] = map[string]any{"currentMapping": current}
	Must(maps.UpdateStatus(l.Context(), present, metav1.UpdateOptions{}))(l.T)
}

// Eventually waits until check returns nil.
func (l *Lab) Eventually(check func() error) {
	l.Helper()
	testenv.Eventually(l.T, check)
}

// ThroughCable makes the manager connect to the provider through a cable that the test can cut.
func (l *Lab) ThroughCable() *proxy.Cable {
	l.Helper()
	c := proxy.NewCable(l.T, Must(url.Parse(l.Options.Remote.Host))(l.T).Host)
	l.Options.Remote.Host = "https://" + c.Address()
	return c
}

// Settled waits until the manager is idle, i.e. until no object has been queued or evaluated for a short time.
func (l *Lab) Settled() {
	l.Helper()
	quiet, last := time.Now(), uint64(0)
	l.Eventually(func() error {
		waiting, evaluated := l.Manager.Backlog()
		if waiting > 0 || evaluated != last || !l.Manager.Ready() {
			quiet, last = time.Now(), evaluated
		}
		if time.Since(quiet) < 400*time.Millisecond {
			return fmt.Errorf("%d objects wait, %d were evaluated", waiting, evaluated)
		}
		return nil
	})
}

// Evaluated returns how many evaluations the manager has made so far.
func (l *Lab) Evaluated() uint64 {
	_, evaluated := l.Manager.Backlog()
	return evaluated
}

// Present waits until an object exists and passes all checks. It returns the object.
func (l *Lab) Present(s *Side, kind, namespace, name string, check ...func(*unstructured.Unstructured) error) (found *unstructured.Unstructured) {
	l.Helper()
	l.Eventually(func() error {
		if found = s.Get(l.T, kind, namespace, name); found == nil {
			return fmt.Errorf("%s %s/%s is not in %s", kind, namespace, name, s.Cluster.Name())
		}
		for _, c := range check {
			if err := c(found); err != nil {
				return fmt.Errorf("%s %s/%s in %s: %w", kind, namespace, name, s.Cluster.Name(), err)
			}
		}
		return nil
	})
	return found
}

func (l *Lab) Absent(s *Side, kind, namespace, name string) {
	l.Helper()
	l.Eventually(func() error {
		if s.Get(l.T, kind, namespace, name) != nil {
			return fmt.Errorf("%s %s/%s is still in %s", kind, namespace, name, s.Cluster.Name())
		}
		return nil
	})
}

// Field returns a check of the value at a path in the notation of package story, such as "metadata.labels/app". The
// value "" means that the field must not exist.
func Field(path, want string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("the object is not there")
		}
		return story.Check(object.Object, path+"="+want)
	}
}

// Events returns the reasons and messages of the Events about an object.
func (l *Lab) Events(namespace, kind, name string) (found []string) {
	l.Helper()
	list := Must(l.Local.Core.CoreV1().Events(namespace).List(l.Context(), metav1.ListOptions{}))(l.T)
	for _, event := range list.Items {
		if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name && strings.HasPrefix(event.Source.Component, "liqo-") {
			found = append(found, fmt.Sprintf("%s %s x%d: %s", event.Type, event.Reason, event.Count, event.Message))
		}
	}
	return found
}

// Event waits for an Event about the object that contains all the words.
func (l *Lab) Event(namespace, kind, name string, words ...string) {
	l.Helper()
	l.Eventually(func() error {
		all := l.Events(namespace, kind, name)
		for _, text := range all {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
				return nil
			}
		}
		return fmt.Errorf("%s %s has the Events %q, none with all of %q", kind, name, all, words)
	})
}

// Quiet calls do, and fails the test if the manager writes an object before it is idle again.
func (l *Lab) Quiet(what string, do func()) {
	l.Helper()
	before := [2][]string{l.Local.Writes(l.T), l.Remote.Writes(l.T)}
	do()
	l.Settled()
	for i, s := range []*Side{l.Local, l.Remote} {
		if after := s.Writes(l.T); len(after) != len(before[i]) {
			l.Errorf("%s caused writes to %s: %q", what, s.Cluster.Name(), after[len(before[i]):])
		}
	}
}

// Addresses returns a check of the load balancer addresses of an object.
func Addresses(want ...string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		var got []string
		list, _, _ := unstructured.NestedSlice(object.Object, "status", "loadBalancer", "ingress")
		for _, item := range list {
			entry, _ := item.(map[string]any)
			for _, key := range []string{"ip", "hostname"} {
				if value, ok := entry[key].(string); ok {
					got = append(got, value)
				}
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the load balancer listens at %q, want %q", got, want)
		}
		return nil
	}
}

// AnotherNamespace creates another namespace on the provider, which may become the remote namespace of the lab's
// namespace.
func (l *Lab) AnotherNamespace() string {
	l.Helper()
	name := l.RemoteNS + "-2"
	l.Remote.CreateNamespace(l.T, name)
	clusters.granting.Lock()
	defer clusters.granting.Unlock()
	consumer := rbac.Consumer{Prefix: l.Node + "-", Subject: rbac.User(l.Remote.user)}
	require.NoError(l, rbac.Install(l.Context(), l.Remote.Core, consumer.RemoteNamespace(name)))
	l.granted(l.Remote, name, "pods", "")
	return name
}
