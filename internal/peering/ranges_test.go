// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/internal/testenv"
)

// networkDefinition is the CRD of Liqo's Networks, reduced to the fields that are read here.
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

// The ranges of a cluster are read from its nodes and ServiceCIDRs, or from the Networks of Liqo's network module.
func TestRangesOfACluster(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0]
	rome := side(t, cluster)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}}}
	require.NoError(t, rome.Client.Create(t.Context(), node))
	ranges := func(cidrs ...string) (all []netip.Prefix) {
		for _, cidr := range cidrs {
			all = append(all, netip.MustParsePrefix(cidr))
		}
		return all
	}
	pods, err := rome.podRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.1.0.0/24"), pods)
	services, err := rome.serviceRanges(t.Context())
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
	declare("milan-pod", nil, "10.9.0.0/16") // a Network of another cluster
	pods, err = rome.podRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.1.0.0/24"), pods)
	declare("pod-cidr", map[string]string{"ipam.liqo.io/network-type": "pod-cidr"}, "10.1.0.0/16")
	declare("service-cidr", map[string]string{"ipam.liqo.io/network-type": "service-cidr"}, "10.100.0.0/14")
	pods, err = rome.podRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.1.0.0/16"), pods)
	services, err = rome.serviceRanges(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ranges("10.100.0.0/14"), services)

	declare("malformed", map[string]string{"ipam.liqo.io/network-type": "pod-cidr"}, int64(16))
	_, err = rome.podRanges(t.Context())
	assert.ErrorContains(t, err, "reading Network default/malformed")
}
