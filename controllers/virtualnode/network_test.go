// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

// TestAddressFlags checks the flags for a Configuration, and that there are none while a range is not granted.
func TestAddressFlags(t *testing.T) {
	t.Parallel()
	granted := func() *networking.Configuration {
		c := &networking.Configuration{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		c.Spec.Local = &networking.ClusterConfig{CIDR: networking.ClusterConfigCIDR{Pod: []networking.CIDR{"10.244.0.0/16", "10.245.0.0/16"}}}
		c.Spec.Remote.CIDR = networking.ClusterConfigCIDR{Pod: []networking.CIDR{"10.244.0.0/16", "10.9.0.0/16"}, External: []networking.CIDR{"10.70.0.0/16"}}
		c.Status.Remote = &networking.ClusterConfig{CIDR: networking.ClusterConfigCIDR{
			Pod: []networking.CIDR{"10.71.0.0/16", "10.9.0.0/16"}, External: []networking.CIDR{"10.68.0.0/16"},
		}}
		c.Status.Conditions = []metav1.Condition{{Type: networking.ConfiguredCondition, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
		return c
	}
	assert.Equal(t, []string{
		"--remote-pod-cidr=10.244.0.0/16,10.9.0.0/16", "--remote-pod-cidr-remap=10.71.0.0/16,10.9.0.0/16",
		"--remote-external-cidr=10.70.0.0/16", "--remote-external-cidr-remap=10.68.0.0/16",
		"--local-podcidr=10.244.0.0/16", "--local-podcidr=10.245.0.0/16",
	}, forgeAddressFlags(granted()))
	for name, change := range map[string]func(*networking.Configuration){
		"changed spec":      func(c *networking.Configuration) { c.Generation = 3 },
		"refused":           func(c *networking.Configuration) { c.Status.Conditions[0].Status = metav1.ConditionFalse },
		"no condition":      func(c *networking.Configuration) { c.Status.Conditions = nil },
		"no ranges":         func(c *networking.Configuration) { c.Status.Remote = nil },
		"one range missing": func(c *networking.Configuration) { c.Status.Remote.CIDR.Pod = c.Status.Remote.CIDR.Pod[:1] },
		"no own ranges":     func(c *networking.Configuration) { c.Spec.Local = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := granted()
			change(c)
			assert.Nil(t, forgeAddressFlags(c))
		})
	}
}
