// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/internal/refractctl/release"
	"github.com/refract-project/refract/internal/refractctl/tenant"
	"github.com/refract-project/refract/internal/remotedata"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/test/support/testenv"
)

// joined returns two joined clusters, and their inventory from before they were joined.
func joined(t *testing.T) (s *stubs, apart []string) {
	t.Helper()
	s = newStubs(t)
	apart = s.inventory()
	require.NoError(t, s.peer(s.options()))
	return s, apart
}

// TestUnpeerFailsAtAnyWrite checks for each write of unpeer that, if it fails, a second run continues and has the same
// final result.
func TestUnpeerFailsAtAnyWrite(t *testing.T) {
	t.Parallel()
	for at, id := range []string{"rome", "milan"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			for number := 1; ; number++ {
				s, apart := joined(t)
				side := []*peeringtest.Side{s.rome, s.milan}[at]
				isReached := interrupt(side, number, apistub.Forbidden)
				err := s.unpeer(s.options())
				if !isReached() {
					require.NoError(t, err)
					assert.Greater(t, number, 5)
					return
				}
				what := fmt.Sprintf("write %d to %s", number, side.ID)
				require.ErrorContains(t, err, "Forbidden", what)
				side.OnRequest(nil)
				require.NoError(t, s.unpeer(s.options()), what)
				assert.Equal(t, apart, s.inventory(), what)
			}
		})
	}
}

// TestUnpeerRefuses checks that the command fails before anything is changed if something must not be removed.
func TestUnpeerRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *stubs)
		want   string
	}{
		"a virtual node of others": {func(s *stubs) {
			s.rome.Put(s.T, &offloading.VirtualNode{TypeMeta: metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: offloading.VirtualNodeKind},
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "by-hand"}, Spec: offloading.VirtualNodeSpec{ClusterID: "milan"}})
		}, "VirtualNode liqo-tenant-milan/by-hand was not created by refractctl"},
		"another cluster of that ID": {func(s *stubs) {
			s.rome.Put(s.T, namespace("liqo-tenant-milan", map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}, wire.ClusterUIDAnnotation, "another"))
		}, "is the tenant namespace of a different cluster"},
		"missing rights": {func(s *stubs) {
			s.rome.RefuseRights(func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "delete" && a.Resource == "leases" })
		}, "cluster rome: you may not delete leases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := joined(t)
			test.change(s)
			before, writes := s.inventory(), s.writes()
			require.ErrorContains(t, s.unpeer(s.options()), test.want)
			assert.Equal(t, before, s.inventory())
			assert.Equal(t, writes, s.writes())
		})
	}
}

// TestUnpeerKeepsRemoteNamespaces checks that, if remote namespaces still exist after the virtual nodes are gone,
// unpeer fails instead of deleting them.
func TestUnpeerKeepsRemoteNamespaces(t *testing.T) {
	t.Parallel()
	s, apart := joined(t)
	mapped := &offloading.NamespaceMap{TypeMeta: metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: "NamespaceMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}},
		Status:     offloading.NamespaceMapStatus{CurrentMapping: map[string]offloading.RemoteNamespaceStatus{"shop": {RemoteNamespace: "shop-rome"}}}}
	s.milan.Put(t, mapped, namespace("shop-rome", nil))
	dry := s.options()
	dry.DryRun = true
	writes := s.writes()
	removal, err := dry.Unpeer(t.Context())
	require.NoError(t, err)
	assert.Equal(t, writes, s.writes())
	assert.Contains(t, removal.Removed, Object{"milan", "Namespace", "", "shop-rome"})
	require.ErrorContains(t, s.unpeer(s.options()), "cluster milan still has namespaces of rome: shop-rome")
	s.milan.Remove(offloading.GroupVersion.WithKind("NamespaceMap"), "liqo-tenant-rome", "milan")
	s.milan.Remove(corev1.SchemeGroupVersion.WithKind("Namespace"), "", "shop-rome")
	require.NoError(t, s.unpeer(s.options()))
	assert.Equal(t, apart, s.inventory())
}

