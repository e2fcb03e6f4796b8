// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	api "github.com/refract-project/refract/api/ipam/v1alpha1"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/ipam"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/printable"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether this controller and the controller of package network are started.
	Enabled bool
	// OwnRanges returns the ranges of nodes, pods and Services of this cluster.
	OwnRanges func() (ipmap.Ranges, error)
	// Reserved are further ranges that are not granted, although no object of this cluster is in them.
	Reserved ipmap.Ranges
	// FollowOwnRanges registers a function that is called when the result of OwnRanges changes.
	FollowOwnRanges func(func())
	// Failed is called with the error of each pass. It may be nil.
	Failed func(error)
}

// Controller grants ranges and addresses.
type Controller struct {
	client   client.Client
	live     client.Reader
	networks *report.Reporter
	ips      *report.Reporter
	options  Options

	// The following maps are used only by the controller's single worker.
	lastGranted map[types.UID]netip.Addr // last address that each Network has granted
	unconfirmed map[types.UID]bool       // objects whose grant may have been written, but has not been checked since
}

// NewController returns a controller that uses the client c. live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{
		client: c, live: live, networks: report.New(recorder), ips: report.New(recorder),
		options: options, lastGranted: map[types.UID]netip.Addr{}, unconfirmed: map[types.UID]bool{},
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "addresses" }

// grantAction is the action of this controller's Events.
const grantAction = "Grant"

// liqoFinalizers are the finalizers of Liqo's IPAM. If Refract deletes an object, nothing has to be released, because
// the object itself is the only record of its grant.
var liqoFinalizers = []string{"network.ipam.liqo.io/finalizer", "ip.ipam.liqo.io/finalizer", "ipmapping-nat-controller.liqo.io/finalizer"}

// Reconcile makes one pass over all Networks and IPs. The request is ignored.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if isPending, err := c.isPending(ctx); err != nil || !isPending && len(c.unconfirmed) == 0 {
		return reconcile.Result{}, err
	}
	own, err := c.listOwnUses()
	if err != nil {
		return reconcile.Result{}, err
	}
	networks, ips, err := c.readAll(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	// Grants of an earlier pass are checked first if their check has failed.
	failures := []error{c.confirm(ctx, networks, ips)}
	c.warnOfShared(networks, ips)
	failures = append(failures, c.grantNetworks(ctx, networks, own, listUses(ips)), c.grantIPs(ctx, ips, networks))
	return reconcile.Result{}, errors.Join(append(failures, c.confirmNow(ctx), c.release(ctx, networks, ips))...)
}

// isPending reports whether a pass has anything to do, according to the cache. If the cache is outdated, this causes at
// most one unnecessary pass.
func (c *Controller) isPending(ctx context.Context) (bool, error) {
	networks, ips := &api.NetworkList{}, &api.IPList{}
	if err := c.client.List(ctx, networks, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing Networks, %w", err)
	}
	if err := c.client.List(ctx, ips, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing IPs, %w", err)
	}
	return slices.ContainsFunc(networks.Items, func(n api.Network) bool { return n.Status.CIDR == "" || n.DeletionTimestamp != nil }) ||
		slices.ContainsFunc(ips.Items, func(ip api.IP) bool { return ip.Status.IP == "" || ip.DeletionTimestamp != nil }), nil
}

func (c *Controller) readAll(ctx context.Context) ([]api.Network, []api.IP, error) {
	networks, ips := &api.NetworkList{}, &api.IPList{}
	if err := c.live.List(ctx, networks); err != nil {
		return nil, nil, fmt.Errorf("listing Networks, %w", err)
	}
	if err := c.live.List(ctx, ips); err != nil {
		return nil, nil, fmt.Errorf("listing IPs, %w", err)
	}
	return networks.Items, ips.Items, nil
}

// listOwnUses returns the ranges of this cluster and the reserved ones. While they are unknown, it returns an error, and nothing is granted.
func (c *Controller) listOwnUses() (uses []ipam.Use, err error) {
	ranges, err := c.options.OwnRanges()
	if err != nil {
		return nil, fmt.Errorf("waiting with grants of address ranges: %w", err)
	}
	for _, r := range ranges {
		uses = append(uses, ipam.Use{Range: r, Holder: "the nodes, pods or Services of this cluster"})
	}
	for _, r := range c.options.Reserved {
		uses = append(uses, ipam.Use{Range: r, Holder: "the reserved ranges (--reserved-cidrs)"})
	}
	return uses, nil
}

