// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/test/support/testenv"
)

// side returns the access to a test cluster.
func side(t *testing.T, api *testenv.Cluster) *Cluster {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	c, err := client.New(api.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &Cluster{Name: api.Name(), Config: api.Config(), Client: c, Clientset: kubernetes.NewForConfigOrDie(api.Config())}
}

// networkDefinition is the CRD of Liqo's Networks, with only the fields that this package reads.
const networkDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: networks.ipam.liqo.io}
spec:
  group: ipam.liqo.io
  scope: Namespaced
  names: {kind: Network, listKind: NetworkList, plural: networks, singular: network, shortNames: [net]}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

// TestRangesOfACluster checks that the ranges of a cluster are read from its nodes and ServiceCIDRs, or from Liqo's
// Networks.
func TestRangesOfACluster(t *testing.T) {
	api := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0]
	rome := side(t, api)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}}}
	require.NoError(t, rome.Client.Create(t.Context(), node))
	ranges := func(cidrs ...string) (all []netip.Prefix) {
		for _, cidr := range cidrs {
			all = append(all, netip.MustParsePrefix(cidr))
		}
		return all
	}
	pods, err := rome.PodRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.1.0.0/24"), pods)
	services, err := rome.ServiceRanges(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, services)

	definition := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(networkDefinition), &definition.Object))
	require.NoError(t, rome.Client.Create(t.Context(), definition))
	declare := func(name string, labels map[string]string, cidr any) {
		t.Helper()
		network := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": cidr}}}
		network.SetAPIVersion("ipam.liqo.io/v1alpha1")
		network.SetKind("Network")
		network.SetNamespace(metav1.NamespaceDefault)
		network.SetName(name)
		network.SetLabels(labels)
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, rome.Client.Create(t.Context(), network)) }, time.Minute, 100*time.Millisecond)
	}
	declare("milan-pod", nil, "10.9.0.0/16") // this is the Network of another cluster
	pods, err = rome.PodRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.1.0.0/24"), pods)
	declare("pod-cidr", map[string]string{"ipam.liqo.io/network-type": "pod-cidr"}, "10.1.0.0/16")
	declare("service-cidr", map[string]string{"ipam.liqo.io/network-type": "service-cidr"}, "10.100.0.0/14")
	pods, err = rome.PodRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.1.0.0/16"), pods)
	services, err = rome.ServiceRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.100.0.0/14"), services)

	declare("malformed", map[string]string{"ipam.liqo.io/network-type": "pod-cidr"}, int64(16))
	_, err = rome.PodRanges(t.Context())
	assert.ErrorContains(t, err, "reading Network default/malformed")
}

// TestObjectOfAnotherRunIsNotTakenBack checks that if a command runs twice at the same time, each object is created by
// only one of the runs, and that only this run removes the object if it fails.
func TestObjectOfAnotherRunIsNotTakenBack(t *testing.T) {
	api := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0]
	connection := side(t, api)
	watching, err := client.NewWithWatch(api.Config(), client.Options{Scheme: connection.Client.Scheme()})
	require.NoError(t, err)
	object := func() client.Object {
		return &corev1.Namespace{ObjectMeta: Meta("", "liqo-tenant-milan", nil)}
	}
	rome, other := NewWriter(&Side{Cluster: connection}), NewWriter(&Side{Cluster: side(t, api)})
	var once sync.Once
	connection.Client = interceptor.NewClient(watching, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, applied runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		once.Do(func() { assert.NoError(t, other.Apply(ctx, object())) })
		return c.Apply(ctx, applied, options...)
	}})
	require.NoError(t, rome.Apply(t.Context(), object()))
	assert.Len(t, other.created, 1)
	assert.Empty(t, rome.created)
}
