// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// definitionsResource is the resource of CustomResourceDefinitions. They are handled as unstructured objects, so that
// fields of newer Kubernetes versions are also copied.
var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const (
	// CopiedFromAnnotation is the annotation of a definition that was copied to a provider. Its value is the ID of the
	// cluster that the definition was copied from.
	CopiedFromAnnotation = "plugins.refract.io/copied-from"
	// approvedAnnotation is the annotation that Kubernetes requires on definitions in its own API groups.
	approvedAnnotation = "api-approved.kubernetes.io"
)

// copyDefinition copies the definition of a resource to the provider if the provider does not have it. The provider
// serves a new definition only after a moment. Until then, copyDefinition returns an error that describes the progress.
func (f *Follower) copyDefinition(ctx context.Context, from, to schema.GroupVersionResource) error {
	name := to.GroupResource().String()
	switch {
	case to.GroupResource() != from.GroupResource():
		return missingDefinition("%s has no %s, and spec.copyDefinition copies a definition under its own name only: install that of %s there, or omit spec.target", f.remote, name, name)
	case to.Group == "":
		return missingDefinition("%s has no %s, which are built into Kubernetes: check whether it is older than %s", f.remote, name, f.local)
	}
	present, err := f.remote.getDefinition(ctx, name, rbac.DefinitionsRemote())
	if err != nil {
		return err
	}
	if present != nil {
		return missingDefinition("%s has a CustomResourceDefinition %s, which was left unchanged, but does not serve it%s", f.remote, name, unservedReason(present))
	}
	original, err := f.local.getDefinition(ctx, name, rbac.VirtualKubeletLocal())
	if err != nil {
		return err
	}
	if original == nil {
		return missingDefinition("%s has no %s, and there is no CustomResourceDefinition of that name in %s that could be copied: install it there", f.remote, name, f.local)
	}
	definition, err := portableDefinition(original, to.Version, f.local.id)
	if err != nil {
		return missingDefinition("%v; install the CustomResourceDefinition in %s yourself", err, f.remote)
	}
	return f.remote.createDefinition(ctx, definition)
}

// getDefinition returns a CustomResourceDefinition, or nil if it does not exist.
func (s *side) getDefinition(ctx context.Context, name string, role rbac.Role) (*unstructured.Unstructured, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	definition, err := s.dynamic.Resource(definitionsResource).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, s.forbiddenFault("copy CustomResourceDefinition "+name, rulesOfResource(role, definitionsResource.GroupResource()))
	case err != nil:
		return nil, s.responseFault(err)
	}
	return definition, nil
}

// createDefinition creates a definition in the cluster. It always returns an error: a fault that says that the
// definition is not served yet or, if the creation is forbidden, a fault with the missing permission.
func (s *side) createDefinition(ctx context.Context, definition *unstructured.Unstructured) error {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	_, err := s.dynamic.Resource(definitionsResource).Create(ctx, definition, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		obstacle := missingDefinition("CustomResourceDefinition %s was copied to %s a moment ago and is not served yet", definition.GetName(), s)
		obstacle.shortly = true
		return obstacle
	case apierrors.IsForbidden(err):
		return s.forbiddenFault("copy CustomResourceDefinition "+definition.GetName(), rbac.DefinitionsRemote())
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return missingDefinition("%s rejects the CustomResourceDefinition of %s: %v", s, definition.GetName(), err)
	}
	return s.responseFault(err)
}

// portableDefinition returns a copy of a definition without the parts that are only valid in its own cluster: the
// status, metadata that the API server sets, and the conversion webhook. If there is such a webhook, only the stored
// version is copied. Without the webhook, objects of other versions would lose the fields that the stored version does
// not have.
func portableDefinition(original *unstructured.Unstructured, version, cluster string) (*unstructured.Unstructured, error) {
	spec, ok, err := unstructured.NestedMap(original.Object, "spec")
	if err != nil || !ok {
		return nil, fmt.Errorf("CustomResourceDefinition %s has no spec to copy", original.GetName())
	}
	strategy, _, _ := unstructured.NestedString(spec, "conversion", "strategy")
	delete(spec, "conversion")
	if strategy == "Webhook" {
		if err := keepStored(spec, original.GetName(), version); err != nil {
			return nil, err
		}
	}
	annotations := map[string]any{CopiedFromAnnotation: cluster}
	if approved, ok := original.GetAnnotations()[approvedAnnotation]; ok {
		annotations[approvedAnnotation] = approved
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": definitionsResource.GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": original.GetName(), "annotations": annotations},
		"spec":     spec,
	}}, nil
}

// keepStored removes all versions except the stored one from the spec. It returns an error if reflection writes another
// version than the stored one.
func keepStored(spec map[string]any, name, stored string) error {
	versions, _, _ := unstructured.NestedSlice(spec, "versions")
	for _, v := range versions {
		fields, _ := v.(map[string]any)
		if stored, _ := fields["storage"].(bool); !stored {
			continue
		}
		if version, _ := fields["name"].(string); version != stored {
			return fmt.Errorf("CustomResourceDefinition %s converts version %s by a webhook, which is not copied: set spec.version to the stored one, %s", name, stored, version)
		}
		spec["versions"] = []any{fields}
		return nil
	}
	return fmt.Errorf("CustomResourceDefinition %s has no stored version", name)
}

// unservedReason returns the reason in the conditions of a definition why it is not served, as the end of a sentence,
// or "" if there is none.
func unservedReason(definition *unstructured.Unstructured) string {
	var found []string
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		fields, _ := c.(map[string]any)
		kind, _ := fields["type"].(string)
		status, _ := fields["status"].(string)
		message, _ := fields["message"].(string)
		if status != "True" && (kind == "NamesAccepted" || kind == "Established") || status == "True" && kind == "Terminating" {
			found = append(found, fmt.Sprintf("%s is %s, %s", kind, status, message))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return ": " + strings.Join(found, "; ")
}
