// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/negotiation"
)

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// TestCheck checks that only values within the request, and within the limits of a Node, are used. A provider can offer
// arbitrary values.
func TestCheck(t *testing.T) {
	asked := quantities("cpu", "2", "memory", "4Gi", "pods", "10", "example.com/gpu", "1")
	for name, c := range map[string]struct {
		status  auth.ResourceSliceStatus
		want    negotiation.Offer
		problem string // part of the only problem, or "" if there is no problem
	}{
		"all":                    {auth.ResourceSliceStatus{Resources: asked}, negotiation.Offer{Resources: asked}, ""},
		"nothing":                {auth.ResourceSliceStatus{}, negotiation.Offer{Resources: quantities()}, ""},
		"less":                   {auth.ResourceSliceStatus{Resources: quantities("cpu", "1")}, negotiation.Offer{Resources: quantities("cpu", "1")}, ""},
		"more":                   {auth.ResourceSliceStatus{Resources: quantities("cpu", "1k")}, negotiation.Offer{Resources: quantities("cpu", "2")}, ""},
		"negative":               {auth.ResourceSliceStatus{Resources: quantities("cpu", "-1", "memory", "1Gi")}, negotiation.Offer{Resources: quantities("memory", "1Gi")}, "status.resources[cpu]=-1 is not a valid quantity"},
		"half a pod":             {auth.ResourceSliceStatus{Resources: quantities("pods", "1500m")}, negotiation.Offer{Resources: quantities()}, "is not a valid quantity"},
		"half a card":            {auth.ResourceSliceStatus{Resources: quantities("example.com/gpu", "500m")}, negotiation.Offer{Resources: quantities()}, "is not a valid quantity"},
		"what was not asked for": {auth.ResourceSliceStatus{Resources: quantities("example.com/other", "1")}, negotiation.Offer{Resources: quantities()}, ""},
		"a class that is none": {auth.ResourceSliceStatus{StorageClasses: []offloading.StorageType{{StorageClassName: "fast --enable-x"}, {StorageClassName: "slow"}}},
			negotiation.Offer{Resources: quantities(), StorageClasses: []offloading.StorageType{{StorageClassName: "slow"}}}, `"fast --enable-x", which is not a valid class name`},
		"a class twice": {auth.ResourceSliceStatus{IngressClasses: []offloading.IngressType{{IngressClassName: "a"}, {IngressClassName: "a"}}},
			negotiation.Offer{Resources: quantities(), IngressClasses: []offloading.IngressType{{IngressClassName: "a"}}}, `contains "a" twice`},
		"two defaults": {auth.ResourceSliceStatus{LoadBalancerClasses: []offloading.LoadBalancerType{{LoadBalancerClassName: "a.example.com/a", Default: true}, {LoadBalancerClassName: "b", Default: true}}},
			negotiation.Offer{Resources: quantities(), LoadBalancerClasses: []offloading.LoadBalancerType{{LoadBalancerClassName: "a.example.com/a", Default: true}, {LoadBalancerClassName: "b"}}}, `has a second default class, "b"`},
		"labels": {auth.ResourceSliceStatus{NodeLabels: map[string]string{"topology.kubernetes.io/zone": "eu-1", "example.com/tier": "gold", "plain": ""}},
			negotiation.Offer{Resources: quantities(), Labels: map[string]string{"topology.kubernetes.io/zone": "eu-1", "example.com/tier": "gold", "plain": ""}}, ""},
		"no label": {auth.ResourceSliceStatus{NodeLabels: map[string]string{"a b": "c"}}, negotiation.Offer{Resources: quantities()}, "is not a valid label"},
	} {
		t.Run(name, func(t *testing.T) {
			offer, problems := negotiation.Check(&c.status, asked)
			assert.Equal(t, fmt.Sprint(c.want), fmt.Sprint(offer))
			if c.problem == "" {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0], c.problem)
		})
	}
	for _, key := range []string{"node-role.kubernetes.io/control-plane", "kubernetes.io/hostname", "node-restriction.kubernetes.io/secure", "node.kubernetes.io/x", "a.k8s.io/b", "liqo.io/type", "storage.liqo.io/available", "plugins.refract.io/x", "type"} {
		offer, problems := negotiation.Check(&auth.ResourceSliceStatus{NodeLabels: map[string]string{key: "x"}}, nil)
		assert.Empty(t, offer.Labels, key)
		assert.Len(t, problems, 1, key)
	}
}

// TestCheckIsBounded checks that any offer fits into a VirtualNode, and its problems into an Event.
func TestCheckIsBounded(t *testing.T) {
	status := &auth.ResourceSliceStatus{NodeLabels: map[string]string{strings.Repeat("x", 1<<16): "long"}}
	for i := range 1000 {
		status.StorageClasses = append(status.StorageClasses, offloading.StorageType{StorageClassName: fmt.Sprintf("class-%d", i)})
		status.NodeLabels[fmt.Sprintf("label-%d", i)] = "x"
	}
	offer, problems := negotiation.Check(status, nil)
	assert.Len(t, offer.StorageClasses, 64)
	assert.Len(t, offer.Labels, 32)
	assert.Less(t, len(strings.Join(problems, "; ")), 1024)
}

func node(annotations map[string]string, written string) *offloading.VirtualNode {
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	if written != "" {
		fields := &metav1.FieldsV1{}
		fields.SetRawBytes([]byte(written))
		vn.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", FieldsV1: fields}}
	}
	return vn
}

