// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homeaddress

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/api/wire"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		annotation, clusterIP string
		kind                  corev1.ServiceType
		want                  string
	}{
		{"10.96.0.5", "10.96.0.9", corev1.ServiceTypeClusterIP, "10.96.0.5"},
		{"10.96.0.5", "10.96.0.9", corev1.ServiceTypeNodePort, "10.96.0.5"},
		{"fd00::5,10.96.0.5", "10.96.0.9", "", "10.96.0.5"},
		{"10.96.0.5,10.96.0.6,10.96.0.7", "10.96.0.9", "", "10.96.0.5"},
		{"10.96.0.5", "None", "", ""},
		{"10.96.0.5", "", corev1.ServiceTypeExternalName, ""},
		{"", "10.96.0.9", "", ""},
		{"fd00::5", "10.96.0.9", "", ""},
		{"::ffff:10.96.0.5", "10.96.0.9", "", ""},
		{"010.96.0.5", "10.96.0.9", "", ""},
		{" 10.96.0.5", "10.96.0.9", "", ""},
		{"127.0.0.1", "10.96.0.9", "", ""},
		{"0.0.0.0", "10.96.0.9", "", ""},
		{"224.0.0.1", "10.96.0.9", "", ""},
		{"169.254.169.254", "10.96.0.9", "", ""},
		{"255.255.255.255", "10.96.0.9", "", ""},
	} {
		service := &corev1.Service{Spec: corev1.ServiceSpec{Type: c.kind, ClusterIP: c.clusterIP}}
		service.Annotations = map[string]string{wire.HomeClusterIPsAnnotation: c.annotation}
		address, ok := Of(service)
		assert.Equal(t, c.want != "", ok, "%+v", c)
		if ok {
			assert.Equal(t, c.want, address.String())
		}
	}
}
