// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/invitation"
)

// chosenAddressAnnotation ("true") marks a GatewayClient whose address was set by the user and not taken from the server.
const chosenAddressAnnotation = wire.ChosenAddressAnnotation

// keyLength is the length of a public key in bytes (Curve25519).
const keyLength = 32

// Connect creates the objects of the link in both clusters, which must have the tenant namespaces of each other. It
// returns when each gateway has keys, and each cluster has the public key of the other one. AwaitConnected then waits
// for the connection. Connect may be called again: it applies changed ranges, addresses and keys.
func (l *Link) Connect(ctx context.Context, atConsumer, atProvider *cluster.Writer) error {
	writers := map[*end]*cluster.Writer{l.consumer: atConsumer, l.provider: atProvider}
	if err := l.exchangeRanges(ctx, writers); err != nil {
		return err
	}
	endpoint, serverKey, err := l.ensureServer(ctx, writers)
	if err != nil {
		return err
	}
	clientKey, err := l.ensureClient(ctx, writers[l.clientEnd()], endpoint)
	if err != nil {
		return err
	}
	if err := l.clientEnd().applyKey(ctx, writers[l.clientEnd()], serverKey); err != nil {
		return err
	}
	return l.serverEnd().applyKey(ctx, writers[l.serverEnd()], clientKey)
}

