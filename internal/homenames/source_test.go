// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"context"
	"net/netip"
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
	require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "addresses"},
		Rules: rbac.HomeNamesAddresses().PolicyRules(strings.NewReplacer())}))
	require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "addresses"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "addresses"},
		Subjects: []rbacv1.Subject{rbac.User(resolverUser)}}))
	nm := newMap(t, c, "rome", "rome", map[string]string{"shop": "shop-rome"})
	// The map of the namespaces that this cluster offloads to rome.
	newMap(t, c, "provider", "provider", map[string]string{"mine": "shop-milan"})

	config, err := cluster.ConfigFor(resolverUser)
	require.NoError(t, err)
	metrics := NewMetrics(prometheus.NewRegistry())
	source, err := NewSource(config, Consumer{ClusterID: "rome", TenantNamespace: tenant, Domain: DefaultDomain,
		TranslatesAddresses: true}, DefaultDomain, metrics)
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

	checkAddresses(t, c, source)

	require.NoError(t, cluster.StopAPIServer())
	assert.True(t, resolves("web.shop.svc.cluster.local."), "while the API server is down")
}

// checkAddresses checks that the addresses follow the Services and the pods in the namespaces of the consumer, and no others.
func checkAddresses(t *testing.T, c client.Client, source *Source) {
	t.Helper()
	web := map[string]*corev1.Service{}
	for _, namespace := range []string{"shop-rome", "shop-milan"} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		web[namespace] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web",
			Annotations: map[string]string{wire.HomeClusterIPsAnnotation: "fd00::5,10.99.0.5"}},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		require.NoError(t, c.Create(t.Context(), web[namespace]))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web",
			Labels: map[string]string{wire.ManagedByLabel: wire.ManagedByShadowPod}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}, AutomountServiceAccountToken: new(bool)}}
		// The ServiceAccount of a new namespace may not exist yet.
		require.Eventually(t, func() bool { return c.Create(t.Context(), pod) == nil }, time.Minute, 10*time.Millisecond)
		pod.Status.PodIPs = []corev1.PodIP{{IP: map[string]string{"shop-rome": "10.1.0.5", "shop-milan": "10.1.0.6"}[namespace]}}
		pod.Status.PodIP = pod.Status.PodIPs[0].IP
		require.NoError(t, c.Status().Update(t.Context(), pod))
	}
	cluster := netip.MustParseAddr(web["shop-rome"].Spec.ClusterIP)
	homeOf := func() netip.Addr { return source.Names().homeAddresses[cluster] }
	eventually := func(condition func() bool) {
		t.Helper()
		assert.Eventually(t, condition, time.Minute, 10*time.Millisecond)
	}
	eventually(func() bool { return homeOf() == netip.MustParseAddr("10.99.0.5") })
	eventually(func() bool { return source.IsTranslated(netip.MustParseAddr("10.1.0.5")) })
	assert.False(t, source.IsTranslated(netip.MustParseAddr("10.1.0.6")), "a pod of another consumer")
	assert.Len(t, source.Names().homeAddresses, 1, "Services of another consumer")
	web["shop-rome"].Annotations[wire.HomeClusterIPsAnnotation] = "10.99.0.6"
	require.NoError(t, c.Update(t.Context(), web["shop-rome"]))
	eventually(func() bool { return homeOf() == netip.MustParseAddr("10.99.0.6") })
	require.NoError(t, c.Delete(t.Context(), web["shop-rome"]))
	eventually(func() bool { return !homeOf().IsValid() })
	require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome",
		Name: "web"}}, client.GracePeriodSeconds(0))))
	eventually(func() bool { return !source.IsTranslated(netip.MustParseAddr("10.1.0.5")) })
}
