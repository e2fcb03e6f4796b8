// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeaddresses requests an address for each real node of this cluster, by which peers see the node's
// connections.
//
// A peer has a route to the external range of this cluster, but not to its nodes. Connections to the pods of a peer that start on a node or
// enter through its node ports therefore have a source address from the external range. Each node has its own, so that the connections of
// two nodes never have the same source address and port.
//
// The request is an IP in the namespace of the installation, which package addresses grants. It belongs to the Node, so Kubernetes deletes it
// with the Node.
package nodeaddresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	api "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Installation is the namespace of the IPs.
	Installation string
	// Nodes returns the real nodes with their UIDs and addresses. Its second result is false until all are known.
	Nodes func() ([]*corev1.Node, bool)
	// FollowNodes registers a function that is called when addresses of nodes have changed.
	FollowNodes func(func())
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller creates an IP for each real node, and replaces it when the address of the node changes.
type Controller struct {
	client  client.Client
	options Options
}

// NewController returns a controller that uses the client c.
func NewController(c client.Client, options Options) *Controller {
	return &Controller{client: c, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "nodeaddresses" }

// Reconcile makes one pass over all nodes. The request is ignored.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	nodes, isKnown := c.options.Nodes()
	if !isKnown {
		return reconcile.Result{}, nil // the callback of FollowNodes triggers the next pass
	}
	list := &api.IPList{}
	if err := c.client.List(ctx, list, client.InNamespace(c.options.Installation), client.MatchingLabels{wire.NodeIPLabel: "true"}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the IPs of nodes, %w", err)
	}
	byName := make(map[string]*api.IP, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	var failures []error
	for _, node := range nodes {
		if address := findAddress(node); address.IsValid() {
			failures = append(failures, c.ensureIP(ctx, node, address, byName[ipName(node.Name)]))
		}
	}
	return reconcile.Result{}, errors.Join(failures...)
}

// ipName returns the name of the IP of a node.
func ipName(node string) string { return "node-" + node }

// findAddress returns the first internal IPv4 address of a node, by which gateways reach it. It returns an invalid
// address if the node has none.
func findAddress(node *corev1.Node) netip.Addr {
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
			return ip
		}
	}
	return netip.Addr{}
}

// ensureIP creates the IP of a node. An IP for another address, or for a former node of this name, is deleted: its
// address is immutable, and the event of the deletion triggers the creation of the new IP.
func (c *Controller) ensureIP(ctx context.Context, node *corev1.Node, address netip.Addr, current *api.IP) error {
	if current == nil {
		return c.createIP(ctx, node, address)
	}
	owner := metav1.GetControllerOf(current)
	switch {
	case owner == nil || owner.Kind != "Node":
		return nil // not created by this controller: another client has chosen the address of this node
	case current.DeletionTimestamp != nil, owner.UID == node.UID && string(current.Spec.IP) == address.String():
		return nil
	}
	if err := c.client.Delete(ctx, current, client.Preconditions{UID: &current.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the former IP of node %s, %w", node.Name, err)
	}
	return nil
}

func (c *Controller) createIP(ctx context.Context, node *corev1.Node, address netip.Addr) error {
	isController := true
	ip := &api.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.options.Installation, Name: ipName(node.Name), Labels: map[string]string{wire.NodeIPLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &isController}},
		},
		Spec: api.IPSpec{IP: networking.IP(address.String())},
	}
	if err := c.client.Create(ctx, ip); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the IP of node %s, %w", node.Name, err)
	}
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &api.IPList{}, func(ip client.Object) bool { return ip.GetLabels()[wire.NodeIPLabel] == "true" }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	pass := []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	toPass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return pass })
	ofNodes := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, ip client.Object) []reconcile.Request {
		if ip.GetLabels()[wire.NodeIPLabel] != "true" {
			return nil
		}
		return pass
	})
	changed := make(chan event.GenericEvent, 1)
	c.options.FollowNodes(func() {
		select {
		case changed <- event.GenericEvent{Object: &api.IP{}}:
		default: // another pass is already due
		}
	})
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&api.IP{}, ofNodes).
		WatchesRawSource(source.Channel(changed, toPass)).
		Complete(report.Failures(c, c.options.Failed))
}