// grantNetworks writes the decisions about Networks to the API server. If a grant cannot be written, it is also removed
// from the Network in networks.
func (c *Controller) grantNetworks(ctx context.Context, networks []api.Network, own, ofIPs []ipam.Use) error {
	before := make([]api.Network, len(networks))
	for i := range networks {
		networks[i].DeepCopyInto(&before[i])
	}
	granted, refused := planNetworks(networks, own, ofIPs)
	var failures []error
	for i, why := range refused {
		n := &networks[i]
		c.networks.Warn(n, why.reason, grantAction, why.message)
		setRefusal(&n.Status.Conditions, n.Generation, why)
		if !equality.Semantic.DeepEqual(before[i].Status, n.Status) {
			failures = append(failures, c.patchStatus(ctx, n, &before[i]))
		}
	}
	for _, i := range granted {
		n := &networks[i]
		meta.RemoveStatusCondition(&n.Status.Conditions, api.GrantedCondition)
		c.unconfirmed[n.UID] = true // set before the write, because the response may be lost
		if err := c.patchStatus(ctx, n, &before[i]); err != nil {
			n.Status.CIDR = ""
			failures = append(failures, err)
			continue
		}
		c.networks.Clear(client.ObjectKeyFromObject(n))
	}
	return errors.Join(failures...)
}

// grantIPs writes the decisions about IPs to the API server.
func (c *Controller) grantIPs(ctx context.Context, ips []api.IP, networks []api.Network) error {
	before := make([]api.IP, len(ips))
	for i := range ips {
		ips[i].DeepCopyInto(&before[i])
	}
	granted, refused := planIPs(ips, networks, c.lastGranted)
	var failures []error
	for i, why := range refused {
		ip := &ips[i]
		c.ips.Warn(ip, why.reason, grantAction, why.message)
		setRefusal(&ip.Status.Conditions, ip.Generation, why)
		if !equality.Semantic.DeepEqual(before[i].Status, ip.Status) {
			failures = append(failures, c.patchStatus(ctx, ip, &before[i]))
		}
	}
	for _, i := range granted {
		ip := &ips[i]
		meta.RemoveStatusCondition(&ip.Status.Conditions, api.GrantedCondition)
		c.unconfirmed[ip.UID] = true // set before the write, because the response may be lost
		if err := c.patchStatus(ctx, ip, &before[i]); err != nil {
			failures = append(failures, err)
			continue
		}
		c.ips.Clear(client.ObjectKeyFromObject(ip))
	}
	return errors.Join(failures...)
}

// patchStatus writes the status of an object. It fails if the object has been changed since it was read.
func (c *Controller) patchStatus(ctx context.Context, object, before client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, object, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the status of %T %s, %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// setRefusal sets the condition of an object whose request is not granted.
func setRefusal(conditions *[]metav1.Condition, generation int64, why refusal) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: api.GrantedCondition, Status: metav1.ConditionFalse, Reason: why.reason, Message: printable.Message(why.message),
		ObservedGeneration: generation,
	})
}

// release removes the finalizers of Liqo's IPAM from objects that are being deleted.
func (c *Controller) release(ctx context.Context, networks []api.Network, ips []api.IP) error {
	var failures []error
	for i := range networks {
		failures = append(failures, c.removeFinalizers(ctx, &networks[i]))
	}
	for i := range ips {
		failures = append(failures, c.removeFinalizers(ctx, &ips[i]))
	}
	return errors.Join(failures...)
}

func (c *Controller) removeFinalizers(ctx context.Context, object client.Object) error {
	if object.GetDeletionTimestamp() == nil {
		return nil
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", object)
	}
	changed := false
	for _, finalizer := range liqoFinalizers {
		changed = controllerutil.RemoveFinalizer(object, finalizer) || changed
	}
	if !changed {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, object, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizers of Liqo's IPAM from %T %s, %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &api.NetworkList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	pass := []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	toPass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return pass })
	changed := make(chan event.GenericEvent, 1)
	c.options.FollowOwnRanges(func() {
		select {
		case changed <- event.GenericEvent{Object: &api.Network{}}:
		default: // another pass is already due
		}
	})
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&api.Network{}, toPass).
		Watches(&api.IP{}, toPass).
		WatchesRawSource(source.Channel(changed, toPass)).
		Complete(report.Failures(c, c.options.Failed))
}
