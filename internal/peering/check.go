// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
)

// mostSkew is the largest accepted difference between the clocks of the clusters. Certificates and leases depend on
// the clock.
const mostSkew = time.Minute

// check determines whether the clusters can be joined. It changes nothing, and reports every problem that it finds.
func (o *Options) check(ctx context.Context) error {
	if err := o.inspect(ctx); err != nil {
		return err
	}
	if err := o.keep(ctx); err != nil {
		return err
	}
	o.complete()
	if err := o.learnNetwork(ctx); err != nil {
		return err
	}
	var found []error
	for _, look := range []func(context.Context) error{o.checkSides, o.checkTenantLimits, o.checkServer, o.checkClocks, o.checkVersions, o.checkRights, o.checkRoles, o.checkTenants, o.checkDrained, o.checkNode, o.findPullSecrets, o.checkRanges} {
		found = append(found, look(ctx))
	}
	return errors.Join(found...)
}

// inspect reads the installations of both clusters.
func (o *Options) inspect(ctx context.Context) error {
	return errors.Join(o.Consumer.inspect(ctx), o.Provider.inspectAsProvider(ctx))
}

// complete sets defaults for options that neither the user nor an existing peering has set.
func (o *Options) complete() {
	o.VirtualNode = cmp.Or(o.VirtualNode, o.Provider.ID())
	o.Credentials = cmp.Or(o.Credentials, Tokens)
	if o.Provider.liqo {
		// A provider that runs Liqo issues no other credentials.
		o.Credentials = Certificates
	}
}

func (o *Options) checkSides(context.Context) error {
	consumer, provider := o.Consumer, o.Provider
	switch {
	case consumer.uid == provider.uid:
		return fmt.Errorf("%s and %s are the same cluster: use another one as the provider", consumer.Name, provider.Name)
	case consumer.ID() == provider.ID():
		return fmt.Errorf("both clusters have the id %q: ids are unique among peers, so install Refract in one of them again with another --cluster-id", consumer.ID())
	case provider.invitation != nil && provider.invitation.Consumer != consumer.ID():
		return fmt.Errorf("the invitation of %s is for cluster %q, and %s is %q: request one for it (refractctl generate peering-user %s)",
			provider.ID(), provider.invitation.Consumer, consumer.Name, consumer.ID(), consumer.ID())
	case provider.invitation != nil && o.Credentials == Certificates:
		return errors.New("--credentials=certificate: an invitation provides only tokens")
	case !consumer.installation.Consumes:
		return fmt.Errorf("cluster %s: virtual nodes are switched off: upgrade release %s with --set offloading.enabled=true", consumer.Name, consumer.installation.Name)
	}
	return errors.Join(core.ClusterID(consumer.ID()).Validate(), core.ClusterID(provider.ID()).Validate())
}

func (o *Options) checkClocks(ctx context.Context) error {
	var offsets []time.Duration
	for _, c := range []*Cluster{o.Consumer, o.Provider} {
		offset, known, err := clockOf(ctx, c.Config)
		if err != nil {
			return fmt.Errorf("cluster %s: reading its clock, %w", c.Name, err)
		}
		if !known {
			o.say("%s: warning: the API server sends no Date header, so the clocks of the clusters were not compared", c.Name)
			return nil
		}
		offsets = append(offsets, offset)
	}
	if skew := (offsets[0] - offsets[1]).Abs().Round(time.Second); skew > mostSkew {
		return fmt.Errorf("the clocks of %s and %s are %s apart: synchronise them (NTP), certificates and leases depend on it", o.Consumer.Name, o.Provider.Name, skew)
	}
	return nil
}

// clockOf returns how far the clock of an API server is ahead of the local clock. It is not known when a proxy has
// removed the Date header.
func clockOf(ctx context.Context, config *rest.Config) (offset time.Duration, known bool, err error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/version", nil)
	if err != nil {
		return 0, false, err
	}
	asked := time.Now()
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, false, err
	}
	if err := response.Body.Close(); err != nil {
		return 0, false, err
	}
	there, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, false, nil //nolint:nilerr // there is none
	}
	return there.Sub(asked.Add(time.Since(asked) / 2)), true, nil
}

// checkVersions accepts one minor version of difference, because clusters are upgraded one after the other.
func (o *Options) checkVersions(context.Context) error {
	consumer, err := version.ParseGeneric(o.Consumer.installation.Version)
	if err != nil {
		return nil //nolint:nilerr // a version of the user's own
	}
	provider, err := version.ParseGeneric(o.Provider.installation.Version)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	if consumer.Major() == provider.Major() && max(consumer.Minor(), provider.Minor())-min(consumer.Minor(), provider.Minor()) <= 1 {
		return nil
	}
	return fmt.Errorf("%s has version %s and %s has %s: more than one minor version apart, upgrade the older one with refractctl install", o.Consumer.Name, consumer, o.Provider.Name, provider)
}

