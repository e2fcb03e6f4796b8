// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// serviceOf names the Service of an EndpointSlice, "" when it has none.
func serviceOf(slice *unstructured.Unstructured) string {
	name, _ := labelsOf(slice.Object)[discoveryv1.LabelServiceName].(string)
	return name
}

// labelsOf and annotationsOf read the maps as they are cached, without the copy that the accessors make.
func labelsOf(object map[string]any) map[string]any { return metadataMap(object, "labels") }

func annotationsOf(object map[string]any) map[string]any { return metadataMap(object, "annotations") }

func metadataMap(object map[string]any, field string) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	value, _ := metadata[field].(map[string]any)
	return value
}