// TestUnpeerNamesClaimsOfTheProvider checks that claims that only the provider knows are listed as soon as the
// controllers have found them. The provider is not changed before the deletion of these claims is confirmed.
func TestUnpeerNamesClaimsOfTheProvider(t *testing.T) {
	t.Parallel()
	s, _ := joined(t)
	vn := s.rome.Get(offloading.GroupVersion.WithKind(offloading.VirtualNodeKind), "liqo-tenant-milan", "milan")
	vn.SetFinalizers([]string{"example.com/hold"})
	s.rome.Put(t, vn, &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: vn.GetNamespace(), Name: "held"},
		InvolvedObject: corev1.ObjectReference{Kind: offloading.NamespaceMapKind, Namespace: vn.GetNamespace(), Name: "milan"},
		Reason:         remotedata.HeldReason, Message: "claims that were created there have data: held/db",
		EventTime: metav1.NewMicroTime(time.Now().Add(time.Minute)),
	})
	before := s.milan.Writes()
	require.ErrorContains(t, s.unpeer(s.options()), "virtual node milan: claims that were created there have data: held/db. You can also run the command again with --delete-data")
	assert.Equal(t, before, s.milan.Writes())
}

// TestUnpeerRecordsTheConfirmation checks that data on the provider is deleted only if the user confirms it. The
// confirmation must be in the VirtualNode before the VirtualNode is deleted, because the controllers read it there.
func TestUnpeerRecordsTheConfirmation(t *testing.T) {
	t.Parallel()
	s, _ := joined(t)
	s.rome.Put(t, &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Labels: wire.ReflectionLabels("rome", "milan")},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}},
	})
	writes := s.writes()
	require.ErrorContains(t, s.unpeer(s.options()), "disk of claim shop/data, which would be deleted, so nothing was changed: "+
		"copy the data elsewhere and delete the claims, or run the command again with --delete-data")
	assert.Equal(t, writes, s.writes())

	isConfirmed, isConfirmedInTime := false, false
	s.rome.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
		isConfirmed = isConfirmed || object.GetKind() == offloading.VirtualNodeKind && remotedata.IsConfirmed(object)
		return nil
	})
	s.rome.OnRequest(func(r apistub.Request) *apistub.Failure {
		isConfirmedInTime = isConfirmedInTime || r.Verb == "delete" && r.Resource == "virtualnodes" && isConfirmed
		return nil
	})
	confirmed := s.options()
	confirmed.DeleteData = true
	require.NoError(t, s.unpeer(confirmed))
	assert.True(t, isConfirmedInTime, "the VirtualNode was deleted without the confirmation")
	assert.True(t, s.said("the data of the volumes disk of claim shop/data is deleted"), s.lines)
}

// TestGiveUp checks that no requests are sent to a provider that is given up, and that an interrupted run can be
// continued.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	milan, err := cluster.Absent("milan")
	require.NoError(t, err)
	giveUp := func(s *stubs, dryRun bool) (*Removal, error) {
		o := s.options()
		o.Provider, o.DryRun = milan, dryRun
		return o.GiveUp(t.Context())
	}
	for number := 1; ; number++ {
		s := newStubs(t)
		apart := s.rome.Inventory()
		require.NoError(t, s.peer(s.options()))
		s.milan.OnRequest(func(r apistub.Request) *apistub.Failure {
			t.Errorf("%s %s", r.Verb, r.Resource)
			return apistub.Lost
		})
		writes := s.writes()
		removal, err := giveUp(s, true)
		require.NoError(t, err)
		assert.NotEmpty(t, removal.Removed)
		assert.Equal(t, writes, s.writes())
		isReached := interrupt(s.rome, number, apistub.Broken)
		_, err = giveUp(s, false)
		if !isReached() {
			require.NoError(t, err)
			assert.Equal(t, apart, s.rome.Inventory())
			_, err = giveUp(s, false)
			require.ErrorContains(t, err, "there is no peering with milan: its peers are none")
			return
		}
		require.Error(t, err)
		s.rome.OnRequest(nil)
		_, err = giveUp(s, false)
		require.NoError(t, err, "after an interruption at write %d", number)
		assert.Equal(t, apart, s.rome.Inventory())
	}
}