func TestRequested(t *testing.T) {
	request, err := negotiation.Requested(node(nil, ""))
	require.NoError(t, err)
	assert.Nil(t, request)

	annotations := negotiation.Annotations(quantities("cpu", "2", "memory", "4Gi"), negotiation.IngressClasses)
	assert.Equal(t, map[string]string{wire.RequestedResourcesAnnotation: "cpu=2,memory=4Gi", wire.NegotiatedFieldsAnnotation: "resourceQuota,storageClasses,loadBalancerClasses,labels"}, annotations)
	request, err = negotiation.Requested(node(annotations, `{"f:spec":{"f:storageClasses":{},"f:labels":{".":{},"f:team":{}}}}`))
	require.NoError(t, err)
	assert.True(t, request.Resources.Cpu().Equal(resource.MustParse("2")))
	assert.True(t, request.Follows(negotiation.ResourceQuota))
	assert.False(t, request.Follows(negotiation.IngressClasses), "a flag has set it")
	assert.False(t, request.Follows(negotiation.StorageClasses), "somebody has written it by hand")
	assert.True(t, request.Follows(negotiation.Labels))

	vn := node(nil, "")
	vn.Spec.Labels = map[string]string{"team": "a", "former": "offer"}
	vn.Spec.ResourceQuota.Hard = quantities("cpu", "2", "pods", "10")
	changed := request.Apply(&negotiation.Offer{Resources: quantities("cpu", "1"), Labels: map[string]string{"team": "b", "zone": "c"}, StorageClasses: []offloading.StorageType{{StorageClassName: "x"}}}, vn)
	assert.Equal(t, []negotiation.Field{negotiation.ResourceQuota, negotiation.Labels}, changed)
	assert.Equal(t, map[string]string{"team": "a", "zone": "c"}, vn.Spec.Labels, "a label by hand stays, a former offer goes")
	assert.Empty(t, vn.Spec.StorageClasses)
	assert.Equal(t, "1", vn.Spec.ResourceQuota.Hard.Cpu().String())
	assert.Equal(t, "10", vn.Spec.ResourceQuota.Hard.Pods().String(), "of which the provider says nothing")
	assert.Equal(t, "spec.resourceQuota: cpu=1, pods=10; spec.labels: team=a, zone=c", negotiation.Describe(vn, changed))

	for annotation, text := range map[string]string{wire.NegotiatedFieldsAnnotation: "storageClasses,image", wire.RequestedResourcesAnnotation: "cpu=many"} {
		wrong := negotiation.Annotations(nil)
		wrong[annotation] = text
		_, err := negotiation.Requested(node(wrong, ""))
		assert.ErrorContains(t, err, annotation)
	}
	request, err = negotiation.Requested(node(annotations, "?"))
	require.NoError(t, err)
	assert.False(t, request.Follows(negotiation.ResourceQuota), "who wrote what cannot be read")
}

// TestAcceptance checks that a consumer can accept a key, a key with a value, or a pattern of keys, and that it accepts
// no labels by default.
func TestAcceptance(t *testing.T) {
	for _, c := range []struct {
		accepted   []string
		key, value string
		want       bool
	}{
		{nil, "tier", "gold", false},
		{[]string{""}, "", "", false},
		{[]string{"tier"}, "tier", "gold", true},
		{[]string{"tier"}, "tiers", "gold", false},
		{[]string{"tier=gold"}, "tier", "gold", true},
		{[]string{"tier=gold"}, "tier", "silver", false},
		{[]string{"tier="}, "tier", "gold", false},
		{[]string{"topology.kubernetes.io/*"}, "topology.kubernetes.io/zone", "eu-1", true},
		{[]string{"topology.kubernetes.io/*"}, "topology.example.com/zone", "eu-1", false},
		{[]string{"*"}, "tier", "gold", true},
		{[]string{"*"}, "example.com/tier", "gold", false},
		{[]string{"*.example.com/a*=1"}, "eu.example.com/ab", "1", true},
	} {
		accepted, err := negotiation.ParseAcceptance(c.accepted)
		require.NoError(t, err)
		assert.Equal(t, c.want, accepted.Accepts(c.key, c.value), "%q for %s=%s", c.accepted, c.key, c.value)
	}
	for _, wrong := range []string{"a b", "a/b/c", "=gold", "tier=a b", "[a-z]", "-"} {
		_, err := negotiation.ParseAcceptance([]string{wrong})
		assert.ErrorContains(t, err, "use KEY or KEY=VALUE", wrong)
	}
}

// TestRestrictToAcceptedLabels checks that an offered label is kept if it is accepted, or if the VirtualNode already
// has it with the same value. With another value, it might match a clusterSelector that did not match before.
func TestRestrictToAcceptedLabels(t *testing.T) {
	offered := map[string]string{"tier": "gold", "zone": "eu-1", "rack": "7", "disk": "ssd"}
	present := map[string]string{"zone": "eu-1", "rack": "6"}
	refused := negotiation.Acceptance{"disk"}.Restrict(offered, present)
	assert.Equal(t, map[string]string{"tier": "gold", "rack": "7"}, refused)
	assert.Equal(t, map[string]string{"zone": "eu-1", "disk": "ssd"}, offered)
}

// TestRequestedByIsBounded checks that a provider can add only a few resources with valid names to a request, and that
// the requested amounts count for those that were requested.
func TestRequestedByIsBounded(t *testing.T) {
	slice := &auth.ResourceSlice{}
	slice.Spec.Resources = quantities("cpu", "2")
	slice.Status.Resources = quantities("cpu", "8", "memory", "4Gi", "pods", "-1", "a,b", "1", "a=b", "1")
	assert.Equal(t, quantities("cpu", "2", "memory", "4Gi"), negotiation.RequestedBy(slice))
	for i := range 1000 {
		slice.Status.Resources[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	assert.LessOrEqual(t, len(negotiation.RequestedBy(slice)), 33)
}