// right is a permission that the user needs: verbs for a resource.
type right struct {
	verbs                              []string
	group, resource, subresource, name string
}

// manage returns the permission to create objects, to update them when the command is run again, and to remove them.
func manage(group, resource string) right {
	return right{verbs: []string{"create", "get", "patch", "delete"}, group: group, resource: resource}
}

var (
	tenantRights  = []right{manage("", "namespaces"), manage(plugins.GroupVersion.Group, "peernetworks")}
	bindingRights = []right{manage("", "serviceaccounts"), manage(rbacv1.GroupName, "clusterrolebindings"), manage(rbacv1.GroupName, "rolebindings")}
	// nodeRights are the permissions to create and remove a virtual node. The PodDisruptionBudget of its Deployment is
	// deleted with the virtual node.
	nodeRights = slices.Concat(bindingRights, []right{
		manage("", "secrets"), manage(rbacv1.GroupName, "clusterroles"), manage(rbacv1.GroupName, "roles"), manage(offloading.GroupVersion.Group, "virtualnodes"),
		{[]string{"create", "patch"}, "policy", "poddisruptionbudgets", "", ""},
	})
	// foundRights are the permissions to find, change and remove the ForeignCluster, which controllers create.
	foundRights    = []right{{[]string{"list", "get", "patch", "delete"}, core.GroupVersion.Group, "foreignclusters", "", ""}}
	grantRights    = []right{manage(offloading.GroupVersion.Group, "quotas"), manage(auth.GroupVersion.Group, "resourceslices")}
	consumerRights = slices.Concat(tenantRights, nodeRights, foundRights)
	providerRights = slices.Concat(tenantRights, bindingRights, grantRights)
	// credentialRights are the additional permissions for each kind of credentials.
	credentialRights = map[Credentials][]right{
		Tokens: {{[]string{"create"}, "", "serviceaccounts", "token", ""}},
		Certificates: {
			{[]string{"create"}, certificatesv1.GroupName, "certificatesigningrequests", "", ""},
			{[]string{"update"}, certificatesv1.GroupName, "certificatesigningrequests", "approval", ""},
			{[]string{"approve"}, certificatesv1.GroupName, "signers", "", certificatesv1.KubeAPIServerClientSignerName},
		},
	}
)

func (o *Options) checkRights(ctx context.Context) error {
	return errors.Join(o.Consumer.lacks(ctx, consumerRights), o.providerRights(ctx))
}

func (o *Options) providerRights(ctx context.Context) error {
	if o.Provider.invitation != nil {
		return nil
	}
	if o.Provider.liqo {
		return o.Provider.lacks(ctx, liqoRights)
	}
	return o.Provider.lacks(ctx, slices.Concat(providerRights, credentialRights[cmp.Or(o.Credentials, Tokens)]))
}

// removalRights checks the permission to remove everything that Peer has created, before virtual nodes are drained.
func (o *Options) removalRights(ctx context.Context) error {
	atProvider := providerRights
	switch {
	case o.Provider.invitation != nil:
		atProvider = nil
	case o.Provider.liqo:
		atProvider = liqoRights
	}
	if atProvider != nil {
		atProvider = slices.Concat(atProvider, leavingRights, []right{list(offloading.GroupVersion.Group, "namespacemaps"), list(auth.GroupVersion.Group, "resourceslices")})
	}
	atConsumer := slices.Concat(consumerRights, leavingRights, []right{list("", "secrets"), {[]string{"list", "get", "delete"}, certificatesv1.GroupName, "certificatesigningrequests", "", ""}})
	return errors.Join(o.Consumer.lacks(ctx, only(atConsumer, "get", "list", "delete")), o.Provider.lacks(ctx, only(atProvider, "get", "list", "delete")))
}

// leavingRights are the permissions, in either cluster, to remove the objects that controllers have created for a
// peer, and to determine whether the clusters are also joined in the other direction.
var leavingRights = slices.Concat(foundRights, []right{
	{[]string{"get", "delete"}, coordinationv1.GroupName, "leases", "", ""}, list(offloading.GroupVersion.Group, "virtualnodes"), list(auth.GroupVersion.Group, "tenants"),
})

// list returns the permission to list objects.
func list(group, resource string) right {
	return right{verbs: []string{"list"}, group: group, resource: resource}
}

// only returns the rights restricted to the given verbs.
func only(rights []right, verbs ...string) (some []right) {
	for _, r := range rights {
		r.verbs = slices.DeleteFunc(slices.Clone(r.verbs), func(verb string) bool { return !slices.Contains(verbs, verb) })
		some = append(some, r)
	}
	return some
}

// reviews is the number of permissions that are reviewed at once.
const reviews = 8

