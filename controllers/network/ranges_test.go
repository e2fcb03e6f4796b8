// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/refract-project/refract/api/ipam/v1alpha1"
	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// TestFindLocal checks that the ranges of this cluster are unknown until all of its Networks have a range. If only some
// of them were published, the peer could not reach all pods.
func TestFindLocal(t *testing.T) {
	network := func(name, kind string, cidr api.CIDR) ipamv1alpha1.Network {
		n := ipamv1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: map[string]string{wire.NetworkTypeLabel: kind}},
		}
		n.Status.CIDR = cidr
		return n
	}
	all := []ipamv1alpha1.Network{
		network("more-pods", wire.PodNetwork, "10.245.0.0/16"), network("pods", wire.PodNetwork, "10.244.0.0/16"),
		network("external", wire.ExternalNetwork, "10.70.0.0/16"), network("services", wire.ServiceNetwork, ""),
	}
	local, err := findLocal(all)
	require.NoError(t, err)
	assert.Equal(t, localRanges{pod: []api.CIDR{"10.244.0.0/16", "10.245.0.0/16"}, external: []api.CIDR{"10.70.0.0/16"}}, local)
	all[1].Status.CIDR = ""
	_, err = findLocal(all)
	require.ErrorContains(t, err, "liqo/pods")
	_, err = findLocal(all[:1])
	require.ErrorContains(t, err, wire.ExternalNetwork)
	all[1].DeletionTimestamp = &metav1.Time{}
	local, err = findLocal(all)
	require.NoError(t, err)
	assert.Equal(t, []api.CIDR{"10.245.0.0/16"}, local.pod)
}
