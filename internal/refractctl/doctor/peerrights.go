// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/accessreview"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peering"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// mostMissing is the maximum number of missing permissions that are listed. A virtual kubelet without any roles lacks
// about a hundred permissions.
const mostMissing = 5

func listMissing(missing []string) string {
	if more := len(missing) - mostMissing; more > 0 {
		return fmt.Sprintf("%s, nor have %d other permissions", strings.Join(missing[:mostMissing], ", nor "), more)
	}
	return strings.Join(missing, ", nor ")
}

// kubeletRights checks each permission that a virtual kubelet needs in this cluster.
func (p *Examination) kubeletRights(ctx context.Context, vn *offloading.VirtualNode, installed *release.Installation) error {
	if vn.Spec.KubeconfigSecretRef == nil {
		return nil // there is no kubeconfig for the provider, so there is nothing to check
	}
	subject := "permissions of the virtual kubelet " + client.ObjectKeyFromObject(vn).String()
	offloaded, err := p.offloadedNamespaces(ctx, vn)
	if err != nil {
		return err
	}
	kubelet := rbac.Kubelet{Prefix: installed.RolePrefix, NodeName: vn.Name, TenantNamespace: vn.Namespace, KubeconfigSecret: vn.Spec.KubeconfigSecretRef.Name, Subject: rbac.ServiceAccount(vn.Namespace, vn.Name)}
	missing, err := p.refusedRights(ctx, vn.Namespace, vn.Name, kubeletRightsOf(kubelet, offloaded))
	own := "refractctl peer"
	if !cluster.IsOurs(vn) {
		own = fmt.Sprintf("refractctl create virtualnode %s --provider=%s", vn.Name, vn.Spec.ClusterID)
	}
	return p.addReview(subject, client.ObjectKeyFromObject(vn).String(), missing, err,
		"run refractctl install, which updates the roles of all virtual nodes, and "+own+", which updates those of this one")
}

// mostOffloaded is the maximum number of offloaded namespaces where permissions are checked. A few are enough, because
// the controller manager binds the same role in all of them.
const mostOffloaded = 5