// lacks returns an error that lists the missing permissions. An older version may not serve all of the resources. No
// permission is needed for a resource that is not served.
func (c *Cluster) lacks(ctx context.Context, rights []right) error {
	rights = slices.DeleteFunc(slices.Clone(rights), func(r right) bool {
		_, err := c.Client.RESTMapper().KindFor(schema.GroupVersionResource{Group: r.group, Resource: r.resource})
		return r.resource != "signers" && apimeta.IsNoMatchError(err)
	})
	missing := make([][]string, len(rights)) // missing verbs of each right
	group, bounded := errgroup.WithContext(ctx)
	group.SetLimit(reviews)
	var lock sync.Mutex
	for i, r := range rights {
		for _, verb := range r.verbs {
			group.Go(func() error {
				review, err := c.Clientset.AuthorizationV1().SelfSubjectAccessReviews().Create(bounded, &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Name: r.name,
					}},
				}, metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("cluster %s: reviewing your permissions, %w", c.Name, err)
				}
				if !review.Status.Allowed {
					lock.Lock()
					defer lock.Unlock()
					missing[i] = append(missing[i], verb)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var all []string
	for i, r := range rights {
		if len(missing[i]) > 0 {
			slices.Sort(missing[i])
			all = append(all, strings.TrimSuffix(strings.Join(missing[i], "/")+" "+r.resource+"/"+r.subresource, "/"))
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("cluster %s: you may not %s: use the credentials of an administrator", c.Name, strings.Join(all, ", nor "))
	}
	return nil
}

// checkRoles checks that the roles exist which the chart creates since peerings are created without it.
func (o *Options) checkRoles(ctx context.Context) error {
	return errors.Join(o.Consumer.hasRoles(ctx), o.Provider.hasRoles(ctx))
}

func (c *Cluster) hasRoles(ctx context.Context) error {
	if c.invitation != nil || c.liqo {
		return nil
	}
	for _, name := range sharedRoles(c.installation.RolePrefix) {
		err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &rbacv1.ClusterRole{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("cluster %s: there is no ClusterRole %s: upgrade release %s with refractctl install", c.Name, name, c.installation.Name)
		}
		if err != nil {
			return fmt.Errorf("cluster %s: getting ClusterRole %s, %w", c.Name, name, err)
		}
	}
	return nil
}

func (o *Options) checkTenants(ctx context.Context) error {
	_, here := o.Consumer.tenant(ctx, o.Provider)
	return errors.Join(o.tenantAtProvider(ctx), here)
}

// checkPeers fails if one of the clusters is not the cluster that was joined, but another one with the same ID.
func (o *Options) checkPeers(ctx context.Context) error {
	var found []error
	for _, side := range []struct{ c, peer *Cluster }{{o.Consumer, o.Provider}, {o.Provider, o.Consumer}} {
		if side.c.invitation != nil {
			continue
		}
		tenant, _, err := side.c.find(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(side.peer.ID())}})
		if tenant != nil {
			err = side.c.isFor(tenant, side.peer)
		}
		found = append(found, err)
	}
	return errors.Join(found...)
}

func (o *Options) tenantAtProvider(ctx context.Context) error {
	if o.Provider.invitation != nil {
		return nil
	}
	_, err := o.Provider.tenant(ctx, o.Consumer)
	return err
}

// checkNode prevents the creation of a virtual node under a name that is in use.
func (o *Options) checkNode(ctx context.Context) error {
	consumer, provider := o.Consumer, o.Provider.ID()
	// The ServiceAccount of the virtual node would have the name of the ServiceAccount that the peer uses as a consumer
	// of this cluster.
	if o.VirtualNode == wire.ConsumerServiceAccount {
		return fmt.Errorf("the virtual node cannot be called %s: set another --virtual-node", o.VirtualNode)
	}
	all := &offloading.VirtualNodeList{}
	if err := consumer.Client.List(ctx, all); err != nil {
		return fmt.Errorf("cluster %s: listing VirtualNodes, %w", consumer.Name, err)
	}
	for i := range all.Items {
		vn := &all.Items[i]
		key := client.ObjectKeyFromObject(vn)
		switch mine := vn.Namespace == wire.TenantNamespace(provider) && string(vn.Spec.ClusterID) == provider && IsOurs(vn); {
		case vn.Name != o.VirtualNode:
		case !mine:
			return fmt.Errorf("cluster %s: VirtualNode %s exists and was not created by refractctl: remove it, or set another --virtual-node", consumer.Name, key)
		case vn.DeletionTimestamp != nil:
			return fmt.Errorf("cluster %s: VirtualNode %s is being deleted: run the command again when it is gone", consumer.Name, key)
		default:
			return nil
		}
	}
	node := &corev1.Node{}
	err := consumer.Client.Get(ctx, client.ObjectKey{Name: o.VirtualNode}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: getting node %s, %w", consumer.Name, o.VirtualNode, err)
	}
	if err == nil {
		return fmt.Errorf("cluster %s: there is a node %s: set another --virtual-node", consumer.Name, o.VirtualNode)
	}
	return nil
}
