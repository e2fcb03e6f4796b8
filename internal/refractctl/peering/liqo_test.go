// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/release"
	"github.com/refract-project/refract/test/support/testenv"
)

// asLiqo runs controllers on a provider that respond to consumers as Liqo does.
func asLiqo(t *testing.T, api *testenv.Cluster) {
	t.Helper()
	options, err := controllers.ManagerOptions(api.Config())
	require.NoError(t, err)
	options.Metrics, options.HealthProbeBindAddress = metricsserver.Options{BindAddress: "0"}, "0"
	mgr, err := manager.New(api.Config(), options)
	require.NoError(t, err)
	settings := controllers.Options{ClusterID: "milan", ShadowPodWorkers: 1, ShadowEndpointSliceWorkers: 1, NamespaceWorkers: 1, RemoteClusterRole: "liqo-virtual-kubelet-remote", Clock: clock.RealClock{}}
	settings.ForeignClusters.Workers, settings.VirtualNodes.Workers = 1, 1
	settings.Authentication.Enabled, settings.ResourceSlices.Enabled, settings.Authentication.APIServer.URL = true, true, api.Config().Host
	settings.Authentication.Offer.Limit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	require.NoError(t, controllers.Register(ctx, mgr, settings))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { stop(); assert.NoError(t, <-ended) })
}

func side(t *testing.T, api *testenv.Cluster) *cluster.Cluster {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	c, err := client.New(api.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &cluster.Cluster{Name: api.Name(), Config: api.Config(), Client: c, Clientset: kubernetes.NewForConfigOrDie(api.Config())}
}

// TestProviderThatAnswersAsLiqo checks that the handshake and the resource request succeed and can be repeated, and
// that no objects are left after the end of the peering.
func TestProviderThatAnswersAsLiqo(t *testing.T) {
	environment := testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true}
	clusters := testenv.ForTest(t, environment, environment)
	asLiqo(t, clusters[1])
	connection := side(t, clusters[1])
	_, err := connection.InspectAsProvider(t.Context())
	require.ErrorIs(t, err, release.ErrNotInstalled, "neither Refract nor Liqo")
	id := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "liqo-clusterid-configmap",
		Labels: map[string]string{"app.kubernetes.io/name": "clusterid-configmap", "app.kubernetes.io/version": "v0.10.3"}}, Data: map[string]string{"CLUSTER_ID": "milan"}}
	require.NoError(t, connection.Client.Create(t.Context(), id))
	_, err = connection.InspectAsProvider(t.Context())
	require.ErrorContains(t, err, "runs Liqo v0.10.3, which cannot be joined: upgrade it to 1.0.0 or later")
	id.Labels["app.kubernetes.io/version"] = "v1.1.2"
	require.NoError(t, connection.Client.Update(t.Context(), id))
	milan, err := connection.InspectAsProvider(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "milan", milan.ID())

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	rome := inspected(t, "rome", side(t, clusters[0]))
	j := newPair(rome, milan, func(line string) { t.Log(line) }).beginJoin()
	demand := &terms{nodeTerms: nodeTerms{name: "milan", resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}, credentials: identity.Certificates, address: j.address(&Options{})}
	require.NoError(t, j.checkProviderRights(ctx, identity.Certificates))
	require.NoError(t, j.atConsumer.CreateTenant(ctx, milan))
	require.NoError(t, j.admitConsumer(ctx, nil, nil))
	obtain := func() (*identity.Identity, error) { return demand.address.Obtain(ctx, j.issuer(identity.Certificates)) }
	first, err := obtain()
	require.NoError(t, err)
	assert.True(t, first.IsNew)
	require.NoError(t, j.storeAccess(ctx, demand, first, false))
	_, err = j.shareLiqoSlice(ctx, demand)
	require.NoError(t, err)

	validity := func(kubeconfig []byte, subject clientcert.Subject) credentials.Validity {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		require.NoError(t, err)
		return clientcert.ValidityFor(config.CertData, subject, nil)
	}
	assert.True(t, validity(first.Kubeconfig, clientcert.Subject{CommonName: "rome", Organization: "liqo.io"}).Known())
	node := &corev1.Secret{}
	require.NoError(t, rome.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "kubeconfig-resourceslice-milan"}, node))
	ofNode := clientcert.Subject{CommonName: auth.ResourceSliceUser("milan", "rome"), Organization: "rome"}
	former := validity(node.Data[wire.KubeconfigSecretKey], ofNode)
	assert.True(t, former.Known())

	t.Run("again", func(t *testing.T) {
		known, err := obtain()
		require.NoError(t, err)
		assert.False(t, known.IsNew)
		assert.Equal(t, first.Kubeconfig, known.Kubeconfig)
		demand.resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
		offered, err := j.shareLiqoSlice(ctx, demand)
		require.NoError(t, err)
		assert.Equal(t, "3", offered.resources.Cpu().String())
	})

	t.Run("a lost Secret", func(t *testing.T) {
		require.NoError(t, rome.Client.Delete(ctx, j.accessSecret("", nil, false)))
		known, err := obtain()
		require.NoError(t, err)
		assert.True(t, known.IsNew)
		assert.Equal(t, first.Expires, known.Expires, "nothing is signed for it")
	})

	t.Run("more than the provider gives", func(t *testing.T) {
		greedy := *demand
		greedy.name, greedy.resources = "greedy", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("40")}
		_, err := j.shareLiqoSlice(ctx, &greedy)
		assert.ErrorContains(t, err, "but only 1 of the 4")
	})

	t.Run("renewal", func(t *testing.T) {
		key, _, err := j.ensureKey(ctx)
		require.NoError(t, err)
		request, err := clientcert.New(ofNode, key)
		require.NoError(t, err)
		params, err := j.renewAtLiqo(ctx, auth.RenewSpec{IdentityType: auth.ResourceSliceIdentityType, CSR: request, ResourceSliceRef: &corev1.LocalObjectReference{Name: "milan"}})
		require.NoError(t, err)
		assert.True(t, clientcert.ValidityFor(params.SignedCRT, ofNode, key.Public()).Known())
		renews := &auth.RenewList{}
		require.NoError(t, milan.Client.List(ctx, renews))
		assert.Empty(t, renews.Items, "it is removed when it is answered")
	})

	t.Run("one more virtual node by name", func(t *testing.T) {
		asLiqo, err := j.isJoinedAsLiqo(ctx)
		require.NoError(t, err)
		assert.True(t, asLiqo)
	})

	t.Run("the end", func(t *testing.T) {
		objects, err := j.liqoObjects(ctx)
		require.NoError(t, err)
		require.NoError(t, j.atProvider.Remove(ctx, objects...))
		for _, object := range objects {
			testenv.Eventually(t, func() error {
				if err := milan.Client.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
					return assert.AnError
				}
				return nil
			})
		}
	})
}

