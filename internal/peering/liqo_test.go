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
	"github.com/refract-project/refract/internal/release"
	"github.com/refract-project/refract/internal/testenv"
)

// asLiqo runs controllers on a provider that answer consumers as Liqo does.
func asLiqo(t *testing.T, cluster *testenv.Cluster) {
	t.Helper()
	options, err := controllers.ManagerOptions(cluster.Config())
	require.NoError(t, err)
	options.Metrics, options.HealthProbeBindAddress = metricsserver.Options{BindAddress: "0"}, "0"
	mgr, err := manager.New(cluster.Config(), options)
	require.NoError(t, err)
	settings := controllers.Options{ClusterID: "milan", ShadowPodWorkers: 1, ShadowEndpointSliceWorkers: 1, NamespaceWorkers: 1, RemoteClusterRole: "liqo-virtual-kubelet-remote", Clock: clock.RealClock{}}
	settings.ForeignClusters.Workers, settings.VirtualNodes.Workers = 1, 1
	settings.Authentication.Enabled, settings.ResourceSlices.Enabled, settings.Authentication.APIServer.URL = true, true, cluster.Config().Host
	settings.Authentication.Offer.Limit = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	require.NoError(t, controllers.Register(ctx, mgr, settings))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { stop(); assert.NoError(t, <-ended) })
}

func side(t *testing.T, cluster *testenv.Cluster) *Cluster {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &Cluster{Name: cluster.Name(), Config: cluster.Config(), Client: c, Clientset: kubernetes.NewForConfigOrDie(cluster.Config())}
}

