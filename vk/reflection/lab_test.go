// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/testenv"
)

// The two control planes are started by the first test that needs them and shared by all: each test has its own
// provider id, node and namespaces in them.
var clusters struct {
	once             sync.Once
	err              error
	consumer, remote *testenv.Cluster
	labs             atomic.Int32
	granting         sync.Mutex // the labs share some roles
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
	started, err := testenv.StartAll(context.Background(),
		testenv.Options{Name: "rome", CRDPaths: []string{"../../api/crds"}, NoScheduler: true, AuditLog: true},
		testenv.Options{Name: "milan", CRDPaths: []string{"../../api/crds"}, NoScheduler: true, AuditLog: true})
	if clusters.err = err; err == nil {
		clusters.consumer, clusters.remote = started[0], started[1]
	}
}

// lab is one provider, one virtual node, and one extended namespace.
type lab struct {
	*testing.T
	local, remote                         *side
	id, node, tenant, namespace, remoteNS string
	chains                                *testChains
	options                               Options
	manager                               *Manager
	cancel                                func()
}

// newLab prepares everything but the manager, which start starts.
func newLab(t *testing.T, change ...func(*Options)) *lab {
	t.Helper()
	needClusters(t) // the consumer is one of them
	return newLabOn(t, clusters.consumer, change...)
}

func needClusters(t *testing.T) {
	t.Helper()
	clusters.once.Do(startClusters)
	if clusters.err != nil {
		t.Fatal(clusters.err)
	}
}

