// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/internal/refractctl/release"
	"github.com/refract-project/refract/test/support/apistub"
)

// Tests in this package that call testenv.ForTest need a real control plane, because they test Liqo's Networks or
// concurrent runs.

func access(s *peeringtest.Side) *cluster.Cluster {
	return &cluster.Cluster{Name: s.ID, Config: s.Config, Client: s.Client, Clientset: s.Clientset}
}

func inspect(t *testing.T, c *cluster.Cluster) *cluster.Side {
	t.Helper()
	side, err := c.Inspect(t.Context())
	require.NoError(t, err)
	return side
}

func absent(t *testing.T, id string) *cluster.Side {
	t.Helper()
	c, err := cluster.Absent(id)
	require.NoError(t, err)
	return inspect(t, c)
}

func TestInspect(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "milan")
	_, err := access(stub).Inspect(t.Context())
	require.ErrorIs(t, err, release.ErrNotInstalled)
	require.ErrorContains(t, err, "cluster milan: ")
	_, err = access(stub).InspectAsProvider(t.Context())
	require.ErrorIs(t, err, release.ErrNotInstalled, "nor Liqo")
	id := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "liqo-clusterid-configmap",
		Labels: map[string]string{"app.kubernetes.io/name": "clusterid-configmap", "app.kubernetes.io/version": "v0.10.3"}}, Data: map[string]string{"CLUSTER_ID": "milan"}}
	stub.Put(t, id)
	_, err = access(stub).InspectAsProvider(t.Context())
	require.ErrorContains(t, err, "runs Liqo v0.10.3, which cannot be joined")
	id.Labels["app.kubernetes.io/version"] = "v1.1.2"
	stub.Put(t, id)
	side, err := access(stub).InspectAsProvider(t.Context())
	require.NoError(t, err)
	assert.True(t, side.RunsLiqo)
	assert.Equal(t, "milan", side.ID())
	stub.Unserve("authentication.liqo.io", "tenants")
	_, err = access(peeringtestSide(t, stub)).InspectAsProvider(t.Context())
	require.ErrorContains(t, err, "runs Liqo v1.1.2 without Tenants")

	stub.Install(t, "10.2.0.0/16")
	side = inspect(t, access(stub))
	assert.False(t, side.RunsLiqo)
	assert.NotEmpty(t, side.UID)
	for _, failure := range []*apistub.Failure{apistub.Forbidden, apistub.Broken} {
		stub.OnRequest(func(apistub.Request) *apistub.Failure { return failure })
		_, err = access(stub).Inspect(t.Context())
		require.ErrorContains(t, err, "cluster milan: ")
		require.NotErrorIs(t, err, release.ErrNotInstalled)
	}
	_, err = cluster.Absent("../milan")
	require.Error(t, err)
}

// peeringtestSide returns the same cluster with a client that has not discovered any resources yet.
func peeringtestSide(t *testing.T, s *peeringtest.Side) *peeringtest.Side { return s.As(t, s.Config) }

// TestInspectWithAnInvitation checks that the description of the provider comes from the invitation. If the provider
// rejects the token, the invitation has ended.
func TestInspectWithAnInvitation(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "milan")
	invited := access(stub)
	invited.Invitation = &invitation.Invitation{Consumer: "rome", Provider: "milan", ProviderUID: "uid", Version: "0.2.0"}
	side := inspect(t, invited)
	assert.Equal(t, "milan uid 0.2.0", side.ID()+" "+side.UID+" "+side.Installation.Version)
	config := *stub.Config
	config.BearerToken = "another"
	stranger := access(stub.As(t, &config))
	stranger.Invitation = invited.Invitation
	_, err := stranger.Inspect(t.Context())
	var ended *invitation.EndedError
	require.ErrorAs(t, err, &ended)
	stub.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Forbidden })
	_, err = invited.Inspect(t.Context())
	require.ErrorContains(t, err, "cluster milan: using the invitation")
}

// TestWriterAndRemover checks that objects of others are neither changed nor removed, and that a writer can remove only
// the objects that it has created.
func TestWriterAndRemover(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "milan").Install(t, "10.2.0.0/16").Play(t)
	side, rome := inspect(t, access(stub)), absent(t, "rome")
	before := stub.Inventory()
	theirs := &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	stub.Put(t, theirs)
	withTheirs := stub.Inventory()
	writer := cluster.NewWriter(side)
	for range 2 {
		require.NoError(t, writer.CreateTenant(t.Context(), rome))
		require.NoError(t, writer.Apply(t.Context(), &corev1.ServiceAccount{ObjectMeta: cluster.Meta("liqo-tenant-rome", "account", nil)},
			&rbacv1.ClusterRole{ObjectMeta: cluster.Meta("", "theirs", nil), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}}}}))
	}
	assert.Equal(t, "Namespace liqo-tenant-rome, with 1 more objects,", writer.DescribeCreated())
	together := stub.Inventory()

	dry := cluster.NewRemover(side, true)
	objects := []client.Object{&corev1.Namespace{ObjectMeta: cluster.Meta("", "liqo-tenant-rome", nil)}, theirs.DeepCopy(), &corev1.ServiceAccount{ObjectMeta: cluster.Meta("liqo-tenant-rome", "missing", nil)}}
	require.NoError(t, dry.Remove(t.Context(), objects...))
	require.NoError(t, dry.PreviewContents(t.Context(), objects[0]))
	assert.Len(t, dry.Removed(), 2, "the namespace and the account in it")
	assert.Len(t, dry.Left(), 1)
	assert.Equal(t, together, stub.Inventory())

	require.NoError(t, writer.RemoveCreated(t.Context(), "rome", nil))
	assert.False(t, writer.HasCreated())
	assert.Equal(t, withTheirs, stub.Inventory(), "with the ForeignCluster that the controllers have created")
	wet := cluster.NewRemover(side, false)
	require.NoError(t, wet.RemoveAnyones(t.Context(), theirs.DeepCopy()))
	require.NoError(t, wet.RemoveAnyones(t.Context(), theirs.DeepCopy()), "it is gone")
	assert.Equal(t, before, stub.Inventory())
}

