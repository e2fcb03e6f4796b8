// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/fieldmanager"
	"github.com/refract-project/refract/internal/jsonpatch"
)

var nodesResource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// dropGone removes the status entries of virtual nodes that no longer exist, because their virtual kubelets cannot
// remove them. A virtual node no longer exists if it has neither a Node nor a VirtualNode. The VirtualNode counts
// because a virtual kubelet that creates no Node only has a VirtualNode, which may have another name. If a request
// fails, no entries are removed.
func (f *Follower) dropGone(ctx context.Context, object *unstructured.Unstructured) error {
	names, described := statusEntries(object)
	others := sets.New(names...).Delete(f.options.NodeName)
	if others.Len() == 0 {
		return nil
	}
	// This request is cheap, because the API server answers it from its cache. The list usually contains all nodes, so
	// that no other request is needed.
	present, err := f.local.listNames(ctx, nodesResource, metav1.ListOptions{LabelSelector: wire.TypeLabel + "=" + wire.VirtualNodeType, ResourceVersion: "0"})
	if others = others.Difference(present); err != nil || others.Len() == 0 {
		return err
	}
	present, err = f.local.listNames(ctx, offloadingv1beta1.VirtualNodeGVR, metav1.ListOptions{})
	if err != nil {
		return err
	}
	gone := sets.New[string]()
	for name := range others {
		if present.Has(described[name]) {
			continue
		}
		switch there, err := f.local.hasNode(ctx, name); {
		case err != nil:
			return err
		case !there:
			gone.Insert(name)
		}
	}
	return f.removeEntries(ctx, object, names, gone)
}

// hasNode reports whether the Node exists, regardless of its labels.
func (s *side) hasNode(ctx context.Context, name string) (bool, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	_, err := s.metadata.Resource(nodesResource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// statusEntries returns the names of the entries in a status, in their order, and the name of the VirtualNode of each
// entry.
func statusEntries(object *unstructured.Unstructured) (names []string, described map[string]string) {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "virtualNodes")
	described = make(map[string]string, len(list))
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		name, _ := fields["name"].(string)
		names, described[name] = append(names, name), name
		if other, _ := fields["virtualNode"].(string); other != "" {
			described[name] = other
		}
	}
	return names, described
}

// listNames returns the names of all objects of a resource in all namespaces.
func (s *side) listNames(ctx context.Context, resource schema.GroupVersionResource, options metav1.ListOptions) (sets.Set[string], error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	list, err := s.metadata.Resource(resource).List(ctx, options)
	if err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for i := range list.Items {
		names.Insert(list.Items[i].Name)
	}
	return names, nil
}

// removeEntries removes entries from a status. If another client has changed the list, the patch fails and a later
// reconciliation removes the entries.
func (f *Follower) removeEntries(ctx context.Context, object *unstructured.Unstructured, names []string, gone sets.Set[string]) error {
	if gone.Len() == 0 {
		return nil
	}
	var patch jsonpatch.Patch
	patch.Test("/metadata/uid", string(object.GetUID()))
	for i, name := range slices.Backward(names) { // in reverse order, so that the indexes of earlier entries stay valid
		if gone.Has(name) {
			path := fmt.Sprintf("/status/virtualNodes/%d", i)
			patch.Test(path+"/name", name)
			patch.Remove(path)
		}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	ctx, cancel := f.local.withTimeout(ctx)
	defer cancel()
	_, err = f.local.dynamic.Resource(pluginsv1alpha1.ReflectedResourceGVR).
		Patch(ctx, object.GetName(), types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldmanager.OfNode(f.options.NodeName)}, "status")
	if apierrors.IsNotFound(err) || jsonpatch.IsOutdated(err) {
		return nil
	}
	if err == nil {
		f.log.Info("Removed virtual nodes that are gone from the status of a ReflectedResource", "resource", object.GetName(), "gone", sets.List(gone))
	}
	return err
}