// TestProviderThatAnswersAsLiqo tests the handshake, the resource request, the repetition of both, and the end of the
// peering.
func TestProviderThatAnswersAsLiqo(t *testing.T) {
	environment := testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}
	clusters := testenv.ForTest(t, environment, environment)
	asLiqo(t, clusters[1])
	rome, milan := side(t, clusters[0]), side(t, clusters[1])
	rome.installation = &release.Installation{ClusterID: "rome", Namespace: "liqo", ServiceAccount: "manager"}
	require.ErrorIs(t, milan.inspectAsProvider(t.Context()), release.ErrNotInstalled, "neither Refract nor Liqo")
	id := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "liqo-clusterid-configmap",
		Labels: map[string]string{"app.kubernetes.io/name": "clusterid-configmap", "app.kubernetes.io/version": "v0.10.3"}}, Data: map[string]string{"CLUSTER_ID": "milan"}}
	require.NoError(t, milan.Client.Create(t.Context(), id))
	err := milan.inspectAsProvider(t.Context())
	require.ErrorContains(t, err, "runs Liqo v0.10.3, which cannot be joined: upgrade it to 1.0.0 or later")
	id.Labels["app.kubernetes.io/version"] = "v1.1.2"
	require.NoError(t, milan.Client.Update(t.Context(), id))
	require.NoError(t, milan.inspectAsProvider(t.Context()))
	assert.Equal(t, "milan", milan.ID())

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o := &Options{Consumer: rome, Provider: milan, VirtualNode: "milan", Credentials: Certificates, Progress: func(line string) { t.Log(line) },
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	require.NoError(t, o.providerRights(ctx))
	require.NoError(t, rome.makeTenant(ctx, milan))
	require.NoError(t, o.admitConsumer(ctx))
	first, isNew, err := o.identity(ctx)
	require.NoError(t, err)
	assert.True(t, isNew)
	require.NoError(t, rome.apply(ctx, o.secret(first.kubeconfig)))
	require.NoError(t, o.share(ctx))

	validity := func(kubeconfig []byte, subject clientcert.Subject) credentials.Validity {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		require.NoError(t, err)
		return clientcert.ValidityFor(config.CertData, subject, nil)
	}
	assert.True(t, validity(first.kubeconfig, clientcert.Subject{CommonName: "rome", Organization: "liqo.io"}).Known())
	node := &corev1.Secret{}
	require.NoError(t, rome.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "kubeconfig-resourceslice-milan"}, node))
	ofNode := clientcert.Subject{CommonName: auth.ResourceSliceUser("milan", "rome"), Organization: "rome"}
	former := validity(node.Data[wire.KubeconfigSecretKey], ofNode)
	assert.True(t, former.Known())

	t.Run("again", func(t *testing.T) {
		known, isNew, err := o.identity(ctx)
		require.NoError(t, err)
		assert.False(t, isNew)
		assert.Equal(t, first.kubeconfig, known.kubeconfig)
		o.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
		require.NoError(t, o.share(ctx))
		assert.Equal(t, "3", o.Resources.Cpu().String())
	})

	t.Run("a lost Secret", func(t *testing.T) {
		require.NoError(t, rome.Client.Delete(ctx, o.secret(nil)))
		known, isNew, err := o.identity(ctx)
		require.NoError(t, err)
		assert.True(t, isNew)
		assert.Equal(t, first.expires, known.expires, "nothing is signed for it")
	})

	t.Run("more than the provider gives", func(t *testing.T) {
		greedy := *o
		greedy.VirtualNode, greedy.Resources = "greedy", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("40")}
		assert.ErrorContains(t, greedy.share(ctx), "but only 1 of the 4")
	})

	t.Run("renewal", func(t *testing.T) {
		key, _, err := o.key(ctx)
		require.NoError(t, err)
		request, err := clientcert.New(ofNode, key)
		require.NoError(t, err)
		params, err := o.renew(ctx, auth.RenewSpec{IdentityType: auth.ResourceSliceIdentityType, CSR: request, ResourceSliceRef: &corev1.LocalObjectReference{Name: "milan"}})
		require.NoError(t, err)
		assert.True(t, clientcert.ValidityFor(params.SignedCRT, ofNode, key.Public()).Known())
		renews := &auth.RenewList{}
		require.NoError(t, milan.Client.List(ctx, renews))
		assert.Empty(t, renews.Items, "it is removed when it is answered")
	})

	t.Run("one more virtual node by name", func(t *testing.T) {
		asLiqo, err := o.joinedAsLiqo(ctx)
		require.NoError(t, err)
		assert.True(t, asLiqo)
	})

	t.Run("the end", func(t *testing.T) {
		objects, err := o.atLiqo(ctx)
		require.NoError(t, err)
		require.NoError(t, milan.removeAll(ctx, objects))
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

// TestLabelsOfAProvider tests that labels with a meaning for Kubernetes are not taken over from the provider.
func TestLabelsOfAProvider(t *testing.T) {
	kept := map[string]string{"topology.kubernetes.io/zone": "eu-1", "example.com/tier": "gold", "team": "web"}
	offered := map[string]string{"node-role.kubernetes.io/control-plane": "", "node-restriction.kubernetes.io/pci": "true", "kubernetes.io/hostname": "db-1", "node.k8s.io/a": "b"}
	maps.Copy(offered, kept)
	assert.Equal(t, kept, harmless(offered))
}

// TestLabelsOfALiqoProvider tests that only labels are taken over that the user accepts or that the virtual node
// already has.
func TestLabelsOfALiqoProvider(t *testing.T) {
	side := func() *Cluster { return &Cluster{installation: &release.Installation{ClusterID: "x"}} }
	o := &Options{Consumer: side(), Provider: side(), AcceptedLabels: negotiation.Acceptance{"team"}, nodeLabels: map[string]string{"tier": "gold", "zone": "a"}}
	var said []string
	o.Progress = func(line string) { said = append(said, line) }
	o.take(&auth.ResourceSliceStatus{NodeLabels: map[string]string{"team": "web", "tier": "gold", "zone": "b", "vault": "yes"}})
	assert.Equal(t, map[string]string{"team": "web", "tier": "gold"}, o.Node.Labels)
	assert.Contains(t, strings.Join(said, "\n"), "vault=yes, zone=b")
}
