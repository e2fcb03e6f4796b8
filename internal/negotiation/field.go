// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
)

// Field is a field in the spec of a VirtualNode that can follow the provider.
type Field string

// The fields that can follow the provider. The values are their names in the spec.
const (
	ResourceQuota       Field = "resourceQuota"
	StorageClasses      Field = "storageClasses"
	IngressClasses      Field = "ingressClasses"
	LoadBalancerClasses Field = "loadBalancerClasses"
	Labels              Field = "labels"
)

var fields = []Field{ResourceQuota, StorageClasses, IngressClasses, LoadBalancerClasses, Labels}

// Manager is the field manager of the fields that follow the provider. Creator is the field manager of refractctl,
// which creates VirtualNodes with the result of Annotations.
const (
	Manager = wire.NegotiationFieldManager
	Creator = "refractctl"
)

// Annotations returns the annotations of a VirtualNode that requests the resources in asked. All fields of the
// VirtualNode except those in set follow the provider.
func Annotations(asked corev1.ResourceList, set ...Field) map[string]string {
	pairs := make([]string, 0, len(asked))
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		quantity := asked[name]
		pairs = append(pairs, string(name)+"="+quantity.String())
	}
	var following []string
	for _, field := range fields {
		if !slices.Contains(set, field) {
			following = append(following, string(field))
		}
	}
	return map[string]string{wire.RequestedResourcesAnnotation: strings.Join(pairs, ","), wire.NegotiatedFieldsAnnotation: strings.Join(following, ",")}
}

// Request describes the resources that a VirtualNode requests, and the fields that follow its provider.
type Request struct {
	// Resources contains the requested resources.
	Resources corev1.ResourceList
	fields    []Field
	// theirs contains the fields that other clients have written. labels contains the keys of the labels that they have
	// written.
	theirs map[Field]bool
	labels map[string]bool
}

// Requested returns the request of a VirtualNode, or nil if the VirtualNode does not follow its provider. The object
// must contain its managedFields.
func Requested(vn metav1.Object) (*Request, error) {
	following, ok := vn.GetAnnotations()[wire.NegotiatedFieldsAnnotation]
	if !ok {
		return nil, nil //nolint:nilnil // as documented
	}
	r := &Request{Resources: corev1.ResourceList{}, theirs: map[Field]bool{}, labels: map[string]bool{}}
	for name := range strings.SplitSeq(following, ",") {
		if field := Field(strings.TrimSpace(name)); field != "" {
			if !slices.Contains(fields, field) {
				return nil, fmt.Errorf("annotation %s: %q is no field that follows the provider, use %v", wire.NegotiatedFieldsAnnotation, field, fields)
			}
			r.fields = append(r.fields, field)
		}
	}
	for pair := range strings.SplitSeq(vn.GetAnnotations()[wire.RequestedResourcesAnnotation], ",") {
		if pair == "" {
			continue
		}
		name, text, _ := strings.Cut(strings.TrimSpace(pair), "=")
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			return nil, fmt.Errorf("annotation %s: %q is not NAME=QUANTITY, such as cpu=4", wire.RequestedResourcesAnnotation, pair)
		}
		r.Resources[corev1.ResourceName(name)] = quantity
	}
	for _, entry := range vn.GetManagedFields() {
		if entry.Subresource == "" && entry.Manager != Manager && entry.Manager != Creator {
			r.excludeWritten(entry.FieldsV1)
		}
	}
	return r, nil
}

// excludeWritten excludes the fields that another client has written. If written cannot be parsed, it excludes all
// fields.
func (r *Request) excludeWritten(written *metav1.FieldsV1) {
	if written == nil {
		return
	}
	var set struct {
		Spec map[string]map[string]json.RawMessage `json:"f:spec"`
	}
	if json.NewDecoder(written.GetRawReader()).Decode(&set) != nil {
		r.fields = nil
		return
	}
	for _, field := range fields {
		keys, has := set.Spec["f:"+string(field)]
		if !has {
			continue
		}
		if field != Labels {
			r.theirs[field] = true
		}
		for key := range keys {
			if name, ok := strings.CutPrefix(key, "f:"); ok && field == Labels {
				r.labels[name] = true
			}
		}
	}
}

// Follows reports whether a field follows the provider.
func (r *Request) Follows(field Field) bool {
	return slices.Contains(r.fields, field) && !r.theirs[field]
}

// IsFixed reports whether a field does not follow the provider because it was set when the VirtualNode was created.
func (r *Request) IsFixed(field Field) bool { return !slices.Contains(r.fields, field) }
