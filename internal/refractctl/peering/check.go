// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// checkJoin checks whether the clusters can be joined. It changes nothing, and reports all problems together. It
// returns the image pull secrets for the virtual kubelet.
func (p *pair) checkJoin(ctx context.Context, t *terms, network *podnetwork.Network, link *gateways.Link, limits tenant.Limits) (pullSecrets []*corev1.Secret, err error) {
	problems := []error{
		p.checkSides(t.credentials),
		p.tenant.CheckLimits(limits),
		t.address.Check(ctx),
		p.checkClocks(ctx),
		p.checkVersions(),
		p.consumer.RequireRights(ctx, consumerRights),
		p.checkProviderRights(ctx, t.credentials),
		checkRoles(ctx, p.consumer), checkRoles(ctx, p.provider),
		p.checkTenants(ctx),
		p.checkIdentity(ctx),
		p.tenant.RequireActive(ctx),
		p.checkNode(ctx, t.name),
	}
	if link != nil {
		problems = append(problems, link.Check(ctx))
	}
	pullSecrets, err = p.findPullSecrets(ctx)
	return pullSecrets, errors.Join(append(problems, err, network.CheckRanges(ctx, t.tolerance, p.Reporter))...)
}

// checkSides checks that the two clusters are different, and suitable for their roles.
func (p *pair) checkSides(kind identity.Kind) error {
	consumer, provider := p.consumer, p.provider
	if err := p.checkDifferent(); err != nil {
		return err
	}
	switch {
	case provider.IsInvited() && provider.Invitation.Consumer != consumer.ID():
		return fmt.Errorf("the invitation of %s is for cluster %q, and %s is %q: request one for it (refractctl generate peering-user %s)",
			provider.ID(), provider.Invitation.Consumer, consumer.Name, consumer.ID(), consumer.ID())
	case provider.IsInvited() && kind == identity.Certificates:
		return errors.New("--credentials=certificate: an invitation provides only tokens")
	case !consumer.Installation.Consumes:
		return fmt.Errorf("cluster %s: virtual nodes are switched off: upgrade release %s with --set offloading.enabled=true", consumer.Name, consumer.Installation.Name)
	}
	return errors.Join(core.ClusterID(consumer.ID()).Validate(), core.ClusterID(provider.ID()).Validate())
}

func (p *pair) checkClocks(ctx context.Context) error {
	var offsets []time.Duration
	for _, c := range []*cluster.Side{p.consumer, p.provider} {
		offset, known, err := c.ClockOffset(ctx)
		if err != nil {
			return fmt.Errorf("cluster %s: reading its clock, %w", c.Name, err)
		}
		if !known {
			p.Report("%s: warning: the API server sends no Date header, so the clocks of the clusters were not compared", c.Name)
			return nil
		}
		offsets = append(offsets, offset)
	}
	if skew := (offsets[0] - offsets[1]).Abs().Round(time.Second); skew > cluster.MaxClockSkew {
		return fmt.Errorf("the clocks of %s and %s are %s apart: synchronise them (NTP), certificates and leases depend on it", p.consumer.Name, p.provider.Name, skew)
	}
	return nil
}

// checkVersions checks that the versions of the clusters differ by at most one minor version, because clusters are
// upgraded one after the other. Custom versions are not compared.
func (p *pair) checkVersions() error {
	consumer, err := version.ParseGeneric(p.consumer.Installation.Version)
	if err != nil {
		return nil //nolint:nilerr // a version of the user's own
	}
	provider, err := version.ParseGeneric(p.provider.Installation.Version)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	if consumer.Major() == provider.Major() && max(consumer.Minor(), provider.Minor())-min(consumer.Minor(), provider.Minor()) <= 1 {
		return nil
	}
	return fmt.Errorf("%s has version %s and %s has %s: more than one minor version apart, upgrade the older one with refractctl install", p.consumer.Name, consumer, p.provider.Name, provider)
}

