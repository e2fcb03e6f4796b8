// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
)

// served describes a resource that a cluster's API server serves.
type served struct {
	schema.GroupVersionKind
	resource   schema.GroupResource
	namespaced bool
	verbs      []string
	status     bool // the resource has a status subresource that can be patched
}

// unserved is returned if a cluster does not serve a resource in the requested version.
type unserved struct {
	gvr      schema.GroupVersionResource
	versions []string // versions of the resource that the cluster serves
}

func (e *unserved) Error() string { return fmt.Sprintf("%s is not served", e.gvr) }

// discoverResource returns the kind, scope and verbs of a resource. Its errors are of the types *unserved and *fault.
func (s *side) discoverResource(ctx context.Context, gvr schema.GroupVersionResource) (*served, error) {
	list, err := s.listResources(ctx, gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	if found := findResource(list, gvr); found != nil {
		return found, nil
	}
	versions, err := s.servedVersions(ctx, gvr)
	if err != nil {
		return nil, err
	}
	if slices.Contains(versions, gvr.Version) {
		return nil, &fault{reason: pluginsv1alpha1.MissingDefinitionReason, message: fmt.Sprintf("%s begins to serve %s", s, gvr.GroupResource()), shortly: true}
	}
	return nil, &unserved{gvr, versions}
}

// findResource returns the description of a resource and of its status subresource from a list, or nil if the list does
// not contain the resource.
func findResource(list *metav1.APIResourceList, gvr schema.GroupVersionResource) *served {
	var found *served
	status := false
	for _, r := range list.APIResources {
		switch r.Name {
		case gvr.Resource:
			found = &served{GroupVersionKind: gvr.GroupVersion().WithKind(r.Kind), resource: gvr.GroupResource(), namespaced: r.Namespaced, verbs: r.Verbs}
		case gvr.Resource + "/status":
			status = slices.Contains(r.Verbs, "patch")
		}
	}
	if found != nil {
		found.status = status
	}
	return found
}

// listResources returns the resources of an API version, or an empty list if the version does not exist.
func (s *side) listResources(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	list, err := s.discovery.ServerResourcesForGroupVersionWithContext(ctx, version.String())
	switch {
	case apierrors.IsNotFound(err):
		return &metav1.APIResourceList{}, nil
	case apierrors.IsForbidden(err):
		return nil, s.mayNotDiscover()
	case err != nil:
		return nil, s.responseFault(err)
	}
	return list, nil
}

// servedVersions returns the versions of the resource that the cluster serves.
func (s *side) servedVersions(ctx context.Context, gvr schema.GroupVersionResource) (versions []string, err error) {
	groups, err := s.listGroups(ctx)
	if err != nil {
		return nil, err
	}
	for _, group := range groups.Groups {
		if group.Name != gvr.Group {
			continue
		}
		for _, v := range group.Versions {
			list, err := s.listResources(ctx, schema.GroupVersion{Group: gvr.Group, Version: v.Version})
			if err != nil {
				return nil, err
			}
			if findResource(list, schema.GroupVersion{Group: gvr.Group, Version: v.Version}.WithResource(gvr.Resource)) != nil {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions, nil
}

func (s *side) listGroups(ctx context.Context) (*metav1.APIGroupList, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	groups, err := s.discovery.ServerGroupsWithContext(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return nil, s.mayNotDiscover()
	case err != nil:
		return nil, s.responseFault(err)
	}
	return groups, nil
}

// mayNotDiscover returns the error for denied discovery. The default roles of Kubernetes allow discovery to all
// authenticated users.
func (s *side) mayNotDiscover() error {
	role := rbac.VirtualKubeletLocal()
	if s.remote {
		role = rbac.VirtualKubeletRemoteClusterwide()
	}
	role.Rules = []rbac.Rule{{PolicyRule: rbacv1.PolicyRule{NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*"}, Verbs: readVerbs[:1]}}}
	return s.forbiddenFault("find out which resources there are", role)
}

// checkReflectable returns an error if objects of the resource cannot be reflected, for example because a verb is
// missing.
func (r *served) checkReflectable(s *side, verbs []string) error {
	if !r.namespaced {
		return notReflectable("%s are cluster-scoped in %s, and only namespaced resources can be reflected", r.resource, s)
	}
	var lacking []string
	for _, verb := range verbs {
		if !slices.Contains(r.verbs, verb) {
			lacking = append(lacking, verb)
		}
	}
	if len(lacking) > 0 {
		return notReflectable("%s of %s cannot be reflected: its API server offers no %s for them", r.resource, s, strings.Join(lacking, ", "))
	}
	return nil
}
