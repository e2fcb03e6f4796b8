// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resourceshare_test

import (
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var (
	options  = testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}
	consumer = controllertest.Cluster{ID: "rome", Options: options}
	provider = controllertest.Cluster{ID: "milan", Options: options}
)

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer, &provider)) }

// peering contains a tenant namespace in each of the two clusters. rome has the access to milan that Liqo grants.
type peering struct {
	*testing.T
	here, there string
	kubeconfig  []byte
	binding     *rbacv1.RoleBinding
}

func peer(t *testing.T) *peering {
	t.Helper()
	p := &peering{T: t, here: consumer.Namespace(t)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-", Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: consumer.ID}}}
	provider.Create(t, namespace)
	p.there = namespace.Name
	authentication := rbac.Manager{Subject: rbac.User("liqo")}.Authentication()
	require.NoError(t, provider.Grant(t.Context(), authentication[2:]...)) // grants only the roles for consumers
	p.activate()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, provider.KubeconfigFor(path, consumer.ID, wire.ControlPlaneGroup))
	var err error
	p.kubeconfig, err = os.ReadFile(path)
	require.NoError(t, err)
	const name = "kubeconfig-controlplane-milan"
	require.NoError(t, consumer.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.Provider(p.here, name)...))
	consumer.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: name, Annotations: map[string]string{wire.RemoteTenantNamespaceAnnotation: p.there}},
		Data:       map[string][]byte{wire.KubeconfigSecretKey: p.kubeconfig},
	})
	return p
}

// activate grants the consumer's controllers access, as Liqo's controllers do.
func (p *peering) activate() {
	p.Helper()
	p.binding = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.there, Name: "liqo-remote-controlplane-rome"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-tenant"}, Subjects: []rbacv1.Subject{rbac.User(consumer.ID)}}
	provider.Create(p.T, p.binding)
}

// drain revokes the access of the consumer's controllers, and deletes the ResourceSlices.
func (p *peering) drain() {
	p.Helper()
	provider.Delete(p.T, p.binding)
	require.NoError(p, provider.Client.DeleteAllOf(p.Context(), &auth.ResourceSlice{}, client.InNamespace(p.there)))
}

// node creates a VirtualNode as refractctl peer does.
func (p *peering) node(name, secret, managedBy string) *offloading.VirtualNode {
	p.Helper()
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": managedBy}},
		Spec: offloading.VirtualNodeSpec{ClusterID: "milan", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: secret},
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"cpu": resource.MustParse("2")}}},
	}
	consumer.Create(p.T, vn)
	return vn
}

func (p *peering) slice(name string) *auth.ResourceSlice {
	return &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: p.there, Name: name}}
}

// await waits until there is a ResourceSlice, and returns it. If before is not nil, the ResourceSlice must have another
// UID than before.
func (p *peering) await(name string, before *auth.ResourceSlice) *auth.ResourceSlice {
	p.Helper()
	slice := p.slice(name)
	controllertest.Eventually(p.T, "ResourceSlice "+name, func() error {
		if err := provider.Client.Get(p.Context(), client.ObjectKeyFromObject(slice), slice); err != nil {
			return err
		}
		if before != nil && slice.UID == before.UID {
			return errors.New("it is the former one")
		}
		return nil
	})
	return slice
}

func start(t *testing.T, pause time.Duration) *controllertest.Manager {
	return consumer.StartManager(t, func(o *controllers.Options) { o.ResourceShares.Pause = pause })
}

// TestAShareComesBackAfterADrain lets the provider drain the consumer and activate it again, as Liqo's controllers do.
// The ResourceSlice must be restored without any command by a user.
func TestAShareComesBackAfterADrain(t *testing.T) {
	p := peer(t)
	start(t, 100*time.Millisecond)
	p.node("milan", "kubeconfig-resourceslice-milan", wire.ManagedByRefractctl)
	first := p.await("milan", nil)
	p.drain()
	consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "AccessWithdrawn")
	assert.True(t, apierrors.IsNotFound(provider.Client.Get(t.Context(), client.ObjectKeyFromObject(first), p.slice("milan"))))
	p.activate()
	again := p.await("milan", first)
	consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "ResourceSliceRestored")

	assert.Equal(t, first.Labels, again.Labels)
	assert.Equal(t, map[string]string{"app.kubernetes.io/managed-by": wire.ManagedByRefractctl, wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: "rome", wire.RemoteClusterIDLabel: "rome"}, again.Labels)
	assert.True(t, again.Spec.Resources.Cpu().Equal(resource.MustParse("2")))
	config, err := clientcmd.RESTConfigFromKubeConfig(p.kubeconfig)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	require.NoError(t, err)
	public := pair.PrivateKey.(crypto.Signer)
	_, err = clientcert.Check(again.Spec.CSR, clientcert.Subject{CommonName: auth.ResourceSliceUser("milan", "rome"), Organization: "rome"}, public.Public())
	assert.NoError(t, err, "Liqo accepts the key of the Tenant, and no other")

	provider.PatchStatus(t, again, `{"status":{"conditions":[{"type":"Authentication","status":"Accepted"},{"type":"Resources","status":"Denied","message":"no room"}]}}`)
	assert.Contains(t, consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "milan", "ResourceSliceDenied").Note, "no room")
}

// TestSharesThatAreNotRestored checks that no ResourceSlice is created for a virtual node that is deleted or whose
// resources were not requested by refractctl. If a provider deletes the ResourceSlice immediately, the controller must
// pause before it recreates it.
func TestSharesThatAreNotRestored(t *testing.T) {
	p := peer(t)
	const pause = 2 * time.Second
	start(t, pause)
	p.node("token", "kubeconfig-controlplane-milan", wire.ManagedByRefractctl)
	p.node("declared", "kubeconfig-resourceslice-declared", "Helm")
	begun := time.Now()
	p.node("milan", "kubeconfig-resourceslice-milan", wire.ManagedByRefractctl)
	slice := p.await("milan", nil)
	assert.GreaterOrEqual(t, time.Since(begun), pause)
	begun = time.Now()
	provider.Delete(t, slice)
	again := p.await("milan", slice)
	assert.GreaterOrEqual(t, time.Since(begun), 2*pause)
	begun = time.Now()
	provider.Delete(t, again)
	p.await("milan", again)
	assert.GreaterOrEqual(t, time.Since(begun), 4*pause)
	p.node("last", "kubeconfig-resourceslice-last", wire.ManagedByRefractctl)
	consumer.AwaitEvent(t, p.here, offloading.VirtualNodeKind, "last", "ResourceSliceRestored")
	events := consumer.Events(t, p.here, offloading.VirtualNodeKind, "milan")
	assert.Len(t, events, 1)
	assert.Nil(t, events[0].Series)
	for _, name := range []string{"token", "declared"} {
		err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(p.slice(name)), p.slice(name))
		assert.True(t, apierrors.IsNotFound(err), fmt.Sprintf("ResourceSlice %s: %v", name, err))
	}
}
