// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewReader returns an uncached reader. If a single unstructured object of one of the given kinds is read, it is
// decoded within the limits of the kind, as in the informers. The reader usual reads all other objects.
func NewReader(config *rest.Config, usual client.Reader, decoding Decoding) (client.Reader, error) {
	r := &reader{Reader: usual, resources: map[schema.GroupVersionKind]dynamic.NamespaceableResourceInterface{}}
	for kind := range decoding {
		resource, err := decoding.client(config, kind)
		if err != nil {
			return nil, err
		}
		r.resources[kind] = resource
	}
	return r, nil
}

type reader struct {
	client.Reader
	resources map[schema.GroupVersionKind]dynamic.NamespaceableResourceInterface
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	u, ok := object.(*unstructured.Unstructured)
	resource, known := r.resources[object.GetObjectKind().GroupVersionKind()]
	if !ok || !known {
		return r.Reader.Get(ctx, key, object, opts...)
	}
	found, err := resource.Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	u.Object = found.Object
	return nil
}
