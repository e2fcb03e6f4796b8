// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/internal/accessreview"
)

// Right is a permission that the user needs: verbs for a resource.
type Right struct {
	Verbs                              []string
	Group, Resource, Subresource, Name string
}

// RightToManage returns the permission to create, update and remove objects. Updates are needed when a command is run
// again.
func RightToManage(group, resource string) Right {
	return Right{Verbs: []string{"create", "get", "patch", "delete"}, Group: group, Resource: resource}
}

// RightToList returns the permission to list objects.
func RightToList(group, resource string) Right {
	return Right{Verbs: []string{"list"}, Group: group, Resource: resource}
}

// OnlyVerbs returns the rights, restricted to the given verbs.
func OnlyVerbs(rights []Right, verbs ...string) (some []Right) {
	for _, r := range rights {
		r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool { return !slices.Contains(verbs, verb) })
		some = append(some, r)
	}
	return some
}

func (r *Right) attributes(verb string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name}
}

// RequireRights returns an error with the permissions that the user lacks. No permissions are needed for resources that
// the cluster does not serve because its version is older.
func (c *Cluster) RequireRights(ctx context.Context, rights []Right) error {
	rights = slices.DeleteFunc(slices.Clone(rights), func(r Right) bool {
		_, err := c.Client.RESTMapper().KindFor(schema.GroupVersionResource{Group: r.Group, Resource: r.Resource})
		return r.Resource != "signers" && apimeta.IsNoMatchError(err)
	})
	var reviewed []authorizationv1.ResourceAttributes
	for _, r := range rights {
		for _, verb := range r.Verbs {
			reviewed = append(reviewed, r.attributes(verb))
		}
	}
	refused, err := accessreview.Refused(ctx, reviewed, accessreview.Self(c.Clientset.AuthorizationV1()))
	if err != nil {
		return fmt.Errorf("cluster %s: reviewing your permissions, %w", c.Name, err)
	}
	var missing []string
	for _, r := range rights {
		verbs := slices.DeleteFunc(slices.Sorted(slices.Values(r.Verbs)), func(verb string) bool { return !slices.Contains(refused, r.attributes(verb)) })
		if len(verbs) > 0 {
			missing = append(missing, strings.TrimSuffix(strings.Join(verbs, "/")+" "+r.Resource+"/"+r.Subresource, "/"))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cluster %s: you may not %s: use the credentials of an administrator", c.Name, strings.Join(missing, ", nor "))
	}
	return nil
}