// TestWithdrawReportsWhatIsLeft checks the case in which the consumer has access through other bindings. The objects
// that refractctl has created must still be withdrawn, and the error must list the remaining bindings.
func TestWithdrawReportsWhatIsLeft(t *testing.T) {
	t.Parallel()
	s, _ := joined(t)
	s.milan.Put(t, &rbacv1.ClusterRoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "rome"}}})
	rome, err := cluster.Absent("rome")
	require.NoError(t, err)
	o := s.options()
	o.Consumer = rome
	removal, err := o.Withdraw(t.Context())
	require.ErrorContains(t, err, "rome still has access, by ClusterRoleBinding by-hand: delete it with kubectl")
	assert.Equal(t, []Object{{"milan", "ClusterRoleBinding", "", "by-hand"}}, removal.Left)
	assert.NotEmpty(t, removal.Removed)
	s.milan.Remove(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), "", "by-hand")
	_, err = o.Withdraw(t.Context())
	require.ErrorContains(t, err, "there is no peering with rome")
}

// TestCreateNodeAndWithdrawItsRequest checks that one more virtual node can be created with and without access to the
// provider, and that its resource request is withdrawn when the node is removed.
func TestCreateNodeAndWithdrawItsRequest(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]bool{"with access": false, "without access": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStubs(t)
			more := s.options()
			more.VirtualNode, more.ProviderID = "milan-gpu", "milan"
			if absent {
				var err error
				more.Provider, err = cluster.Absent("milan")
				require.NoError(t, err)
			}
			_, err := more.CreateNode(t.Context())
			require.ErrorContains(t, err, "join milan first with refractctl peer")
			require.NoError(t, s.peer(s.options()))
			before := s.inventory()
			dry := *more
			dry.DryRun = true
			_, err = dry.CreateNode(t.Context())
			require.NoError(t, err)
			assert.Equal(t, before, s.inventory())
			var after []string
			for range 2 {
				made, err := more.CreateNode(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "milan-gpu", made.VirtualNode)
				if after != nil {
					assert.Equal(t, after, s.inventory())
				}
				after = s.inventory()
			}
			taken := *more
			taken.VirtualNode = "worker"
			_, err = taken.CreateNode(t.Context())
			require.ErrorContains(t, err, "there is a node worker")

			withdraw := s.options()
			withdraw.VirtualNode, withdraw.ProviderID = "milan-gpu", "milan"
			for _, exists := range []bool{!absent, false} {
				request, err := withdraw.FindRequest(t.Context())
				require.NoError(t, err)
				found, removal, err := request.Withdraw(t.Context())
				require.NoError(t, err)
				assert.Equal(t, exists, found)
				assert.Equal(t, exists, len(removal.Removed) == 1)
			}
			withdraw.VirtualNode = "milan"
			request, err := withdraw.FindRequest(t.Context())
			require.NoError(t, err)
			found, removal, err := request.Withdraw(t.Context())
			require.NoError(t, err)
			assert.True(t, found, "the request of the first virtual node stays")
			assert.Empty(t, removal.Removed)
			withdraw.ProviderID = "turin"
			_, err = withdraw.FindRequest(t.Context())
			require.ErrorContains(t, err, `cluster milan has the id "milan", and virtual node milan is of "turin"`)
		})
	}
}

