// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Names of the templates. liqoctl uses the same ones. ServerTemplate is the template of gateways to which peers connect.
const (
	ServerTemplate = "wireguard-server"
	clientTemplate = "wireguard-client"
)

// Link is a connection between the networks of two clusters, as it was found by Find. It is immutable.
type Link struct {
	consumer, provider *end
	settings           Settings
	progress.Reporter
}

// end is one of the two clusters, with its objects of the link.
type end struct {
	*cluster.Side
	// peer is the ID of the other cluster.
	peer string
	// podRanges are the pod ranges that the user has set.
	podRanges []netip.Prefix
	// server and client are the gateway of the cluster. At most one of them is set.
	server *api.GatewayServer
	client *api.GatewayClient
}

func (e *end) namespace() string { return wire.TenantNamespace(e.peer) }

// labels returns the labels by which the objects of the link are found.
func (e *end) labels() map[string]string { return map[string]string{wire.RemoteClusterIDLabel: e.peer} }

// hasAccess reports whether objects of the cluster can be read and written with the permissions of an administrator.
func (e *end) hasAccess() bool { return !e.IsAbsent() && !e.IsInvited() }

// Clusters are the clusters of a link, with the pod ranges that the user has set for them.
type Clusters struct {
	Consumer, Provider             *cluster.Side
	ConsumerRanges, ProviderRanges []netip.Prefix
}

