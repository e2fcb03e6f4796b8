// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package virtualnode runs the virtual kubelets of virtual nodes, and removes virtual nodes without interrupting their
// workloads.
//
// The Deployment of a virtual kubelet is created from a VkOptionsTemplate and the VirtualNode (see Forge), and follows
// both. The creator of the VirtualNode, such as refractctl or the chart, also creates its ServiceAccount and
// permissions. If the ServiceAccount is missing, for example after liqoctl create virtualnode, the controller deploys
// nothing, and reports in the conditions how to create the ServiceAccount. With Options.CreateAccounts, it creates the
// ServiceAccount with its permissions itself.
//
// A virtual node is drained when its VirtualNode is annotated with wire.DrainAnnotation, and before it is removed: when
// the VirtualNode is deleted, or its createNode is set to false. The node is cordoned and its pods are evicted, within
// the limits of disruption budgets. Its virtual kubelet terminates the pods on the provider, so it runs until they are
// gone. Only then are the other objects deleted: first, with the last virtual node of a provider, the NamespaceMap and
// with it the remote namespaces; then the Node, the virtual kubelet with its permissions, and the finalizer of the
// VirtualNode. Each step is one reconciliation that derives its progress from the cluster, so it continues after a
// restart. No step blocks: a pod that cannot be evicted does not delay other virtual nodes.
//
// A provider that is lost permanently is declared dead on its ForeignCluster. The controller then does not wait for
// anything on this provider.
package virtualnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Workers is the number of VirtualNodes that are reconciled at the same time.
	Workers int
	// Installation contains the common settings of the Deployments of virtual kubelets.
	Installation Installation
	// DefaultTemplate is the VkOptionsTemplate for VirtualNodes that do not refer to one. If it is empty, another
	// controller runs virtual kubelets.
	DefaultTemplate types.NamespacedName
	// CreateAccounts is true if the controller creates missing ServiceAccounts of virtual kubelets, with their roles and
	// bindings. It does so only for VirtualNodes that cannot change what runs with these permissions.
	CreateAccounts bool
	// JoinsProviders is true if the controller manager has access to all Secrets of tenant namespaces (package identity).
	JoinsProviders bool
	// TranslatesAddresses is true if virtual kubelets get the ranges in the Configurations of providers.
	TranslatesAddresses bool
	// RolePrefix is the prefix of the names of the installation's roles.
	RolePrefix string
	// DrainTimeout is how long a drain may take before it is reported as stuck; 0 disables the report.
	DrainTimeout time.Duration
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller runs, drains and removes virtual nodes.
type Controller struct {
	client  client.Client
	live    client.Reader // does not use the cache; for the pods of a node and for objects that must be up to date
	report  *report.Reporter
	options Options
	// refusals counts the failed deployments of virtual kubelets.
	refusals report.Refusals
	// brake slows down conflicts with other clients that delete or change the Deployments of virtual kubelets.
	brake *brake.Brake
}

// NewController returns a controller that uses the client c; live must not use a cache.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	reporter := report.New(recorder)
	return &Controller{client: c, live: live, report: reporter, options: options,
		brake: brake.New(appsv1.SchemeGroupVersion.WithKind("Deployment"), live, reporter, options.Clock).Named(kubeletName)}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "virtualnode" }

// Limits of the interval at which a virtual node is reconciled while it waits for pods, whose deletion is not
// watched. Each reconciliation lists the pods. Most drains are short.
const (
	minCheckInterval = 250 * time.Millisecond
	maxCheckInterval = 2 * time.Second
	// accountRetryInterval is how often a missing ServiceAccount is looked up, because this process may list
	// ServiceAccounts, but not watch them.
	accountRetryInterval = 10 * time.Second
)

// again returns the delay until the next check of an operation that began at the given time. It is a quarter of the
// time that has passed, within the limits.
func (c *Controller) again(begun time.Time) time.Duration {
	return min(max(c.options.Clock.Since(begun)/4, minCheckInterval), maxCheckInterval)
}