// newLabOn is a lab with a consumer of its own.
func newLabOn(t *testing.T, consumer *testenv.Cluster, change ...func(*Options)) *lab {
	t.Helper()
	needClusters(t)
	n := clusters.labs.Add(1)
	l := &lab{T: t, id: fmt.Sprintf("milan-%d", n), node: fmt.Sprintf("node-%d", n), tenant: fmt.Sprintf("liqo-tenant-milan-%d", n),
		namespace: fmt.Sprintf("shop-%d", n), remoteNS: fmt.Sprintf("shop-%d-rome", n), chains: newTestChains()}
	l.local, l.remote = l.side(consumer, "kubelet-"+l.node), l.side(clusters.remote, "rome-"+l.node)
	for _, name := range []string{l.tenant, l.namespace} {
		l.local.createNamespace(t, name)
	}
	l.remote.createNamespace(t, l.remoteNS)
	l.grant()
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: %s, liqo.io/type: virtual-node}}}`, l.node, l.id))
	l.local.create(t, "", fmt.Sprintf(`
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: %s, namespace: %s}
spec: {clusterID: %s}`, l.node, l.tenant, l.id))
	l.mapNamespaces(map[string]string{l.namespace: l.remoteNS})
	l.options = Options{
		Local: must(l.local.cluster.ConfigFor(l.local.user))(t), Remote: must(l.remote.cluster.ConfigFor(l.remote.user))(t),
		LocalClusterID: "rome", RemoteClusterID: l.id, NodeName: l.node, NodeIP: "10.9.8.7", TenantNamespace: l.tenant,
		// Most tests count writes; those of the root CA's ConfigMap would be among them everywhere.
		Kinds:    kinds(PodKind, ServiceKind, EndpointSliceKind),
		Registry: l.chains, SettleAfter: 200 * time.Millisecond, RecheckAfter: time.Second, ProbeEvery: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	for _, f := range change {
		f(&l.options)
	}
	return l
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (l *lab) side(cluster *testenv.Cluster, user string) *side {
	l.Helper()
	return &side{cluster: cluster, dynamic: must(dynamic.NewForConfig(cluster.Config()))(l.T),
		core: must(kubernetes.NewForConfig(cluster.Config()))(l.T), user: user}
}

// grant gives the manager the roles it is shipped with, and no more.
func (l *lab) grant() {
	l.Helper()
	clusters.granting.Lock()
	defer clusters.granting.Unlock()
	kubelet := rbac.Kubelet{NodeName: l.node, TenantNamespace: l.tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.User(l.local.user)}
	if err := rbac.Install(l.Context(), l.local.core, append(kubelet.Objects(), kubelet.ExtendedNamespace(l.namespace))...); err != nil {
		l.Fatal(err)
	}
	consumer := rbac.Consumer{Prefix: l.node + "-", Subject: rbac.User(l.remote.user)}
	if err := rbac.Install(l.Context(), l.remote.core, append(consumer.Objects(), consumer.RemoteNamespace(l.remoteNS))...); err != nil {
		l.Fatal(err)
	}
	l.granted(l.local, l.tenant, "namespacemaps", offloadingv1beta1.GroupVersion.Group)
	l.granted(l.local, "", "pods", "")
	l.granted(l.local, l.namespace, "services", "")
	l.granted(l.remote, l.remoteNS, "pods", "")
}

// kinds returns some of the default kinds.
func kinds(names ...string) []Kind {
	return slices.DeleteFunc(DefaultKinds(), func(kind Kind) bool { return !slices.Contains(names, kind.Name) })
}

// admit gives the manager what it needs in a further namespace of the consumer.
func (l *lab) admit(namespace string) {
	l.Helper()
	kubelet := rbac.Kubelet{NodeName: l.node, Subject: rbac.User(l.local.user)}
	if err := rbac.Install(l.Context(), l.local.core, kubelet.ExtendedNamespace(namespace)); err != nil {
		l.Fatal(err)
	}
	l.granted(l.local, namespace, "services", "")
}

// allow gives the manager a further resource on both sides.
func (l *lab) allow(group, resource string) {
	l.Helper()
	for _, s := range []*side{l.local, l.remote} {
		name := s.user + "-" + resource
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}}}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{rbac.User(s.user)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
		must(s.core.RbacV1().ClusterRoles().Create(l.Context(), role, metav1.CreateOptions{}))(l.T)
		must(s.core.RbacV1().ClusterRoleBindings().Create(l.Context(), binding, metav1.CreateOptions{}))(l.T)
		l.granted(s, "", resource, group)
	}
}

// granted waits until the API server's authorizer has heard of the roles.
func (l *lab) granted(s *side, namespace, resource, group string) {
	l.Helper()
	client := must(kubernetes.NewForConfig(must(s.cluster.ConfigFor(s.user))(l.T)))(l.T)
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "watch", Group: group, Resource: resource}}}
	l.eventually(func() error {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(l.Context(), review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("%s may not watch %s in %q", s.user, resource, namespace)
		}
		return err
	})
}

// start starts the manager and waits until it reflects.
func (l *lab) start() *lab {
	l.Helper()
	l.startUnready()
	l.eventually(func() error {
		if !l.manager.Ready() {
			return errors.New("the manager is not ready")
		}
		return nil
	})
	return l
}

func (l *lab) startUnready() {
	l.Helper()
	manager, err := New(l.options)
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = manager.Run(ctx) }()
	l.manager, l.cancel = manager, sync.OnceFunc(func() { cancel(); <-ended })
	l.Cleanup(l.cancel)
}

func (l *lab) stop() { l.cancel() }

// mapNamespaces writes the NamespaceMap as a provider that has accepted everything.
func (l *lab) mapNamespaces(extensions map[string]string) {
	l.Helper()
	current := map[string]any{}
	for local, remote := range extensions {
		current[local] = map[string]any{"remoteNamespace": remote, "phase": "Accepted"}
	}
	l.writeMap(l.id, current)
}

func (l *lab) writeMap(name string, current map[string]any) {
	l.Helper()
	maps := l.local.dynamic.Resource(offloadingv1beta1.NamespaceMapGVR).Namespace(l.tenant)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"liqo.io/remote-cluster-id": l.id}},
	}}
	_, _ = maps.Create(l.Context(), object, metav1.CreateOptions{})
	desired := map[string]any{}
	for local, entry := range current {
		fields, _ := entry.(map[string]any)
		if remote, ok := fields["remoteNamespace"].(string); ok {
			desired[local] = remote
		}
	}
	present := must(maps.Get(l.Context(), name, metav1.GetOptions{}))(l.T)
	present.Object["spec"] = map[string]any{"desiredMapping": desired}
	present = must(maps.Update(l.Context(), present, metav1.UpdateOptions{}))(l.T)
	present.Object["status"] = map[string]any{"currentMapping": current}
	must(maps.UpdateStatus(l.Context(), present, metav1.UpdateOptions{}))(l.T)
}

// eventually waits until check has no more to complain about.
func (l *lab) eventually(check func() error) {
	l.Helper()
	testenv.Eventually(l.T, check)
}

// settled waits until the manager has nothing left to do: every queue has been empty, and nothing evaluated, for a while.
func (l *lab) settled() {
	l.Helper()
	quiet, last := time.Now(), uint64(0)
	l.eventually(func() error {
		waiting, evaluated := l.manager.Backlog()
		if waiting > 0 || evaluated != last || !l.manager.Ready() {
			quiet, last = time.Now(), evaluated
		}
		if time.Since(quiet) < 400*time.Millisecond {
			return fmt.Errorf("%d objects wait, %d were evaluated", waiting, evaluated)
		}
		return nil
	})
}

// evaluated counts what the manager has looked at.
func (l *lab) evaluated() uint64 {
	_, evaluated := l.manager.Backlog()
	return evaluated
}

// present waits for an object, and for check to be content with it.
func (l *lab) present(s *side, kind, namespace, name string, check ...func(*unstructured.Unstructured) error) (found *unstructured.Unstructured) {
	l.Helper()
	l.eventually(func() error {
		if found = s.get(l.T, kind, namespace, name); found == nil {
			return fmt.Errorf("%s %s/%s is not in %s", kind, namespace, name, s.cluster.Name())
		}
		for _, c := range check {
			if err := c(found); err != nil {
				return fmt.Errorf("%s %s/%s in %s: %w", kind, namespace, name, s.cluster.Name(), err)
			}
		}
		return nil
	})
	return found
}

func (l *lab) absent(s *side, kind, namespace, name string) {
	l.Helper()
	l.eventually(func() error {
		if s.get(l.T, kind, namespace, name) != nil {
			return fmt.Errorf("%s %s/%s is still in %s", kind, namespace, name, s.cluster.Name())
		}
		return nil
	})
}

// field checks the value at a dotted path; labels and annotations are given after a slash: "metadata.labels/app".
func field(path, want string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		path, key, hasKey := strings.Cut(path, "/")
		parts := strings.Split(path, ".")
		if hasKey {
			parts = append(parts, key)
		}
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, parts...)
		if got := fmt.Sprint(value); err != nil || got != want && !(value == nil && want == "") {
			return fmt.Errorf("%s is %s, want %s", strings.Join(parts, "."), got, want)
		}
		return nil
	}
}

// events returns reason and message of the Events about an object.
func (l *lab) events(namespace, kind, name string) (found []string) {
	l.Helper()
	list := must(l.local.core.CoreV1().Events(namespace).List(l.Context(), metav1.ListOptions{}))(l.T)
	for _, event := range list.Items {
		if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name && strings.HasPrefix(event.Source.Component, "liqo-") {
			found = append(found, fmt.Sprintf("%s %s x%d: %s", event.Type, event.Reason, event.Count, event.Message))
		}
	}
	return found
}

// event waits for an Event with all of the words.
func (l *lab) event(namespace, kind, name string, words ...string) {
	l.Helper()
	l.eventually(func() error {
		all := l.events(namespace, kind, name)
		for _, text := range all {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
				return nil
			}
		}
		return fmt.Errorf("%s %s has the Events %q, none with all of %q", kind, name, all, words)
	})
}

// quiet runs something and fails when the manager wrote anything in the meantime and until it has settled.
func (l *lab) quiet(what string, do func()) {
	l.Helper()
	before := [2][]string{l.local.writes(l.T), l.remote.writes(l.T)}
	do()
	l.settled()
	for i, s := range []*side{l.local, l.remote} {
		if after := s.writes(l.T); len(after) != len(before[i]) {
			l.Errorf("%s caused writes to %s: %q", what, s.cluster.Name(), after[len(before[i]):])
		}
	}
}

// addresses checks where the load balancer of an object listens.
func addresses(want ...string) func(*unstructured.Unstructured) error {
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