// Find reads the existing objects of the link between two clusters. Settings that the user has not set are taken from
// these objects, or else have the defaults of liqoctl.
func Find(ctx context.Context, c Clusters, given Settings, report progress.Reporter) (*Link, error) {
	l := &Link{
		consumer: &end{Side: c.Consumer, peer: c.Provider.ID(), podRanges: c.ConsumerRanges},
		provider: &end{Side: c.Provider, peer: c.Consumer.ID(), podRanges: c.ProviderRanges},
		Reporter: report,
	}
	for _, e := range []*end{l.consumer, l.provider} {
		if err := e.find(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	l.settings, err = given.complete(l)
	return l, err
}

// find reads the gateway of the cluster. A cluster without the CRDs has none.
func (e *end) find(ctx context.Context) error {
	if !e.hasAccess() {
		return nil
	}
	servers, clients := &api.GatewayServerList{}, &api.GatewayClientList{}
	where := []client.ListOption{client.InNamespace(e.namespace()), client.MatchingLabels(e.labels())}
	for _, list := range []client.ObjectList{servers, clients} {
		if err := e.Client.List(ctx, list, where...); err != nil && !isNotServed(err) {
			return fmt.Errorf("cluster %s: listing the gateways in namespace %s, %w", e.Name, e.namespace(), err)
		}
	}
	if len(servers.Items)+len(clients.Items) > 1 {
		const text = "cluster %s: namespace %s has %d GatewayServers and %d GatewayClients, but a peer has one gateway: " +
			"delete the others (kubectl -n %s get gatewayservers,gatewayclients)"
		return fmt.Errorf(text, e.Name, e.namespace(), len(servers.Items), len(clients.Items), e.namespace())
	}
	for i := range servers.Items {
		e.server = &servers.Items[i]
	}
	for i := range clients.Items {
		e.client = &clients.Items[i]
	}
	return nil
}

// HasGateway reports whether a cluster has a gateway to a peer.
func HasGateway(ctx context.Context, side *cluster.Side, peer string) (bool, error) {
	e := &end{Side: side, peer: peer}
	err := e.find(ctx)
	return e.server != nil || e.client != nil, err
}

// isNotServed reports whether a request failed because the cluster has no CRD of the kind.
func isNotServed(err error) bool { return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// serverEnd and clientEnd return the cluster whose gateway waits for connections, and the cluster that connects to it.
func (l *Link) serverEnd() *end {
	if l.settings.Server == Consumer {
		return l.consumer
	}
	return l.provider
}

func (l *Link) clientEnd() *end {
	if l.settings.Server == Consumer {
		return l.provider
	}
	return l.consumer
}

// AreEnabled reports whether a cluster has the templates of gateways. A cluster that cannot be accessed, or only with an
// invitation, has them if the invitation contains a gateway.
func AreEnabled(ctx context.Context, side *cluster.Side) (bool, error) {
	switch {
	case side.IsInvited():
		return side.Invitation.Gateway != nil, nil
	case side.IsAbsent():
		return true, nil
	}
	for _, template := range []client.Object{&api.WgGatewayServerTemplate{}, &api.WgGatewayClientTemplate{}} {
		name := ServerTemplate
		if _, isClient := template.(*api.WgGatewayClientTemplate); isClient {
			name = clientTemplate
		}
		err := side.Client.Get(ctx, client.ObjectKey{Namespace: side.Installation.Namespace, Name: name}, template)
		if isNotServed(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("cluster %s: getting the template %s of gateways, %w", side.Name, name, err)
		}
	}
	return true, nil
}

// deploymentKind is the kind of the object in templates of Refract. Templates of Liqo contain other kinds.
const deploymentKind = "Deployment"

// RunsOwn reports whether the controller manager of Refract runs the gateways of a cluster, and not Liqo.
func RunsOwn(ctx context.Context, side *cluster.Side) (bool, error) {
	template := &api.WgGatewayClientTemplate{}
	err := side.Client.Get(ctx, client.ObjectKey{Namespace: side.Installation.Namespace, Name: clientTemplate}, template)
	if isNotServed(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: getting the template %s of gateways, %w", side.Name, clientTemplate, err)
	}
	return template.Spec.ObjectKind.Kind == deploymentKind, nil
}

// Check returns an error if the clusters cannot be connected. It changes nothing, and reports all problems together.
func (l *Link) Check(ctx context.Context) error {
	var problems []error
	for _, e := range []*end{l.consumer, l.provider} {
		problems = append(problems, e.check(ctx))
	}
	if invited := l.provider; invited.IsInvited() && l.settings.Server == Consumer {
		problems = append(problems, fmt.Errorf("the invitation of %s contains its gateway, to which this cluster connects: omit --gw-server-service-location", invited.ID()))
	}
	return errors.Join(problems...)
}

func (e *end) check(ctx context.Context) error {
	enabled, err := AreEnabled(ctx, e.Side)
	switch {
	case err != nil:
		return err
	case !enabled && e.IsInvited():
		return fmt.Errorf("the invitation of %s contains no gateway: ask its administrator to run refractctl generate peering-user %s --network=gateway, or join with --network=none", e.ID(), e.peer)
	case !enabled && e.RunsLiqo:
		return fmt.Errorf("cluster %s: the templates %s and %s of Liqo's gateways are missing in namespace %s: enable networking in Liqo, or join with --network=none",
			e.Name, ServerTemplate, clientTemplate, e.Installation.Namespace)
	case !enabled:
		return fmt.Errorf("cluster %s: gateways are not enabled: upgrade release %s with refractctl install --network=gateway, or join with --network=none", e.Name, e.Installation.Name)
	case !e.hasAccess():
		return nil
	}
	_, err = e.findDeclared(ctx)
	return errors.Join(err, e.RequireRights(ctx, rights))
}

// rights are the permissions to create, read and remove the objects of a link.
var rights = []cluster.Right{
	cluster.RightToManage(api.GroupVersion.Group, "configurations"), cluster.RightToManage(api.GroupVersion.Group, "gatewayservers"),
	cluster.RightToManage(api.GroupVersion.Group, "gatewayclients"), cluster.RightToManage(api.GroupVersion.Group, "publickeies"),
	cluster.RightToList(api.GroupVersion.Group, "connections"), cluster.RightToManage("ipam.liqo.io", "networks"),
	cluster.RightToManage("", "secrets"),
}
