// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/namespacemap"
	"github.com/refract-project/refract/internal/rbac"
)

// requests is a reader that counts the requests to the API server.
type requests struct {
	client.Reader

	mu     sync.Mutex
	counts map[string]int
}

func (r *requests) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *requests) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.count(fmt.Sprintf("%T", list))
	return r.Reader.List(ctx, list, options...)
}

func (r *requests) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.count(fmt.Sprintf("%T %s", object, key.Name))
	return r.Reader.Get(ctx, key, object, options...)
}

func bindEverywhere(t *testing.T, name string, ref rbacv1.RoleRef, subjects ...rbacv1.Subject) {
	t.Helper()
	provider.Create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects})
}

// TestGrantedKindsCostOneRequestForEachNamespace checks that permissions that are the same in all namespaces of a
// consumer are read once, whatever the number of namespaces and of concurrent readers.
func TestGrantedKindsCostOneRequestForEachNamespace(t *testing.T) {
	const namespaces = 200
	home := tenant(t, "sparing")
	bindEverywhere(t, home, role(t, home, "apps", "deployments"), rbac.Group("sparing"))
	live := &requests{Reader: provider.Client, counts: map[string]int{}}
	read := namespacemap.GrantedReader(provider.Client, live, namespacemap.Options{DefaultObjectCount: 2, RemoteClusterRole: "remote"})
	nm := replicated(home, "sparing", nil)
	var (
		group errgroup.Group
		mu    sync.Mutex
		times []time.Time
	)
	for i := range namespaces {
		group.Go(func() error {
			granted, until, err := read(t.Context(), nm, fmt.Sprintf("sparing-%d", i))
			mu.Lock()
			defer mu.Unlock()
			times = append(times, until)
			assert.Contains(t, granted, "count/deployments.apps")
			return err
		})
	}
	require.NoError(t, group.Wait())
	assert.Equal(t, map[string]int{
		"*v1.ClusterRoleBindingList": 1, "*v1.ClusterRole remote": 1, "*v1.ClusterRole " + home: 1, "*v1.RoleBindingList": namespaces,
	}, onlyOf(live.counts, "*v1.ClusterRoleBindingList", "*v1.ClusterRole remote", "*v1.ClusterRole "+home, "*v1.RoleBindingList"))

	first, last := slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
	assert.Greater(t, last.Sub(first), time.Minute, "the next reads are spread")
	assert.Less(t, time.Until(last), 10*time.Minute)

	// Another consumer has its own grants.
	other := tenant(t, "lavish")
	granted, _, err := read(t.Context(), replicated(other, "lavish", nil), "lavish-1")
	require.NoError(t, err)
	assert.NotContains(t, granted, "count/deployments.apps")
	assert.Equal(t, 2, live.counts["*v1.ClusterRoleBindingList"])
}

// onlyOf returns the counts of the given resources. It leaves out resources of roles that the API server binds to all
// users.
func onlyOf(counts map[string]int, names ...string) map[string]int {
	counts = maps.Clone(counts)
	maps.DeleteFunc(counts, func(name string, _ int) bool { return !slices.Contains(names, name) })
	return counts
}

// TestGrantedKindsOfEachIdentityAreCounted checks that resources are counted if they are granted to any identity of a
// consumer, under any of the names that RBAC has for it. Resources that need no limit or already have one are not
// counted.
func TestGrantedKindsOfEachIdentityAreCounted(t *testing.T) {
	home, remote := tenant(t, "identities"), provider.Namespace(t)
	for resource, granted := range map[string]struct {
		group   string
		subject rbacv1.Subject
	}{
		"deployments":     {"apps", rbac.User("system:serviceaccount:" + home + ":" + wire.ConsumerServiceAccount)},
		"statefulsets":    {"apps", rbac.User(auth.ResourceSliceUser("gpu", "identities"))},
		"podtemplates":    {"", rbac.ServiceAccount(home, wire.ConsumerServiceAccount)},
		"serviceaccounts": {"", rbac.User("identities")},
		// These subjects include the consumer: the groups of all users, of all ServiceAccounts, and of the
		// ServiceAccounts in the consumer's tenant namespace.
		"replicationcontrollers":   {"", rbac.Group("system:authenticated")},
		"horizontalpodautoscalers": {"autoscaling", rbac.Group("system:serviceaccounts")},
		"leases":                   {"coordination.k8s.io", rbac.Group("system:serviceaccounts:" + home)},
		// These subjects do not include the consumer.
		"daemonsets":           {"apps", rbac.User(auth.ResourceSliceUser("gpu", "stranger"))},
		"jobs":                 {"batch", rbac.User("system:serviceaccount:elsewhere:" + wire.ConsumerServiceAccount)},
		"cronjobs":             {"batch", rbac.Group("stranger")},
		"csistoragecapacities": {"storage.k8s.io", rbac.Group("system:serviceaccounts:elsewhere")},
	} {
		ref := role(t, home+"-"+resource, granted.group, resource)
		provider.Create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: resource}, RoleRef: ref, Subjects: []rbacv1.Subject{granted.subject}})
	}
	provider.Create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "all-verbs"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"*"}}}})
	provider.Create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "all-verbs"}, Subjects: []rbacv1.Subject{rbac.Group("identities")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "all-verbs"}})
	// Objects that controllers create from other objects are not counted. Resources that are not stored are not counted
	// either.
	bindEverywhere(t, home+"-core", role(t, home+"-core", "", "endpoints", "bindings", "limitranges"), rbac.Group("identities"))
	bindEverywhere(t, home+"-apps", role(t, home+"-apps", "apps", "replicasets", "controllerrevisions"), rbac.User(auth.ResourceSliceUser("cpu", "identities")))
	bindEverywhere(t, home+"-reviews", role(t, home+"-reviews", "authorization.k8s.io", "localsubjectaccessreviews"), rbac.Group("identities"))

	read := namespacemap.GrantedReader(provider.Client, provider.Client, namespacemap.Options{DefaultObjectCount: 2, RemoteClusterRole: "remote"})
	granted, _, err := read(t.Context(), replicated(home, "identities", nil), remote)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"count/deployments.apps", "count/horizontalpodautoscalers.autoscaling", "count/leases.coordination.k8s.io", "count/limitranges", "count/podtemplates", "count/replicationcontrollers",
		"count/resourcequotas", "count/serviceaccounts", "count/statefulsets.apps",
	}, slices.Sorted(slices.Values(granted)))
}