// TestOffers checks that the response of the provider determines the settings of the virtual node.
func TestOffers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status    auth.ResourceSliceStatus
		want      string // text that the progress must contain
		wantError string
		cpu       string
	}{
		"granted": {auth.ResourceSliceStatus{Resources: corev1.ResourceList{"cpu": resource.MustParse("2")}, Conditions: []auth.ResourceSliceCondition{{Type: auth.ResourcesCondition, Status: auth.ResourceSliceAccepted}}}, "", "", "2"},
		"more":    {auth.ResourceSliceStatus{Resources: corev1.ResourceList{"cpu": resource.MustParse("3")}, Conditions: []auth.ResourceSliceCondition{{Type: auth.ResourcesCondition, Status: auth.ResourceSliceAccepted}}}, "", "", "2"},
		"fewer": {auth.ResourceSliceStatus{Resources: corev1.ResourceList{"cpu": resource.MustParse("1")}, Conditions: []auth.ResourceSliceCondition{{Type: auth.ResourcesCondition, Status: auth.ResourceSliceAccepted, Message: "only one is free"}}},
			"warning: granted fewer resources than requested", "", "1"},
		"denied": {auth.ResourceSliceStatus{Conditions: []auth.ResourceSliceCondition{{Type: auth.ResourcesCondition, Status: auth.ResourceSliceDenied, Message: "full"}}}, "", `cluster milan denies ResourceSlice milan: "full"`, ""},
		"none":   {auth.ResourceSliceStatus{}, "warning: milan has not answered the ResourceSlice of virtual node milan", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStubs(t)
			p := newPair(inspected(t, "rome", access(s.rome)), inspected(t, "milan", access(s.milan)), s.record)
			node := &nodeTerms{name: "milan", resources: corev1.ResourceList{"cpu": resource.MustParse("2")}}
			slice := p.nodeRequest(node.name, node.resources)
			slice.Status = test.status
			offer, err := p.readOffer(slice, true, node)
			if test.wantError != "" {
				require.ErrorContains(t, err, test.wantError)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want != "", s.said(test.want) && test.want != "", s.lines)
			if test.cpu != "" {
				assert.Equal(t, test.cpu, offer.Resources.Cpu().String())
			}
		})
	}
}

// TestCompare checks that comparing two clusters and checking the user's permissions change nothing.
func TestCompare(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	compared, err := s.options().Compare(t.Context())
	require.NoError(t, err)
	assert.Equal(t, &Comparison{ConsumerID: "rome", ProviderID: "milan"}, compared)
	o := s.options()
	o.Provider = o.Consumer
	compared, err = o.Compare(t.Context())
	require.NoError(t, err)
	assert.ErrorContains(t, compared.Sides, "are the same cluster")
	require.NoError(t, CheckRights(t.Context(), o.Consumer))
	s.rome.RefuseRights(func(a authorizationv1.ResourceAttributes) bool { return a.Subresource == "token" })
	assert.ErrorContains(t, CheckRights(t.Context(), o.Consumer), "you may not create serviceaccounts/token")
	assert.Zero(t, s.writes())
}

// TestPullSecretsAreCopied checks that the image pull Secrets of the installation are copied to the namespace of the
// virtual kubelet. There is only a warning about a Secret that cannot be used.
func TestPullSecretsAreCopied(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	s.rome.Put(t, &offloading.VkOptionsTemplate{TypeMeta: metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: "VkOptionsTemplate"}, ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "default"},
		Spec: offloading.VkOptionsTemplateSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}, {Name: "opaque"}, {Name: "missing"}}}})
	for name, kind := range map[string]corev1.SecretType{"registry": corev1.SecretTypeDockerConfigJson, "opaque": corev1.SecretTypeOpaque} {
		s.rome.Put(t, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name}, Type: kind})
	}
	apart := s.inventory()
	require.NoError(t, s.peer(s.options()))
	assert.True(t, s.said("Secret liqo/opaque of common.imagePullSecrets has type Opaque"))
	assert.True(t, s.said("image pull secret liqo/missing does not exist"))
	copied := &corev1.Secret{}
	require.NoError(t, s.rome.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "registry"}, copied))
	assert.True(t, cluster.IsOurs(copied))
	require.NoError(t, s.unpeer(s.options()))
	assert.Equal(t, apart, s.inventory())
}