// TestCheckTenant checks that a tenant namespace is not used if it lacks the labels, belongs to another cluster, or is
// being deleted.
func TestCheckTenant(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "milan").Install(t, "10.2.0.0/16")
	side := inspect(t, access(stub))
	rome := inspect(t, access(peeringtest.New(t, "rome").Install(t, "10.1.0.0/16")))
	put := func(labels, annotations map[string]string, deleted bool) {
		namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome", Labels: labels, Annotations: annotations}}
		if deleted {
			namespace.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		stub.Put(t, namespace)
	}
	labels := map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "rome"}
	exists, err := side.CheckTenant(t.Context(), rome)
	require.NoError(t, err)
	assert.False(t, exists)
	put(labels, nil, false)
	exists, err = side.CheckTenant(t.Context(), rome)
	require.NoError(t, err)
	assert.True(t, exists)
	put(nil, nil, false)
	_, err = side.CheckTenant(t.Context(), rome)
	assert.ErrorContains(t, err, "exists without the labels")
	put(labels, map[string]string{wire.ClusterUIDAnnotation: "another"}, false)
	_, err = side.CheckTenant(t.Context(), rome)
	assert.ErrorContains(t, err, "is the tenant namespace of a different cluster with the id \"rome\"")
	assert.Error(t, side.CheckTenantOwner(t.Context(), rome))
	put(labels, nil, true)
	_, err = side.CheckTenant(t.Context(), rome)
	assert.ErrorContains(t, err, "is being deleted: run the command again when it is gone")
	remaining, err := side.DescribeRemaining(t.Context(), "liqo-tenant-rome")
	require.NoError(t, err)
	assert.Empty(t, remaining, "it is not ours")
	put(map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}, nil, true)
	remaining, err = side.DescribeRemaining(t.Context(), "liqo-tenant-rome")
	require.NoError(t, err)
	assert.Equal(t, "it is being deleted", remaining)
	require.ErrorContains(t, side.RequirePeer(t.Context(), "turin"), "there is no peering with turin")
	require.NoError(t, side.RequirePeer(t.Context(), "rome"))
}

func TestRequireRights(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "milan")
	rights := []cluster.Right{cluster.RightToManage("", "secrets"), cluster.RightToList("", "nodes"), cluster.RightToManage("example.com", "unserved"), {Verbs: []string{"create"}, Resource: "serviceaccounts", Subresource: "token"}}
	require.NoError(t, access(stub).RequireRights(t.Context(), rights))
	stub.RefuseRights(func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "create" || a.Verb == "patch" })
	require.EqualError(t, access(stub).RequireRights(t.Context(), rights), "cluster milan: you may not create/patch secrets, nor create serviceaccounts/token: use the credentials of an administrator")
	require.NoError(t, access(stub).RequireRights(t.Context(), cluster.OnlyVerbs(rights, "get", "list", "delete")))
	stub.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Broken })
	require.ErrorContains(t, access(stub).RequireRights(t.Context(), rights), "cluster milan: reviewing your permissions")
}

func TestClockOffset(t *testing.T) {
	t.Parallel()
	offset, known, err := access(peeringtest.New(t, "milan")).ClockOffset(t.Context())
	require.NoError(t, err)
	assert.True(t, known)
	assert.Less(t, offset.Abs(), cluster.MaxClockSkew)
}

// TestRanges checks that the ranges of a cluster are read from its nodes. If ServiceCIDRs are not served, the address
// of the API server's Service must be used.
func TestRanges(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "milan").Install(t, "10.2.0.0/16")
	stub.Unserve("networking.k8s.io", "servicecidrs")
	stub.Put(t, &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}}})
	c := access(stub)
	pods, err := c.PodRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "10.2.0.0/16", pods[0].String())
	services, err := c.ServiceRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "10.96.0.1/32", services[0].String())
	stub.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Broken })
	_, err = c.PodRanges(t.Context())
	assert.ErrorContains(t, err, "cluster milan: ")
}
