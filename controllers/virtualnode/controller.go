// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package virtualnode takes virtual nodes out of service without losing what runs on them.
//
// A virtual node is drained when its VirtualNode is annotated with wire.DrainAnnotation, and before it goes: when the VirtualNode
// is deleted, or its createNode is set to false. It is cordoned and its pods are evicted, so disruption budgets hold. Their
// virtual kubelet ends them on the provider, which is why it stays until they are gone. Only then goes what else there is: with
// the last virtual node of a provider the NamespaceMap and so the remote namespaces, then the Node, the Deployment of the virtual
// kubelet, and the finalizer of the VirtualNode. Each step is one reconciliation that finds out for itself how far things are,
// so that it goes on after a restart, and none waits: a pod that cannot be evicted keeps no other virtual node waiting.
//
// A provider that never comes back is declared dead on its ForeignCluster. Nothing is awaited from it then.
package virtualnode

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Workers is how many VirtualNodes are reconciled at once.
	Workers int
	// DrainTimeout is after which time a drain that is not over is reported as stuck; 0 never does.
	DrainTimeout time.Duration
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

// Controller drains and removes virtual nodes.
type Controller struct {
	client  client.Client
	live    client.Reader // the pods of a node, and what must not be missed because a cache is late
	report  *report.Reporter
	options Options
}

// NewController returns a controller that works through c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, report: report.New(recorder), options: options}
}

// Name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "virtualnode" }

// again is how often a virtual node is looked at while something is awaited whose end no watch reports.
const again = 2 * time.Second

// Reconcile takes the next step of a drain or a removal.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vn := &offloading.VirtualNode{}
	if err := c.client.Get(ctx, request.NamespacedName, vn); err != nil {
		c.report.Clear(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	v := &virtualNode{VirtualNode: vn.DeepCopy()}
	if err := c.gather(ctx, v); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case v.DeletionTimestamp != nil:
		return c.remove(ctx, v)
	case v.CreateNode() && !v.toBeDrained():
		return reconcile.Result{}, c.serve(ctx, v)
	}
	if err := finalizer.Ensure(ctx, c.client, v.VirtualNode, wire.VirtualNodeFinalizer, true); err != nil {
		return reconcile.Result{}, err
	}
	drained, err := c.drain(ctx, v)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !drained:
		return reconcile.Result{RequeueAfter: again}, nil
	case !v.CreateNode():
		return reconcile.Result{}, c.removeNode(ctx, v)
	}
	return reconcile.Result{}, c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DrainingConditionStatus, drainedReason,
		"The node is drained; refractctl uncordon virtualnode "+v.Name+" puts it back into service"))
}

// virtualNode is a VirtualNode and what is known about it.
type virtualNode struct {
	*offloading.VirtualNode
	// node is nil if there is none, or it is somebody else's.
	node *corev1.Node
	// taken: there is a Node of that name, which is somebody else's.
	taken bool
	// cluster is the provider, nil while there is no ForeignCluster.
	cluster *core.ForeignCluster
}

// CreateNode reports whether there is to be a Node.
func (v *virtualNode) CreateNode() bool { return v.Spec.CreateNode == nil || *v.Spec.CreateNode }

func (v *virtualNode) toBeDrained() bool { return v.Annotations[wire.DrainAnnotation] == "true" }

func (v *virtualNode) provider() string { return v.Spec.ClusterID.String() }

// dead reports whether an administrator has given the provider up.
func (v *virtualNode) dead() bool { return peers.IsDead(v.cluster) }

// gather reads the Node past the cache: what is decided by it cannot be taken back.
func (c *Controller) gather(ctx context.Context, v *virtualNode) (err error) {
	node := &corev1.Node{}
	err = c.live.Get(ctx, client.ObjectKey{Name: v.Name}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting node %s, %w", v.Name, err)
	}
	switch {
	case err != nil:
	case node.Labels[wire.TypeLabel] == wire.VirtualNodeType && node.Labels[wire.RemoteClusterIDLabel] == v.provider():
		v.node = node
	default:
		v.taken = true
	}
	v.cluster, err = peers.Find(ctx, c.client, v.provider())
	return err
}

// serve makes sure that the end of a virtual node will be noticed, and takes back what a drain has said.
func (c *Controller) serve(ctx context.Context, v *virtualNode) error {
	if err := finalizer.Ensure(ctx, c.client, v.VirtualNode, wire.VirtualNodeFinalizer, true); err != nil {
		return err
	}
	c.report.Clear(client.ObjectKeyFromObject(v.VirtualNode))
	if before := conditionOf(v.VirtualNode, offloading.NodeConditionType); before == nil || before.Status != offloading.DrainingConditionStatus {
		return nil
	}
	if v.node == nil {
		return c.show(ctx, v, condition(offloading.NodeConditionType, offloading.CreatingConditionStatus, uncordonedReason, "The node is registered as soon as the virtual kubelet runs"))
	}
	return c.show(ctx, v, condition(offloading.NodeConditionType, offloading.RunningConditionStatus, uncordonedReason, "The node is no longer being drained"))
}

// Enforces says what the controller answers for: VirtualNodes.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.VirtualNodeList{}, func(vn client.Object) bool { return controllerutil.ContainsFinalizer(vn, wire.VirtualNodeFinalizer) }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	changed := predicate.Funcs{UpdateFunc: workers.Changed}
	byNode := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, node client.Object) []reconcile.Request {
		return c.matching(ctx, func(vn *offloading.VirtualNode) bool { return vn.Name == node.GetName() })
	})
	byProvider := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return c.matching(ctx, func(vn *offloading.VirtualNode) bool {
			return vn.DeletionTimestamp != nil && vn.Spec.ClusterID.String() == object.GetLabels()[wire.RemoteClusterIDLabel]
		})
	})
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		For(&offloading.VirtualNode{}, builder.WithPredicates(changed)).
		Watches(&corev1.Node{}, byNode, builder.WithPredicates(predicate.Funcs{UpdateFunc: workers.Changed})).
		Watches(&core.ForeignCluster{}, byProvider, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&offloading.NamespaceMap{}, byProvider).
		Complete(report.Failures(c, c.options.Failed))
}

func (c *Controller) matching(ctx context.Context, matches func(*offloading.VirtualNode) bool) (requests []reconcile.Request) {
	list := &offloading.VirtualNodeList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil // the cache has it, or nothing runs yet
	}
	for i := range list.Items {
		if matches(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
