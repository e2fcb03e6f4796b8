// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// serviceOf names the Service of an EndpointSlice, "" when it has none.
func serviceOf(slice *unstructured.Unstructured) string {
	name, _ := raw.Labels(slice.Object)[discoveryv1.LabelServiceName].(string)
	return name
}