// TestReportExpiry checks that the report about the expiry of credentials states who renews them.
func TestReportExpiry(t *testing.T) {
	t.Parallel()
	s := newStubs(t)
	o := s.options()
	o.Credentials = identity.Certificates
	require.NoError(t, s.peer(o), "without the role for renewals")
	assert.True(t, s.said("it is renewed automatically if you first set authentication.enabled of the chart in milan"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Peer(ctx)
	require.ErrorContains(t, err, "interrupted; run the command again to continue")
}

// inspected returns the Side of a cluster that has the given ID and no release.
func inspected(t *testing.T, id string, c *cluster.Cluster) *cluster.Side {
	t.Helper()
	return &cluster.Side{Cluster: c, Installation: &release.Installation{ClusterID: id, Namespace: "liqo", RolePrefix: "liqo", ServiceAccount: "refract-controller-manager"}}
}

// absent returns a cluster that cannot be accessed.
func absent(t *testing.T, id string) *cluster.Side {
	t.Helper()
	c, err := cluster.Absent(id)
	require.NoError(t, err)
	s, err := c.Inspect(t.Context())
	require.NoError(t, err)
	return s
}

// TestTenantOfAPeerIsLeft checks that the tenant namespace of a peer is kept when the peer is no longer a provider, if
// the peer has a Tenant in this cluster. Consumers that run Liqo have such a Tenant.
func TestTenantOfAPeerIsLeft(t *testing.T) {
	connection := side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0])
	rome := &cluster.Side{Cluster: connection, Installation: &release.Installation{ClusterID: "rome", Namespace: "liqo"}}
	milan := absent(t, "milan")
	require.NoError(t, cluster.NewWriter(rome).CreateTenant(t.Context(), milan))
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: auth.TenantSpec{ClusterID: "milan"}}
	require.NoError(t, rome.Client.Create(t.Context(), tenant))
	leave := func() {
		t.Helper()
		l := newPair(rome, milan, func(line string) { t.Log(line) }).beginRemoval(&Options{})
		wait, err := l.leave(t.Context(), l.atConsumer, "milan", nil)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
	}
	leave()
	namespace, key := &corev1.Namespace{}, client.ObjectKey{Name: "liqo-tenant-milan"}
	require.NoError(t, rome.Client.Get(t.Context(), key, namespace))
	assert.Nil(t, namespace.DeletionTimestamp)

	require.NoError(t, rome.Client.Delete(t.Context(), tenant))
	leave()
	assert.Error(t, rome.Client.Get(t.Context(), key, namespace))
}

// TestTenantOfAConsumerWithoutAccess checks that the Tenant of a consumer that refractctl has admitted does not keep
// the tenant namespace after the consumer's access was removed.
func TestTenantOfAConsumerWithoutAccess(t *testing.T) {
	milan := inspected(t, "milan", side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0]))
	rome := tenant.Tenant{Provider: milan, Consumer: "rome"}
	writer := cluster.NewWriter(milan)
	require.NoError(t, writer.CreateTenant(t.Context(), absent(t, "rome")))
	require.NoError(t, writer.Apply(t.Context(), rome.Access()...))
	require.NoError(t, milan.Client.Create(t.Context(), &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: rome.Namespace(), Name: "rome", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "rome", TenantCondition: auth.TenantDrained}}))
	remover := cluster.NewRemover(milan, false)
	shared, err := isStillPeered(t.Context(), remover, "rome")
	require.NoError(t, err)
	require.True(t, shared)
	require.NoError(t, remover.Remove(t.Context(), rome.Access()...))
	shared, err = isStillPeered(t.Context(), remover, "rome")
	require.NoError(t, err)
	assert.False(t, shared)
}
