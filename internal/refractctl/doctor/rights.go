// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/accessreview"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/peering"
	"github.com/refract-project/refract/internal/refractctl/release"
)

func (p *Examination) userRights(ctx context.Context, _ *release.Installation) error {
	if p.Cluster == nil {
		return nil
	}
	if err := peering.CheckRights(ctx, p.Cluster); err != nil {
		p.addFinding("your permissions", Warning, "%v for refractctl peer", err)
		return nil
	}
	p.addFinding("your permissions", OK, "they are enough for refractctl peer")
	return nil
}

// optional maps flags of the controller manager to the additional roles that each flag requires.
var optional = map[string]func(rbac.Manager) []rbac.Object{
	"--vk-options-default-template":    rbac.Manager.VirtualNodes,
	"--create-service-accounts":        rbac.Manager.KubeletAccounts,
	"--approve-serving-certificates":   rbac.Manager.ServingCertificates,
	"--enable-node-failure-controller": rbac.Manager.NodeFailure,
	"--enable-network-addresses":       rbac.Manager.Addresses,
	"--tenant-default-object-count":    rbac.Manager.GrantedKinds,
}

// managerRights checks each permission of the controller manager, because its roles may be incomplete or not bound.
func (p *Examination) managerRights(ctx context.Context, installed *release.Installation) error {
	const subject = "permissions of the controller manager"
	managers := &appsv1.DeploymentList{}
	if err := p.Client.List(ctx, managers, client.InNamespace(installed.Namespace), client.MatchingLabels{release.InstanceLabel: installed.Name}); err != nil {
		return err
	}
	var arguments []string
	for i := range managers.Items {
		if pod := &managers.Items[i].Spec.Template.Spec; pod.ServiceAccountName == installed.ServiceAccount && len(pod.Containers) > 0 {
			arguments = pod.Containers[0].Args
		}
	}
	manager := rbac.Manager{Prefix: installed.RolePrefix, Namespace: installed.Namespace, Subject: rbac.ServiceAccount(installed.Namespace, installed.ServiceAccount)}
	missing, err := p.refusedRights(ctx, installed.Namespace, installed.ServiceAccount, rightsOf(manager, arguments))
	return p.addReview(subject, installed.Namespace+"/"+installed.ServiceAccount, missing, err, "run refractctl install, which updates its roles and bindings")
}

// addReview adds a finding about the missing permissions of a ServiceAccount, with the remedy.
func (p *Examination) addReview(subject, account string, missing []string, err error, remedy string) error {
	switch {
	case apierrors.IsForbidden(err):
		p.addFinding(subject, Warning, "they cannot be examined: you may not create subjectaccessreviews, use the credentials of an administrator")
	case err != nil:
		return err
	case len(missing) > 0:
		p.addFinding(subject, Error, "ServiceAccount %s may not %s: %s", account, listMissing(missing), remedy)
	default:
		p.addFinding(subject, OK, "ServiceAccount %s has them all", account)
	}
	return nil
}

// rightsOf returns the permissions that a controller manager with these arguments needs.
func rightsOf(manager rbac.Manager, arguments []string) []authorizationv1.ResourceAttributes {
	objects := manager.Objects()
	for flag, roles := range optional {
		if slices.ContainsFunc(arguments, func(given string) bool {
			name, value, _ := strings.Cut(given, "=")
			return name == flag && value != "false" && value != "0"
		}) {
			objects = append(objects, roles(manager)...)
		}
	}
	webhook := !slices.Contains(arguments, "--enable-scheduling-webhook=false")
	rights := sets.New[authorizationv1.ResourceAttributes]()
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rights.Insert(rbac.Attributes("", role.Rules)...)
		case *rbacv1.Role:
			if webhook || !strings.HasSuffix(role.Name, rbac.ControllerManagerWebhook().Name) {
				rights.Insert(rbac.Attributes(role.Namespace, role.Rules)...)
			}
		}
	}
	return sortedRights(rights)
}

func sortedRights(rights sets.Set[authorizationv1.ResourceAttributes]) []authorizationv1.ResourceAttributes {
	return slices.SortedFunc(maps.Keys(rights), func(a, b authorizationv1.ResourceAttributes) int {
		return strings.Compare(describeRight(a), describeRight(b))
	})
}

// describeRight returns a readable description of a permission, such as "patch shadowpods/status".
func describeRight(r authorizationv1.ResourceAttributes) string {
	text := strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// refusedRights returns descriptions of the permissions that a ServiceAccount lacks in this cluster.
func (p *Examination) refusedRights(ctx context.Context, namespace, name string, rights []authorizationv1.ResourceAttributes) (missing []string, err error) {
	isAllowed := accessreview.ServiceAccount(p.Client, namespace, name)
	return refusedRights(ctx, rights, func(ctx context.Context, right authorizationv1.ResourceAttributes) (bool, error) {
		allowed, err := isAllowed(ctx, right)
		if err != nil {
			err = fmt.Errorf("asking whether %s may %s, %w", serviceaccount.MakeUsername(namespace, name), describeRight(right), err)
		}
		return allowed, err
	})
}

// refusedRights returns sorted descriptions of the rights that are not allowed.
func refusedRights(ctx context.Context, rights []authorizationv1.ResourceAttributes, isAllowed accessreview.Reviewer) (missing []string, err error) {
	refused, err := accessreview.Refused(ctx, rights, isAllowed)
	for _, right := range refused {
		missing = append(missing, describeRight(right))
	}
	slices.Sort(missing)
	return missing, err
}