// offloadedNamespaces returns some of the namespaces that are offloaded to the provider of a virtual node.
func (p *Examination) offloadedNamespaces(ctx context.Context, vn *offloading.VirtualNode) ([]string, error) {
	maps := &offloading.NamespaceMapList{}
	if err := p.Client.List(ctx, maps, client.InNamespace(vn.Namespace)); err != nil {
		return nil, fmt.Errorf("listing NamespaceMaps, %w", err)
	}
	var names []string
	for i := range maps.Items {
		if maps.Items[i].Labels[wire.ReplicatedLabel] == "true" {
			// This map belongs to a consumer of this cluster.
			continue
		}
		for name, status := range maps.Items[i].Status.CurrentMapping {
			if status.Phase == offloading.MappingAccepted {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names[:min(len(names), mostOffloaded)], nil
}

// kubeletRightsOf returns the permissions of a virtual kubelet in its own cluster, including its permissions in the
// offloaded namespaces. Permissions for tokens are left out, because they depend on the flags of the virtual kubelet.
func kubeletRightsOf(kubelet rbac.Kubelet, offloaded []string) []authorizationv1.ResourceAttributes {
	rights := sets.New[authorizationv1.ResourceAttributes]()
	for _, object := range kubelet.Objects() {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			if role.Name != rbac.VirtualKubeletExtended().Named(kubelet.Prefix) {
				rights.Insert(rbac.Attributes("", role.Rules)...)
			}
		case *rbacv1.Role:
			rights.Insert(rbac.Attributes(role.Namespace, role.Rules)...)
		}
	}
	for _, namespace := range offloaded {
		rights.Insert(rbac.Attributes(namespace, rbac.VirtualKubeletExtended().PolicyRules(strings.NewReplacer()))...)
	}
	return sortedRights(rights)
}

// provider describes how this cluster accesses a provider.
type provider struct {
	// subject is the subject of the findings: the Secret with the kubeconfig.
	subject string
	config  *rest.Config
	// tenant is the tenant namespace of this cluster on the provider.
	tenant string
}

// answerTimeout limits a request to a provider, which is often unreachable from the user's computer.
const answerTimeout = 5 * time.Second

// findProtocol reports whether a provider was joined by Liqo's protocol, and which command joins it again. This is the
// case if it runs Liqo (refractctl peer then has created a Secret with a key), or if liqoctl has joined it.
func (p *Examination) findProtocol(ctx context.Context, vn *offloading.VirtualNode) (liqo bool, again string, err error) {
	again = "refractctl peer"
	err = p.Client.Get(ctx, client.ObjectKey{Namespace: vn.Namespace, Name: peering.KeysSecret}, &corev1.Secret{})
	if err == nil {
		return true, again, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, again, fmt.Errorf("getting Secret %s/%s, %w", vn.Namespace, peering.KeysSecret, err)
	}
	identity := client.ObjectKey{Namespace: vn.Namespace, Name: wire.ControlPlaneIdentity(string(vn.Spec.ClusterID))}
	err = p.Client.Get(ctx, identity, &auth.Identity{})
	switch {
	case err == nil:
		return true, "liqoctl peer", nil
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err), apierrors.IsForbidden(err):
		return false, again, nil
	}
	return false, again, fmt.Errorf("getting Identity %s, %w", identity, err)
}

// remoteRights checks each permission that this cluster needs in its tenant namespace on a provider. It returns only
// errors of requests to this cluster.
func (p *Examination) remoteRights(ctx context.Context, vn *offloading.VirtualNode, installed *release.Installation, of *provider) error {
	liqo, again, err := p.findProtocol(ctx, vn)
	if err != nil {
		return err
	}
	config := rest.CopyConfig(of.config)
	config.Timeout, config.QPS = answerTimeout, -1
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.addFinding(of.subject, Error, "data.%s cannot be used, %v: recreate it with %s", wire.KubeconfigSecretKey, err, again)
		return nil
	}
	rights := rbac.Attributes(of.tenant, rbac.RemoteControlPlane().PolicyRules(strings.NewReplacer()))
	if liqo {
		// The virtual kubelet has credentials of its own, for other permissions. One review is enough to check that the API server responds.
		rights = rights[:1]
	}
	missing, err := refusedRights(ctx, rights, accessreview.Self(clientset.AuthorizationV1()))
	id := vn.Spec.ClusterID
	switch {
	case apierrors.IsUnauthorized(err):
		p.addFinding(of.subject, Error, "cluster %s rejects the credentials in it: renew them with %s", id, again)
	case apierrors.IsForbidden(err):
		p.addFinding(of.subject, Warning, "what cluster %s lets this cluster do cannot be examined, %v: bind ClusterRole system:basic-user to the group system:authenticated there", id, err)
	case err != nil:
		p.addFinding(of.subject, Warning, "the API server of cluster %s does not answer this computer, %v: only pods of this cluster need to reach it, see condition %s of ForeignCluster %s", id, err, core.APIServerStatusCondition, id)
	case liqo:
		p.addFinding(of.subject, OK, "cluster %s answers and accepts the credentials in it", id)
	case len(missing) == 0:
		p.addFinding(of.subject, OK, "cluster %s grants this cluster all permissions in namespace %s", id, of.tenant)
	default:
		level := Warning // only a warning, because an older provider grants less
		if slices.ContainsFunc(missing, func(right string) bool { return strings.Contains(right, "namespacemaps") }) {
			level = Error // without permission for NamespaceMaps, nothing can be offloaded
		}
		p.addFinding(of.subject, level, "cluster %s does not let this cluster %s: upgrade cluster %s with refractctl install and run refractctl peer again, or have its administrator run refractctl generate peering-user %s", id, listMissing(missing), id, installed.ClusterID)
	}
	return nil
}