// TestLabelsOfAProvider checks that reserved labels, such as the roles of nodes, are not copied from the provider.
func TestLabelsOfAProvider(t *testing.T) {
	kept := map[string]string{"topology.kubernetes.io/zone": "eu-1", "example.com/tier": "gold", "team": "web"}
	offered := map[string]string{"node-role.kubernetes.io/control-plane": "", "node-restriction.kubernetes.io/pci": "true", "kubernetes.io/hostname": "db-1", "node.k8s.io/a": "b"}
	maps.Copy(offered, kept)
	assert.Equal(t, kept, harmlessLabels(offered))
}

// TestLabelsOfALiqoProvider checks that labels of the provider are copied only if the user accepts them or the virtual
// node already has them.
func TestLabelsOfALiqoProvider(t *testing.T) {
	var said []string
	p := newPair(absent(t, "x"), absent(t, "y"), func(line string) { said = append(said, line) })
	present := nodeTerms{accepted: negotiation.Acceptance{"team"}, presentLabels: map[string]string{"tier": "gold", "zone": "a"}}
	after := p.acceptLiqoOffer(present, &auth.ResourceSliceStatus{NodeLabels: map[string]string{"team": "web", "tier": "gold", "zone": "b", "vault": "yes"}})
	assert.Equal(t, map[string]string{"team": "web", "tier": "gold"}, after.node.Labels)
	assert.Contains(t, strings.Join(said, "\n"), "vault=yes, zone=b")
}
