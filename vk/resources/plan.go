// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host/document/fieldpath"
	"github.com/refract-project/refract/vk/reflection"
)

// reservedGroups are the API groups that reflection itself uses.
var reservedGroups = []string{"offloading.liqo.io", pluginsv1alpha1.GroupVersion.Group}

// isReserved reports whether objects of a resource, or their tokens, are reflected by default.
func isReserved(resource schema.GroupResource) bool {
	switch resource.String() {
	case "serviceaccounts", // tokens of ServiceAccounts are reflected by default
		"events.events.k8s.io": // the same objects as events
		return true
	}
	return slices.ContainsFunc(reflection.DefaultKinds(), func(kind reflection.Kind) bool { return kind.Source.GroupResource() == resource })
}

var version = regexp.MustCompile("^v[0-9]+((alpha|beta)[0-9]+)?$")

// decodeSpec reads the spec. The schema of ReflectedResources forbids most of the values that decodeSpec rejects, but
// another version of the CustomResourceDefinition may be installed.
func decodeSpec(object *unstructured.Unstructured) (*pluginsv1alpha1.ReflectedResourceSpec, error) {
	fields, ok := object.Object["spec"].(map[string]any)
	if !ok {
		return nil, specFault("spec is missing")
	}
	spec := &pluginsv1alpha1.ReflectedResourceSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, spec); err != nil {
		return nil, specFault("spec is invalid: %v", err)
	}
	if spec.Workers == nil {
		three := int32(3)
		spec.Workers = &three
	}
	if spec.Policy == "" {
		spec.Policy = pluginsv1alpha1.DenyListPolicy
	}
	return spec, errors.Join(checkResource("spec", spec.GroupVersionResource()), checkTarget(spec), checkSettings(object.GetName(), spec))
}

func checkSettings(name string, spec *pluginsv1alpha1.ReflectedResourceSpec) error {
	gr := spec.GroupVersionResource().GroupResource()
	switch {
	case isReserved(gr):
		return specFault("%s are always reflected: configure them with the flags of the virtual kubelet", gr)
	case slices.Contains(reservedGroups, gr.Group):
		return specFault("%s are used by reflection itself and cannot be reflected", gr)
	case name != gr.String():
		return specFault("the ReflectedResource of %s must have that name", gr)
	case spec.Policy != pluginsv1alpha1.DenyListPolicy && spec.Policy != pluginsv1alpha1.AllowListPolicy:
		return specFault("spec.policy is %q: use DenyList or AllowList", spec.Policy)
	case *spec.Workers < 0:
		return specFault("spec.workers is %d: use 0 to pause the reflection, or more", *spec.Workers)
	}
	for i, path := range spec.PodSpecPaths {
		if err := badPath(path); err != nil {
			return specFault("spec.podSpecPaths[%d] is %q, %v: use one like spec.template.spec, with * for any key or element", i, path, err)
		}
	}
	return nil
}

func badPath(path string) error {
	if path == "" {
		return errors.New("which is empty")
	}
	_, err := fieldpath.Parse(path)
	return err
}

func checkTarget(spec *pluginsv1alpha1.ReflectedResourceSpec) error {
	to := targetResource(spec)
	if spec.Target == nil {
		return nil
	}
	if gr := to.GroupResource(); slices.Contains(reservedGroups, gr.Group) || isReserved(gr) {
		return specFault("spec.target is %s, which other controllers write: use another resource", gr)
	}
	return checkResource("spec.target", to)
}

func checkResource(field string, gvr schema.GroupVersionResource) error {
	switch {
	case !version.MatchString(gvr.Version):
		return specFault("%s.version is %q: use one like v1 or v1beta1", field, gvr.Version)
	case len(validation.IsDNS1123Label(gvr.Resource)) > 0:
		return specFault("%s.resource is %q: use the plural, in lower case, without a subresource", field, gvr.Resource)
	case gvr.Group != "" && len(validation.IsDNS1123Subdomain(gvr.Group)) > 0:
		return specFault("%s.group is %q, which is not a valid API group", field, gvr.Group)
	}
	return nil
}

// targetResource returns the resource of the remote objects.
func targetResource(spec *pluginsv1alpha1.ReflectedResourceSpec) schema.GroupVersionResource {
	if t := spec.Target; t != nil {
		return schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
	}
	return spec.GroupVersionResource()
}

// Verbs that the engine needs permissions for, in this cluster and on the provider.
var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"get", "list", "watch", "create", "patch", "delete"}
)

// planReflection compares the resource in both clusters and returns the plan for its reflection.
func (f *Follower) planReflection(ctx context.Context, spec *pluginsv1alpha1.ReflectedResourceSpec) (plan, error) {
	from, to := spec.GroupVersionResource(), targetResource(spec)
	here, err := f.local.discoverResource(ctx, from)
	if err != nil {
		return plan{}, f.undefinedHere(from, err)
	}
	if err := here.checkReflectable(f.local, readVerbs); err != nil {
		return plan{}, err
	}
	if !f.options.Engine.Reachable() {
		return plan{}, f.remote.unreachableFault()
	}
	there, err := f.remote.discoverResource(ctx, to)
	if lacking := (*unserved)(nil); errors.As(err, &lacking) {
		return plan{}, f.undefinedThere(ctx, spec, lacking)
	}
	if err != nil {
		return plan{}, err
	}
	if err := there.checkReflectable(f.remote, writeVerbs); err != nil {
		return plan{}, err
	}
	p := plan{kind: here.kindName(), source: from, target: to, targetKind: there.GroupVersionKind, statusSubresource: here.status}
	return p.withSettings(spec), nil
}

func (f *Follower) undefinedHere(gvr schema.GroupVersionResource, err error) error {
	lacking := (*unserved)(nil)
	if !errors.As(err, &lacking) {
		return err
	}
	if len(lacking.versions) > 0 {
		return missingDefinition("%s has no %s in version %s, but in %s: set spec.version", f.local, gvr.GroupResource(), gvr.Version, strings.Join(lacking.versions, ", "))
	}
	return missingDefinition("%s has no %s: install its CustomResourceDefinition", f.local, gvr.GroupResource())
}

func (f *Follower) undefinedThere(ctx context.Context, spec *pluginsv1alpha1.ReflectedResourceSpec, lacking *unserved) error {
	to := targetResource(spec)
	if len(lacking.versions) > 0 {
		return missingDefinition("%s has no %s in version %s, but in %s: set spec.target, to {group: %q, version: %s, resource: %s} for one",
			f.remote, to.GroupResource(), to.Version, strings.Join(lacking.versions, ", "), to.Group, lacking.versions[0], to.Resource)
	}
	if !spec.CopyDefinition {
		return missingDefinition("%s has no %s: install its CustomResourceDefinition there, or set spec.copyDefinition to true to have that of %s copied",
			f.remote, to.GroupResource(), f.local)
	}
	err := f.copyDefinition(ctx, spec.GroupVersionResource(), to)
	if obstacle := (*fault)(nil); errors.As(err, &obstacle) {
		obstacle.unserved = true
	}
	return err
}

// kindName returns the name of the kind in chains, metrics and Events.
func (s *served) kindName() string {
	if s.Group == "" {
		return s.Kind
	}
	return s.Kind + "." + s.Group
}
