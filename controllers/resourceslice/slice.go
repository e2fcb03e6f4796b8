// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/api/wire"
)

// kind of a ResourceSlice. Liqo defines it, and Liqo's authentication module answers it.
var kind = schema.GroupVersionKind{Group: "authentication.liqo.io", Version: "v1beta1", Kind: "ResourceSlice"}

// slice is what of a ResourceSlice matters here.
type slice struct {
	Spec struct {
		ConsumerClusterID string `json:"consumerClusterID"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		Resources corev1.ResourceList `json:"resources"`
	} `json:"status"`
}

func decode(object *unstructured.Unstructured) (s slice, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &s)
	return s, err
}

// resources returns the status of the condition that says whether the resources were granted, "" when nobody has decided.
func (s slice) resources() string {
	for _, condition := range s.Status.Conditions {
		if condition.Type == "Resources" {
			return condition.Status
		}
	}
	return ""
}

const (
	accepted = "Accepted"
	denied   = "Denied"
)

// The annotations by which liqoctl cordons a slice, and Liqo's tenant controller all slices of a tenant.
const (
	cordonAnnotation       = "liqo.io/cordon"
	cordonTenantAnnotation = "liqo.io/cordon-tenant"
)

func cordoned(annotations map[string]string) bool {
	for _, key := range []string{cordonAnnotation, cordonTenantAnnotation} {
		switch value, ok := annotations[key]; {
		case !ok, value == "false", value == "False", value == "0":
		default:
			return true
		}
	}
	return false
}

// user is the common name in the certificate that a consumer gets for a slice (Liqo: the name of the slice, and the first six bytes
// of the SHA-256 of the cluster id).
func user(name, consumer string) string {
	sum := sha256.Sum256([]byte(consumer))
	return fmt.Sprintf("%s-%x", name, sum[:6])
}

// replicated reports whether a slice has come from a consumer.
func replicated(labels map[string]string) bool { return labels[wire.ReplicatedLabel] == "true" }
