// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// AwaitConnected waits until the gateways of both clusters report that they are connected. If only one of the clusters can
// be accessed, it waits for that one.
func (l *Link) AwaitConnected(ctx context.Context) error {
	for _, e := range []*end{l.consumer, l.provider} {
		if !e.hasAccess() {
			continue
		}
		err := l.Await(ctx, "connection of "+e.ID()+" to "+e.peer, func(ctx context.Context) (string, error) {
			state, err := e.readState(ctx)
			if err != nil || state.Value == api.Connected {
				return "", err
			}
			return state.describeWaiting(), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// State is the state of the gateway of a cluster to one peer.
type State struct {
	// Cluster and Peer are the IDs of the cluster and of its peer.
	Cluster string `json:"cluster"`
	Peer    string `json:"peer"`
	// Role is Server, Client, or "" without a gateway.
	Role api.ConnectionType `json:"role,omitempty"`
	// Gateway is the kind and the name of the gateway.
	Gateway string `json:"gateway,omitempty"`
	// Endpoint is where the client connects.
	Endpoint string `json:"endpoint,omitempty"`
	// Ranges are the ranges of the peer, and the local ranges by which they are reached, as 10.1.0.0/16 or 10.1.0.0/16=10.61.0.0/16.
	Ranges []string `json:"ranges,omitempty"`
	// Pods is the number of available pods and of all pods of the gateway, including desired ones that do not exist.
	Pods string `json:"pods,omitempty"`
	// Node is the node of the active pod.
	Node string `json:"node,omitempty"`
	// Value and Latency are the state and the latency in the Connection. Value is "" without a Connection.
	Value   api.ConnectionValue `json:"state,omitempty"`
	Latency string              `json:"latency,omitempty"`
	// CheckedAt is the time of the measurement in the Connection. Gateways write it every 10 s while they are connected.
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
	// HasPublicKey reports whether the cluster has the public key of the peer's gateway.
	HasPublicKey bool `json:"hasPublicKey"`
	// Problem is the latest problem of the gateway, and "" while it is connected.
	Problem string `json:"problem,omitempty"`
}

// describeWaiting describes why a gateway is not connected yet.
func (s *State) describeWaiting() string {
	switch {
	case s.Gateway == "":
		return "there is no gateway: run the command again"
	case s.Problem != "":
		return s.Problem
	case !s.HasPublicKey:
		return "the PublicKey of the peer is missing: run the command again"
	case s.Endpoint == "":
		return "waiting for the gateways"
	}
	return fmt.Sprintf("waiting for an answer: the nodes of the client must reach %s", s.Endpoint)
}

// List returns the states of the gateways of a cluster, sorted by the peer. A peer with a Configuration but without a gateway has
// a State without a Role. List returns none if the cluster has no CRDs of the network.
func List(ctx context.Context, side *cluster.Side) (states []State, err error) {
	peers := map[string]bool{}
	for _, list := range []client.ObjectList{&api.ConfigurationList{}, &api.GatewayServerList{}, &api.GatewayClientList{}} {
		if err := side.Client.List(ctx, list, client.HasLabels{wire.RemoteClusterIDLabel}); isNotServed(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("cluster %s: listing the objects of gateways, %w", side.Name, err)
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error { // it fails only for other types than lists
			object, _ := item.(client.Object)
			if peer := object.GetLabels()[wire.RemoteClusterIDLabel]; object.GetNamespace() == wire.TenantNamespace(peer) {
				peers[peer] = true
			}
			return nil
		})
	}
	for peer := range peers {
		e := &end{Side: side, peer: peer}
		state, err := e.readState(ctx)
		if err != nil {
			return nil, err
		}
		states = append(states, *state)
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Peer, b.Peer) })
	return states, nil
}

// readState reads the state of the cluster's gateway.
func (e *end) readState(ctx context.Context) (*State, error) {
	current := &end{Side: e.Side, peer: e.peer}
	if err := current.find(ctx); err != nil {
		return nil, err
	}
	state := &State{Cluster: e.ID(), Peer: e.peer}
	if err := current.readRanges(ctx, state); err != nil {
		return nil, err
	}
	object := current.describeGateway(state)
	if object == nil {
		return state, nil
	}
	keys := &api.PublicKeyList{}
	if err := e.Client.List(ctx, keys, client.InNamespace(e.namespace()), client.MatchingLabels(e.labels())); err != nil {
		return nil, fmt.Errorf("cluster %s: listing the PublicKeys of namespace %s, %w", e.Name, e.namespace(), err)
	}
	state.HasPublicKey = len(keys.Items) > 0
	if err := current.readPods(ctx, object.GetName(), state); err != nil {
		return nil, err
	}
	connections := &api.ConnectionList{}
	if err := e.Client.List(ctx, connections, client.InNamespace(e.namespace()), client.MatchingLabels(e.labels())); err != nil {
		return nil, fmt.Errorf("cluster %s: listing the Connections of namespace %s, %w", e.Name, e.namespace(), err)
	}
	for i := range connections.Items {
		status := connections.Items[i].Status
		state.Value, state.Latency, state.CheckedAt = status.Value, status.Latency.Value, nil
		if !status.Latency.Timestamp.IsZero() {
			state.CheckedAt = &status.Latency.Timestamp
		}
	}
	if state.Value != api.Connected {
		state.Problem = e.describeProblem(ctx, object, "")
	}
	return state, nil
}

// readRanges adds the ranges of the peer to the state.
func (e *end) readRanges(ctx context.Context, state *State) error {
	configuration, err := e.findConfiguration(ctx)
	if err != nil || configuration == nil {
		return err
	}
	remote := configuration.Spec.Remote.CIDR
	var local api.ClusterConfigCIDR
	if configuration.Status.Remote != nil {
		local = configuration.Status.Remote.CIDR
	}
	for _, pair := range [][2][]api.CIDR{{remote.Pod, local.Pod}, {remote.External, local.External}} {
		for i, cidr := range pair[0] {
			text := string(cidr)
			if i < len(pair[1]) && pair[1][i] != cidr {
				text += "=" + string(pair[1][i])
			}
			state.Ranges = append(state.Ranges, text)
		}
	}
	return nil
}

// describeGateway adds the gateway of the cluster to the state, and returns it. It returns nil if there is none.
func (e *end) describeGateway(state *State) client.Object {
	switch {
	case e.server != nil:
		state.Role, state.Gateway = api.ServerConnection, api.GatewayServerKind+" "+e.server.Name
		if endpoint := e.server.Status.Endpoint; endpoint != nil && len(endpoint.Addresses) > 0 {
			state.Endpoint = describeEndpoint(*endpoint)
		}
		if internal := e.server.Status.InternalEndpoint; internal != nil && internal.Node != nil {
			state.Node = *internal.Node
		}
		return e.server
	case e.client != nil:
		state.Role, state.Gateway, state.Endpoint = api.ClientConnection, api.GatewayClientKind+" "+e.client.Name, describeEndpoint(e.client.Spec.Endpoint)
		if internal := e.client.Status.InternalEndpoint; internal != nil && internal.Node != nil {
			state.Node = *internal.Node
		}
		return e.client
	}
	return nil
}

// readPods adds the number of the gateway's pods to the state.
func (e *end) readPods(ctx context.Context, gateway string, state *State) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: e.namespace(), Name: wire.GatewayObjectName(gateway)}
	err := e.Client.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: getting Deployment %s, %w", e.Name, key, err)
	}
	state.Pods = countPods(deployment)
	return nil
}

// countPods returns the number of available pods and of all pods of a Deployment. During an update, there are more pods than desired. If
// pods cannot be created, there are fewer, and the missing ones count.
func countPods(deployment *appsv1.Deployment) string {
	all := max(ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.Replicas)
	return fmt.Sprintf("%d/%d", deployment.Status.AvailableReplicas, all)
}

// IsConnected reports whether the gateway is connected to its peer.
func (s *State) IsConnected() bool { return s.Value == api.Connected }