var (
	tenantRights  = []cluster.Right{cluster.RightToManage("", "namespaces"), cluster.RightToManage(plugins.GroupVersion.Group, "peernetworks")}
	bindingRights = []cluster.Right{cluster.RightToManage("", "serviceaccounts"), cluster.RightToManage(rbacv1.GroupName, "clusterrolebindings"), cluster.RightToManage(rbacv1.GroupName, "rolebindings")}
	// nodeRights are the permissions to create and remove a virtual node. Removing the PodDisruptionBudget of its
	// Deployment needs no permission, because it is deleted with the virtual node.
	nodeRights = slices.Concat(bindingRights, []cluster.Right{
		cluster.RightToManage("", "secrets"), cluster.RightToManage(rbacv1.GroupName, "clusterroles"), cluster.RightToManage(rbacv1.GroupName, "roles"), cluster.RightToManage(offloading.GroupVersion.Group, "virtualnodes"),
		{Verbs: []string{"create", "patch"}, Group: "policy", Resource: "poddisruptionbudgets"},
	})
	// foundRights are the permissions to find, change and remove the ForeignCluster, which the controllers create.
	foundRights    = []cluster.Right{{Verbs: []string{"list", "get", "patch", "delete"}, Group: core.GroupVersion.Group, Resource: "foreignclusters"}}
	grantRights    = []cluster.Right{cluster.RightToManage(offloading.GroupVersion.Group, "quotas"), cluster.RightToManage(auth.GroupVersion.Group, "resourceslices")}
	consumerRights = slices.Concat(tenantRights, nodeRights, foundRights)
	providerRights = slices.Concat(tenantRights, bindingRights, grantRights)
	// credentialRights are the additional permissions for each kind of credentials.
	credentialRights = map[identity.Kind][]cluster.Right{
		identity.Tokens: {{Verbs: []string{"create"}, Resource: "serviceaccounts", Subresource: "token"}},
		identity.Certificates: {
			{Verbs: []string{"create"}, Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"},
			{Verbs: []string{"update"}, Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: "approval"},
			{Verbs: []string{"approve"}, Group: certificatesv1.GroupName, Resource: "signers", Name: certificatesv1.KubeAPIServerClientSignerName},
		},
	}
)

// leavingRights are the permissions to remove the objects that controllers have created for a peer, and to determine
// whether the clusters are also joined in the other direction. They are needed in both clusters.
var leavingRights = slices.Concat(foundRights, []cluster.Right{
	{Verbs: []string{"get", "delete"}, Group: coordinationv1.GroupName, Resource: "leases"}, cluster.RightToList(offloading.GroupVersion.Group, "virtualnodes"), cluster.RightToList(auth.GroupVersion.Group, "tenants"),
})

// checkProviderRights checks that the user has the permissions to admit the consumer.
func (p *pair) checkProviderRights(ctx context.Context, kind identity.Kind) error {
	switch {
	case p.provider.IsInvited():
		return nil
	case p.provider.RunsLiqo:
		return p.provider.RequireRights(ctx, liqoRights)
	}
	return p.provider.RequireRights(ctx, slices.Concat(providerRights, credentialRights[cmp.Or(kind, identity.Tokens)]))
}

// checkRemovalRights checks that the user may remove everything that Peer has created. It is called before virtual
// nodes are drained.
func (p *pair) checkRemovalRights(ctx context.Context) error {
	atProvider := providerRights
	switch {
	case p.provider.IsInvited():
		atProvider = nil
	case p.provider.RunsLiqo:
		atProvider = liqoRights
	}
	if atProvider != nil {
		atProvider = slices.Concat(atProvider, leavingRights, []cluster.Right{cluster.RightToList(offloading.GroupVersion.Group, "namespacemaps"), cluster.RightToList(auth.GroupVersion.Group, "resourceslices")})
	}
	atConsumer := slices.Concat(consumerRights, leavingRights, []cluster.Right{cluster.RightToList("", "secrets"), {Verbs: []string{"list", "get", "delete"}, Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}})
	return errors.Join(p.consumer.RequireRights(ctx, cluster.OnlyVerbs(atConsumer, "get", "list", "delete")), p.provider.RequireRights(ctx, cluster.OnlyVerbs(atProvider, "get", "list", "delete")))
}

// CheckRights returns an error that lists the permissions that the user lacks to join the cluster with another one,
// as a consumer or as a provider.
func CheckRights(ctx context.Context, c *cluster.Cluster) error {
	return c.RequireRights(ctx, slices.Concat(consumerRights, grantRights, credentialRights[identity.Tokens]))
}

// checkRoles checks that the roles exist that only recent versions of the chart create.
func checkRoles(ctx context.Context, side *cluster.Side) error {
	if side.IsInvited() || side.RunsLiqo {
		return nil
	}
	for _, name := range tenant.SharedRoles(side.Installation.RolePrefix) {
		err := side.Client.Get(ctx, client.ObjectKey{Name: name}, &rbacv1.ClusterRole{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("cluster %s: there is no ClusterRole %s: upgrade release %s with refractctl install", side.Name, name, side.Installation.Name)
		}
		if err != nil {
			return fmt.Errorf("cluster %s: getting ClusterRole %s, %w", side.Name, name, err)
		}
	}
	return nil
}

// checkTenants checks that both tenant namespaces can be used.
func (p *pair) checkTenants(ctx context.Context) error {
	_, err := p.consumer.CheckTenant(ctx, p.provider)
	return errors.Join(p.checkTenantAtProvider(ctx), err)
}

func (p *pair) checkTenantAtProvider(ctx context.Context) error {
	if p.provider.IsInvited() {
		return nil
	}
	_, err := p.provider.CheckTenant(ctx, p.consumer)
	return err
}

// checkPeers fails if one of the clusters is not the cluster that was joined, but another cluster with the same ID.
func (p *pair) checkPeers(ctx context.Context) error {
	err := errors.Join(p.consumer.CheckTenantOwner(ctx, p.provider), p.checkIdentity(ctx))
	if p.provider.IsInvited() {
		return err
	}
	return errors.Join(err, p.provider.CheckTenantOwner(ctx, p.consumer))
}

// checkIdentity fails if the clusters were joined by Liqo's protocol. The controllers of the consumer would restore its
// virtual nodes, and the provider's Tenant would keep the access.
func (p *pair) checkIdentity(ctx context.Context) error {
	key := client.ObjectKey{Namespace: wire.TenantNamespace(p.provider.ID()), Name: wire.ControlPlaneIdentity(p.provider.ID())}
	err := p.consumer.Client.Get(ctx, key, &auth.Identity{})
	switch {
	case err == nil:
		return fmt.Errorf("cluster %s has joined cluster %s by Liqo's protocol (Identity %s): end the peering with liqoctl unpeer, or delete the ResourceSlices and this Identity here, and Tenant %s there",
			p.consumer.Name, p.provider.ID(), key, p.consumer.ID())
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apimeta.IsNoMatchError(err):
		return nil
	}
	return fmt.Errorf("cluster %s: getting Identity %s, %w", p.consumer.Name, key, err)
}

// checkNode fails if the name of the virtual node cannot be used. It does not fail if the name belongs to an existing
// virtual node of this provider that refractctl has created.
func (p *pair) checkNode(ctx context.Context, name string) error {
	consumer, provider := p.consumer, p.provider.ID()
	// The ServiceAccount of the virtual node would have the name of the ServiceAccount that the peer uses as a consumer
	// of this cluster.
	if name == wire.ConsumerServiceAccount {
		return fmt.Errorf("the virtual node cannot be called %s: set another --virtual-node", name)
	}
	all := &offloading.VirtualNodeList{}
	if err := consumer.Client.List(ctx, all); err != nil {
		return fmt.Errorf("cluster %s: listing VirtualNodes, %w", consumer.Name, err)
	}
	for i := range all.Items {
		vn := &all.Items[i]
		key := client.ObjectKeyFromObject(vn)
		switch mine := vn.Namespace == wire.TenantNamespace(provider) && string(vn.Spec.ClusterID) == provider && cluster.IsOurs(vn); {
		case vn.Name != name:
		case !mine:
			return fmt.Errorf("cluster %s: VirtualNode %s exists and was not created by refractctl: remove it, or set another --virtual-node", consumer.Name, key)
		case vn.DeletionTimestamp != nil:
			return fmt.Errorf("cluster %s: VirtualNode %s is being deleted: run the command again when it is gone", consumer.Name, key)
		default:
			return nil
		}
	}
	node := &corev1.Node{}
	err := consumer.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: getting node %s, %w", consumer.Name, name, err)
	}
	if err == nil {
		return fmt.Errorf("cluster %s: there is a node %s: set another --virtual-node", consumer.Name, name)
	}
	return nil
}

// Comparison describes whether two clusters can be joined. Each check has its own error, which is nil if the check has
// found no problems.
type Comparison struct {
	// ConsumerID and ProviderID are the IDs of the clusters.
	ConsumerID, ProviderID  string
	Sides, Clocks, Versions error
}

// Compare checks the IDs, clocks and versions of two clusters as Peer does. The clusters may already be joined, in
// either direction. Compare changes nothing. It fails if the clusters cannot be compared.
func (o *Options) Compare(ctx context.Context) (*Comparison, error) {
	p, err := o.inspect(ctx)
	if err != nil {
		return nil, err
	}
	c := &Comparison{ConsumerID: p.consumer.ID(), ProviderID: p.provider.ID(), Clocks: p.checkClocks(ctx), Versions: p.checkVersions()}
	if p.consumer.UID == p.provider.UID || p.consumer.ID() == p.provider.ID() {
		c.Sides = p.checkSides("")
	}
	return c, nil
}