// Reconcile deploys the virtual kubelet, and takes the next step of a drain or removal.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vn := &offloading.VirtualNode{}
	if err := c.client.Get(ctx, request.NamespacedName, vn); err != nil {
		c.report.Clear(request.NamespacedName)
		c.refusals.Drop(request.NamespacedName)
		c.brake.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	v := &virtualNode{VirtualNode: vn.DeepCopy()}
	if err := c.gather(ctx, v); err != nil {
		return reconcile.Result{}, err
	}
	if v.DeletionTimestamp != nil {
		return c.remove(ctx, v)
	}
	if err := finalizer.Ensure(ctx, c.client, v.VirtualNode, wire.VirtualNodeFinalizer, true); err != nil {
		return reconcile.Result{}, err
	}
	again, err := c.serve(ctx, v)
	wrong, failed := c.run(ctx, v)
	if err == nil && failed == nil && wrong == nil && again == 0 {
		c.report.Clear(request.NamespacedName)
		c.refusals.Drop(request.NamespacedName)
	}
	if failed == nil && wrong != nil && again == 0 { // the cause may be a quota or an admission policy, which may change
		if again = wrong.retry; again == 0 {
			again = c.refusals.Next(request.NamespacedName, strconv.FormatInt(vn.Generation, 10))
		}
	}
	again, err = brake.Wait(again, errors.Join(err, failed))
	return reconcile.Result{RequeueAfter: again}, err
}

// serve keeps the Node in service, drains it or removes it.
func (c *Controller) serve(ctx context.Context, v *virtualNode) (again time.Duration, err error) {
	if v.CreateNode() && !v.toBeDrained() {
		return 0, c.endDrain(ctx, v)
	}
	drained, err := c.drain(ctx, v)
	switch {
	case err != nil:
		return 0, err
	case !drained:
		return c.again(c.drainingSince(v)), nil
	case !v.CreateNode():
		return 0, c.removeNode(ctx, v)
	}
	return 0, c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DrainingConditionStatus, drainedReason,
		"The node is drained; refractctl uncordon virtualnode "+v.Name+" makes it schedulable again"))
}

// virtualNode is a VirtualNode with its related objects.
type virtualNode struct {
	*offloading.VirtualNode
	// node is nil if the Node does not exist or has another owner.
	node *corev1.Node
	// taken is true if the Node with the name of the VirtualNode has another owner.
	taken bool
	// duplicate is the namespace of an older VirtualNode with the same name. It is empty if there is no such
	// VirtualNode.
	duplicate string
	// template configures the virtual kubelet. It is nil if the VkOptionsTemplate does not exist.
	template     *offloading.VkOptionsTemplate
	templateName types.NamespacedName
	// cluster is the ForeignCluster of the provider. It is nil as long as the ForeignCluster does not exist.
	cluster *core.ForeignCluster
}

// CreateNode reports whether the VirtualNode should have a Node.
func (v *virtualNode) CreateNode() bool {
	if v.Spec.CreateNode == nil && v.template != nil {
		return v.template.Spec.CreateNode
	}
	return v.Spec.CreateNode == nil || *v.Spec.CreateNode
}

func (v *virtualNode) toBeDrained() bool { return v.Annotations[wire.DrainAnnotation] == "true" }

func (v *virtualNode) provider() string { return v.Spec.ClusterID.String() }

// dead reports whether an administrator has declared the provider dead.
func (v *virtualNode) dead() bool { return peers.IsDead(v.cluster) }