// exchangeRanges tells each cluster the ranges of the other one, and waits until both have granted local ranges for them.
func (l *Link) exchangeRanges(ctx context.Context, writers map[*end]*cluster.Writer) error {
	ends := []*end{l.consumer, l.provider}
	for _, e := range ends {
		if e.IsInvited() {
			continue
		}
		if err := l.copyPullSecrets(ctx, e, writers[e]); err != nil {
			return err
		}
		if err := l.declareRanges(ctx, e, writers[e]); err != nil {
			return err
		}
	}
	for i, e := range ends {
		ranges, err := l.awaitRanges(ctx, ends[1-i])
		if err != nil {
			return err
		}
		if err := e.applyRanges(ctx, writers[e], ranges); err != nil {
			return err
		}
	}
	for _, e := range ends {
		if err := l.awaitConfigured(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// applyRanges writes the ranges of the peer into a Configuration. A Configuration that liqoctl has written is updated, too.
func (e *end) applyRanges(ctx context.Context, writer *cluster.Writer, ranges api.ClusterConfigCIDR) error {
	found, err := e.findConfiguration(ctx)
	if err != nil {
		return err
	}
	if found != nil && !cluster.IsOurs(found) {
		if slices.Equal(found.Spec.Remote.CIDR.Pod, ranges.Pod) && slices.Equal(found.Spec.Remote.CIDR.External, ranges.External) {
			return nil
		}
		return fmt.Errorf("cluster %s: Configuration %s was not created by refractctl and has other ranges of %s than its Networks: update it with the tool that has created it, or delete it",
			e.Name, client.ObjectKeyFromObject(found), e.peer)
	}
	return writer.Apply(ctx, &api.Configuration{
		ObjectMeta: cluster.Meta(e.namespace(), e.peer, e.labels()),
		Spec:       api.ConfigurationSpec{Remote: api.ClusterConfig{CIDR: ranges}},
	})
}

// findConfiguration returns the Configuration of the peer, or nil if there is none.
func (e *end) findConfiguration(ctx context.Context) (*api.Configuration, error) {
	all := &api.ConfigurationList{}
	if err := e.Client.List(ctx, all, client.InNamespace(e.namespace()), client.MatchingLabels(e.labels())); err != nil {
		return nil, fmt.Errorf("cluster %s: listing the Configurations of namespace %s, %w", e.Name, e.namespace(), err)
	}
	switch len(all.Items) {
	case 0:
		return nil, nil //nolint:nilnil // as documented
	case 1:
		return &all.Items[0], nil
	}
	return nil, fmt.Errorf("cluster %s: namespace %s has %d Configurations of cluster %s, but only one is used: delete the others", e.Name, e.namespace(), len(all.Items), e.peer)
}

// awaitConfigured waits until the cluster has granted local ranges for all ranges of the peer.
func (l *Link) awaitConfigured(ctx context.Context, e *end) error {
	return l.Await(ctx, "ranges of "+e.peer+" in "+e.ID(), func(ctx context.Context) (string, error) {
		found, err := e.findConfiguration(ctx)
		if err != nil {
			return "", err
		}
		if found == nil {
			return "the Configuration is gone", nil
		}
		condition := meta.FindStatusCondition(found.Status.Conditions, api.ConfiguredCondition)
		switch {
		case condition == nil && found.Labels[wire.ConfiguredLabel] == "true": // Liqo before 1.2 writes only this label
			return "", nil
		case condition == nil || condition.ObservedGeneration != found.Generation:
			return "waiting for the controller manager", nil
		case condition.Status != metav1.ConditionTrue:
			return condition.Message, nil
		}
		return "", nil
	})
}

// ensureServer creates the GatewayServer, and waits for its endpoint and its public key. With an invitation, both are in
// the invitation.
func (l *Link) ensureServer(ctx context.Context, writers map[*end]*cluster.Writer) (api.EndpointStatus, []byte, error) {
	e := l.serverEnd()
	if e.IsInvited() {
		offer := e.Invitation.Gateway
		return offer.Endpoint, offer.PublicKey, nil
	}
	server := e.server
	if server == nil || cluster.IsOurs(server) {
		server = l.forgeServer(e)
		if err := writers[e].Apply(ctx, server); err != nil {
			return api.EndpointStatus{}, nil, err
		}
	}
	key := client.ObjectKeyFromObject(server)
	var endpoint api.EndpointStatus
	var secret string
	err := l.Await(ctx, "gateway of "+e.ID(), func(ctx context.Context) (string, error) {
		found := &api.GatewayServer{}
		if err := e.Client.Get(ctx, key, found); err != nil {
			return "", fmt.Errorf("cluster %s: getting GatewayServer %s, %w", e.Name, key, err)
		}
		known := ptr.Deref(found.Status.Endpoint, api.EndpointStatus{})
		if l.settings.ClientAddress != "" && l.settings.ClientPort != 0 {
			known = api.EndpointStatus{Addresses: []string{l.settings.ClientAddress}, Port: l.settings.ClientPort}
		}
		if found.Status.SecretRef == nil || len(known.Addresses) == 0 {
			return e.describeProblem(ctx, found, "waiting for its keys and its address"), nil
		}
		endpoint, secret = known, found.Status.SecretRef.Name
		return "", nil
	})
	if err != nil {
		return endpoint, nil, err
	}
	public, err := l.awaitKey(ctx, e, secret)
	return endpoint, public, err
}

func (l *Link) forgeServer(e *end) *api.GatewayServer {
	name := e.peer
	if e.server != nil {
		name = e.server.Name
	}
	s := l.settings
	endpoint := api.Endpoint{Port: s.Port, ServiceType: s.ServiceType}
	if s.NodePort != 0 {
		endpoint.NodePort = &s.NodePort
	}
	if s.LoadBalancerIP != "" {
		endpoint.LoadBalancerIP = &s.LoadBalancerIP
	}
	return &api.GatewayServer{
		ObjectMeta: cluster.Meta(e.namespace(), name, e.labels()),
		Spec: api.GatewayServerSpec{
			MTU: s.MTU, Endpoint: endpoint, ServerTemplateRef: e.templateRef(api.WgGatewayServerTemplateKind, ServerTemplate),
		},
	}
}

func (e *end) templateRef(kind, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: api.GroupVersion.String(), Kind: kind, Namespace: e.Installation.Namespace, Name: name}
}

// ensureClient creates the GatewayClient, which connects to the endpoint, and waits for its public key.
func (l *Link) ensureClient(ctx context.Context, writer *cluster.Writer, endpoint api.EndpointStatus) ([]byte, error) {
	e := l.clientEnd()
	name := e.peer
	if e.client != nil {
		name = e.client.Name
	}
	desired := &api.GatewayClient{
		ObjectMeta: cluster.Meta(e.namespace(), name, e.labels()),
		Spec: api.GatewayClientSpec{
			MTU: l.settings.MTU, Endpoint: l.settings.clientEndpoint(endpoint, e.client), ClientTemplateRef: e.templateRef(api.WgGatewayClientTemplateKind, clientTemplate),
		},
	}
	if l.settings.ClientAddress != "" || e.client != nil && e.client.Annotations[chosenAddressAnnotation] == "true" {
		desired.Annotations = map[string]string{chosenAddressAnnotation: "true"}
	}
	if e.client != nil && !cluster.IsOurs(e.client) {
		if !slices.Equal(e.client.Spec.Endpoint.Addresses, desired.Spec.Endpoint.Addresses) || e.client.Spec.Endpoint.Port != desired.Spec.Endpoint.Port {
			l.Report("%s: warning: GatewayClient %s was not created by refractctl, and connects to %s instead of %s: update it with the tool that has created it",
				e.ID(), name, describeEndpoint(e.client.Spec.Endpoint), describeEndpoint(desired.Spec.Endpoint))
		}
	} else if err := writer.Apply(ctx, desired); err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(desired)
	var secret string
	err := l.Await(ctx, "gateway of "+e.ID(), func(ctx context.Context) (string, error) {
		found := &api.GatewayClient{}
		if err := e.Client.Get(ctx, key, found); err != nil {
			return "", fmt.Errorf("cluster %s: getting GatewayClient %s, %w", e.Name, key, err)
		}
		if found.Status.SecretRef == nil {
			return e.describeProblem(ctx, found, "waiting for its keys"), nil
		}
		secret = found.Status.SecretRef.Name
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	return l.awaitKey(ctx, e, secret)
}

// describeEndpoint returns an endpoint for messages.
func describeEndpoint(endpoint api.EndpointStatus) string {
	return fmt.Sprintf("%s, UDP port %d", strings.Join(endpoint.Addresses, " or "), endpoint.Port)
}

// awaitKey waits for the Secret with the keys of the cluster's gateway, and returns the public key.
func (l *Link) awaitKey(ctx context.Context, e *end, name string) (public []byte, err error) {
	key := client.ObjectKey{Namespace: e.namespace(), Name: name}
	err = l.Await(ctx, "keys of "+e.ID(), func(ctx context.Context) (string, error) {
		secret := &corev1.Secret{}
		switch err := e.Client.Get(ctx, key, secret); {
		case apierrors.IsNotFound(err):
			return "waiting for Secret " + key.String(), nil
		case err != nil:
			return "", fmt.Errorf("cluster %s: getting Secret %s, %w", e.Name, key, err)
		}
		public = secret.Data[wire.PublicKeyField]
		if len(public) != keyLength {
			return "", fmt.Errorf("cluster %s: the field %s of Secret %s has %d bytes instead of %d: delete the Secret, and then the pods of the gateway, to make new keys",
				e.Name, wire.PublicKeyField, key, len(public), keyLength)
		}
		return "", nil
	})
	return public, err
}

// applyKey stores the public key of the peer's gateway. The PublicKey is deleted with the gateway of this cluster, as if
// liqoctl had created it.
func (e *end) applyKey(ctx context.Context, writer *cluster.Writer, public []byte) error {
	all := &api.PublicKeyList{}
	if err := e.Client.List(ctx, all, client.InNamespace(e.namespace()), client.MatchingLabels(e.labels())); err != nil {
		return fmt.Errorf("cluster %s: listing the PublicKeys of namespace %s, %w", e.Name, e.namespace(), err)
	}
	desired := &api.PublicKey{ObjectMeta: cluster.Meta(e.namespace(), e.peer, e.labels()), Spec: api.PublicKeySpec{PublicKey: public}}
	desired.Labels[wire.GatewayResourceLabel] = "true"
	for i := range all.Items {
		found := &all.Items[i]
		switch {
		case slices.Equal(found.Spec.PublicKey, public):
			return nil
		case !cluster.IsOurs(found):
			before := found.DeepCopy()
			found.Spec.PublicKey = public
			if err := e.Client.Patch(ctx, found, client.MergeFrom(before), cluster.FieldOwner); err != nil {
				return fmt.Errorf("cluster %s: updating PublicKey %s, %w", e.Name, client.ObjectKeyFromObject(found), err)
			}
			return nil
		}
		desired.Name = found.Name
	}
	if owner, err := e.findOwner(ctx); err != nil {
		return err
	} else if owner != nil {
		desired.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return writer.Apply(ctx, desired)
}

// findOwner returns a reference to the gateway of the cluster, or nil if its objects cannot be read.
func (e *end) findOwner(ctx context.Context) (*metav1.OwnerReference, error) {
	if !e.hasAccess() {
		return nil, nil //nolint:nilnil // as documented
	}
	current := &end{Side: e.Side, peer: e.peer}
	if err := current.find(ctx); err != nil {
		return nil, err
	}
	reference := &metav1.OwnerReference{APIVersion: api.GroupVersion.String()}
	switch {
	case current.server != nil:
		reference.Kind, reference.Name, reference.UID = api.GatewayServerKind, current.server.Name, current.server.UID
	case current.client != nil:
		reference.Kind, reference.Name, reference.UID = api.GatewayClientKind, current.client.Name, current.client.UID
	default:
		return nil, nil //nolint:nilnil // as documented
	}
	return reference, nil
}

// describeProblem returns the message of the latest Warning about an object, or the given text if there is none.
func (e *end) describeProblem(ctx context.Context, object client.Object, otherwise string) string {
	all := &eventsv1.EventList{}
	if err := e.Client.List(ctx, all, client.InNamespace(object.GetNamespace())); err != nil {
		return otherwise // the user may not list Events
	}
	var latest *eventsv1.Event
	for i := range all.Items {
		event := &all.Items[i]
		if event.Regarding.UID == object.GetUID() && event.Type == corev1.EventTypeWarning && (latest == nil || lastTime(latest).Before(lastTime(event))) {
			latest = event
		}
	}
	if latest == nil {
		return otherwise
	}
	return cmp.Or(latest.Note, otherwise)
}

// lastTime returns the time of the last occurrence of an Event.
func lastTime(event *eventsv1.Event) *metav1.Time {
	if event.Series != nil {
		return &metav1.Time{Time: event.Series.LastObservedTime.Time}
	}
	if !event.EventTime.IsZero() {
		return &metav1.Time{Time: event.EventTime.Time}
	}
	return &event.DeprecatedLastTimestamp
}

// Offer creates the gateway of the provider for a consumer that cannot be accessed, and returns the contents of the
// invitation. Without an address of the server, the consumer could not connect, so Offer waits for it.
func (l *Link) Offer(ctx context.Context, atProvider *cluster.Writer) (*invitation.Gateway, error) {
	if err := l.copyPullSecrets(ctx, l.provider, atProvider); err != nil {
		return nil, err
	}
	if err := l.declareRanges(ctx, l.provider, atProvider); err != nil {
		return nil, err
	}
	ranges, err := l.awaitRanges(ctx, l.provider)
	if err != nil {
		return nil, err
	}
	endpoint, public, err := l.ensureServer(ctx, map[*end]*cluster.Writer{l.provider: atProvider})
	if err != nil {
		return nil, err
	}
	return &invitation.Gateway{Ranges: ranges, Endpoint: l.settings.clientEndpoint(endpoint, nil), PublicKey: public, MTU: l.settings.MTU}, nil
}
