// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

const (
	tenant       = "liqo-tenant-rome"
	resolverUser = "system:serviceaccount:" + tenant + ":" + wire.HomeNamesService
)

// newMap creates a NamespaceMap with accepted remote namespaces. The label origin is the ID of its consumer.
func newMap(t *testing.T, c client.Client, name, origin string, accepted map[string]string) *offloading.NamespaceMap {
	t.Helper()
	nm := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{wire.OriginIDLabel: origin}}}
	require.NoError(t, c.Create(t.Context(), nm))
	setAccepted(t, c, nm, accepted)
	return nm
}

func setAccepted(t *testing.T, c client.Client, nm *offloading.NamespaceMap, accepted map[string]string) {
	t.Helper()
	nm.Status.CurrentMapping = map[string]offloading.RemoteNamespaceStatus{
		"refused": {RemoteNamespace: "other", Phase: offloading.MappingCreationLoopBackOff},
	}
	for home, remote := range accepted {
		nm.Status.CurrentMapping[home] = offloading.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: offloading.MappingAccepted}
	}
	require.NoError(t, c.Status().Update(t.Context(), nm))
}

// TestNamesComeFromTheNamespaceMap runs a resolver with the permissions that the chart grants, on a real API server. It
// checks that names follow the NamespaceMap of the consumer, and no other, and that they resolve while the API server is
// down.
func TestNamesComeFromTheNamespaceMap(t *testing.T) {
	testenv.NeedControlPlane(t)
	cluster, err := testenv.Start(t.Context(), testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cluster.Stop()) })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, offloading.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "home-names"}, Rules: rbac.HomeNames().PolicyRules(strings.NewReplacer())},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "home-names"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "home-names"}, Subjects: []rbacv1.Subject{rbac.User(resolverUser)},
		},
	} {
		require.NoError(t, c.Create(t.Context(), object))
	}
	nm := newMap(t, c, "rome", "rome", map[string]string{"shop": "shop-rome"})
	// The map of the namespaces that this cluster offloads to rome.
	newMap(t, c, "provider", "provider", map[string]string{"mine": "shop-milan"})

	config, err := cluster.ConfigFor(resolverUser)
	require.NoError(t, err)
	metrics := NewMetrics(prometheus.NewRegistry())
	source, err := NewSource(config, Consumer{ClusterID: "rome", TenantNamespace: tenant, Domain: DefaultDomain}, DefaultDomain, metrics)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running errgroup.Group
	running.Go(func() error { return source.Run(ctx) })
	defer func() {
		cancel()
		assert.NoError(t, running.Wait())
	}()
	select {
	case <-source.Synced():
	case <-time.After(time.Minute):
		t.Fatal("the NamespaceMap is not read")
	}
	dns := startClusterDNS(t, DefaultDomain, records(DefaultDomain))
	h := &home{clusterDNS: dns, metrics: metrics}
	packets, connections := listen(t)
	h.address = packets.LocalAddr().String()
	serve(t, &Resolver{Names: source.Names, Exchange: Upstream{Addresses: []string{dns.address}}.Exchange, Metrics: metrics}, packets, connections)
	resolves := func(name string) bool {
		found, err := h.client().LookupHost(t.Context(), name)
		return err == nil && len(found) > 0
	}
	assert.True(t, resolves("web.shop.svc.cluster.local."))
	assert.False(t, resolves("web.mine.svc.cluster.local."), "a namespace that this cluster offloads")
	assert.False(t, resolves("web.refused.svc.cluster.local."), "a namespace that was not accepted")

	setAccepted(t, c, nm, map[string]string{"shop": "shop-rome", "store": "shop-milan"})
	assert.Eventually(t, func() bool { return resolves("web.store.svc.cluster.local.") }, time.Minute, 10*time.Millisecond)
	setAccepted(t, c, nm, map[string]string{"shop": "shop-rome"})
	assert.Eventually(t, func() bool { return !resolves("web.store.svc.cluster.local.") }, time.Minute, 10*time.Millisecond)

	require.NoError(t, cluster.StopAPIServer())
	assert.True(t, resolves("web.shop.svc.cluster.local."), "while the API server is down")
}
