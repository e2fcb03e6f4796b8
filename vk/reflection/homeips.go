// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// homeClusterIPs returns the annotation of a copy with the cluster IPs that the Service has in this cluster. It is not in the plugin for
// Services, because no plugin may pretend to have other ones.
func homeClusterIPs(service *unstructured.Unstructured) map[string]string {
	spec := raw.Map(service.Object["spec"])
	list, _ := spec["clusterIPs"].([]any)
	if len(list) == 0 {
		list = []any{spec["clusterIP"]}
	}
	var addresses []string
	for _, item := range list {
		if address, ok := item.(string); ok && address != "" && address != "None" {
			addresses = append(addresses, address)
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	return map[string]string{wire.HomeClusterIPsAnnotation: strings.Join(addresses, ",")}
}
