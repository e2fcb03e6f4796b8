// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

var (
	pluginsResource   = plugins.GroupVersion.WithResource("reflectionplugins")
	revisionsResource = plugins.GroupVersion.WithResource("pluginrevisions")
	modulesResource   = plugins.GroupVersion.WithResource("pluginmodules")
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// decodeObject converts an object of the dynamic client.
func decodeObject[T any](object *unstructured.Unstructured) (*T, error) {
	decoded := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded); err != nil {
		return nil, fmt.Errorf("reading %s %s, %w", object.GetKind(), object.GetName(), err)
	}
	return decoded, nil
}

// listObjects returns all objects of a resource.
func listObjects[T any](ctx context.Context, f *Follower, resource schema.GroupVersionResource) (all []*T, err error) {
	ctx, cancel := f.withTimeout(ctx)
	defer cancel()
	list, err := f.client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing %s, %w", resource.Resource, err)
	}
	for i := range list.Items {
		object, err := decodeObject[T](&list.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// getModule returns a PluginModule. It implements pluginrevision.Get.
func (f *Follower) getModule(ctx context.Context, name string) (*plugins.PluginModule, error) {
	ctx, cancel := f.withTimeout(ctx)
	defer cancel()
	object, err := f.client.Resource(modulesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decodeObject[plugins.PluginModule](object)
}

// getRevision reads a PluginRevision from the API server.
func (f *Follower) getRevision(ctx context.Context, name string) (*plugins.PluginRevision, error) {
	ctx, cancel := f.withTimeout(ctx)
	defer cancel()
	object, err := f.client.Resource(revisionsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decodeObject[plugins.PluginRevision](object)
}

// shrinkRevision is the transform function of the informer. It removes content that others write, such as the results
// of rehearsals on other virtual nodes.
func (f *Follower) shrinkRevision(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	u.SetManagedFields(nil)
	entries, _, err := unstructured.NestedSlice(u.Object, "status", "virtualNodes")
	if err != nil || len(entries) == 0 {
		return u, nil
	}
	own := slices.DeleteFunc(entries, func(entry any) bool {
		fields, _ := entry.(map[string]any)
		return fields["name"] != f.options.NodeName
	})
	return u, unstructured.SetNestedSlice(u.Object, own, "status", "virtualNodes")
}