// gather reads the related objects. The Node is read without the cache, because decisions that depend on it cannot be
// undone.
func (c *Controller) gather(ctx context.Context, v *virtualNode) (err error) {
	all := &offloading.VirtualNodeList{}
	if err := c.client.List(ctx, all); err != nil {
		return fmt.Errorf("listing VirtualNodes, %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.Name == v.Name && other.Namespace != v.Namespace && older(other, v.VirtualNode) {
			v.duplicate = other.Namespace
		}
	}
	node := &corev1.Node{}
	err = c.live.Get(ctx, client.ObjectKey{Name: v.Name}, node)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("getting node %s, %w", v.Name, err)
	case err != nil:
	case v.duplicate == "" && node.Labels[wire.TypeLabel] == wire.VirtualNodeType && node.Labels[wire.RemoteClusterIDLabel] == v.provider():
		v.node = node
	default:
		v.taken = true
	}
	if err := c.findTemplate(ctx, v); err != nil {
		return err
	}
	v.cluster, err = peers.Find(ctx, c.client, v.provider())
	return err
}

// older reports whether a was created before b. If both were created at the same time, the namespaces decide.
func older(a, b *offloading.VirtualNode) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Namespace < b.Namespace
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

func (c *Controller) findTemplate(ctx context.Context, v *virtualNode) error {
	v.templateName = c.options.DefaultTemplate
	if reference := v.Spec.VkOptionsTemplateRef; reference != nil {
		v.templateName = types.NamespacedName{Namespace: cmp.Or(reference.Namespace, v.Namespace), Name: reference.Name}
	}
	if !c.runsKubelets() {
		return nil
	}
	template := &offloading.VkOptionsTemplate{}
	if err := c.client.Get(ctx, v.templateName, template); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("getting VkOptionsTemplate %s, %w", v.templateName, err)
	}
	v.template = template
	return nil
}

// endDrain removes the conditions of a drain. Their absence tells the client that has withdrawn the drain that the
// controller no longer cordons the Node.
func (c *Controller) endDrain(ctx context.Context, v *virtualNode) error {
	if before := conditionOf(v.VirtualNode, offloading.NodeConditionType); before == nil || before.Status != offloading.DrainingConditionStatus {
		return nil
	}
	if v.node == nil {
		return c.show(ctx, v, condition(offloading.NodeConditionType, offloading.CreatingConditionStatus, uncordonedReason, "Waiting for the virtual kubelet to register the node"))
	}
	return c.show(ctx, v, condition(offloading.NodeConditionType, offloading.RunningConditionStatus, uncordonedReason, "The node is no longer being drained"))
}

// runsKubelets reports whether this controller runs virtual kubelets. If it returns false, another controller does
// this.
func (c *Controller) runsKubelets() bool {
	return c.options.DefaultTemplate != (types.NamespacedName{})
}

// Quarantined returns the number of Deployments that are left unchanged for a while because of conflicts with another
// client.
func (c *Controller) Quarantined() int { return c.brake.Quarantined() }

// Enforces returns an empty list of the enforced kind, and a filter for VirtualNodes. Both are used for metrics.
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
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return c.matching(ctx, func(*offloading.VirtualNode) bool { return true })
	})
	ofKubelet := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, kubelet client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: kubelet.GetNamespace(), Name: kubelet.GetLabels()[wire.VirtualNodeLabel]}}}
	})
	isKubelet := predicate.NewPredicateFuncs(func(deployment client.Object) bool {
		return deployment.GetLabels()[wire.ComponentLabel] == wire.VirtualKubeletComponent
	})
	ofConfiguration := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, configuration client.Object) []reconcile.Request {
		return c.matching(ctx, func(vn *offloading.VirtualNode) bool { return vn.Namespace == configuration.GetNamespace() })
	})
	building := builder.ControllerManagedBy(mgr)
	// An installation that runs no virtual kubelets may lack the permission to watch these objects.
	if c.runsKubelets() {
		building = building.Watches(&offloading.VkOptionsTemplate{}, all).Watches(&appsv1.Deployment{}, ofKubelet, builder.WithPredicates(isKubelet))
	}
	if c.options.TranslatesAddresses {
		building = building.Watches(&networking.Configuration{}, ofConfiguration)
	}
	return building.
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
		return nil // the list comes from the cache, so this fails only before the controller runs
	}
	for i := range list.Items {
		if matches(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
