// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1alpha1 "github.com/refract-project/refract/api/ipam/v1alpha1"
	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/printable"
)

// Options are the settings of the controller.
type Options struct {
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller maintains the status of Configurations.
type Controller struct {
	client client.Client
	// live is an uncached reader.
	live    client.Reader
	report  *report.Reporter
	options Options
}

// NewController returns a controller that uses the client c. live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "network" }

// Reasons of the condition NetworkCIDRsConfigured. The first two are the same as in Liqo.
const (
	configuredReason = "NetworkCIDRsConfigured"
	waitingReason    = "WaitingForNetworks"
	refusedReason    = "RangeRefused"
	foreignReason    = "WrongCluster"
	surplusReason    = "AnotherConfiguration"
	configureAction  = "Configure"
)

// verdict is the reason and the message of the condition of a Configuration that is not configured.
type verdict struct{ reason, message string }

// Reconcile updates the status of a Configuration according to its Networks.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	configuration := &api.Configuration{}
	switch err := c.client.Get(ctx, request.NamespacedName, configuration); {
	case apierrors.IsNotFound(err):
		c.report.Clear(request.NamespacedName)
		return reconcile.Result{}, c.deleteFormer(ctx, request.NamespacedName, "")
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("getting Configuration %s, %w", request.NamespacedName, err)
	case configuration.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // deleteFormer or the garbage collector deletes the Networks when the Configuration is gone
	}
	if err := c.deleteFormer(ctx, request.NamespacedName, configuration.UID); err != nil {
		return reconcile.Result{}, err
	}
	why, err := c.checkCluster(ctx, configuration)
	if err != nil {
		return reconcile.Result{}, err
	}
	if why.reason == "" {
		why, err = c.configure(ctx, configuration)
	}
	if err != nil || why.reason == "" {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, c.reject(ctx, configuration, why)
}

// checkCluster refuses a Configuration if its cluster ID is not the ID of the peer that owns the tenant namespace,
// because peers can write in their own tenant namespaces. If a peer has several Configurations, checkCluster refuses
// all except the oldest one. Otherwise a peer could use up the ranges of others with many Configurations.
func (c *Controller) checkCluster(ctx context.Context, configuration *api.Configuration) (verdict, error) {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: configuration.Namespace}, namespace); err != nil {
		return verdict{}, fmt.Errorf("getting Namespace %s, %w", configuration.Namespace, err)
	}
	named, owner := configuration.Labels[wire.RemoteClusterIDLabel], namespace.Labels[wire.RemoteClusterIDLabel]
	if owner == "" || named != owner {
		const message = "label %s: the Configuration of cluster %q is in the namespace of cluster %q: " +
			"create it in the tenant namespace of its cluster"
		return verdict{foreignReason, fmt.Sprintf(message, wire.RemoteClusterIDLabel, named, owner)}, nil
	}
	others := &api.ConfigurationList{}
	ofPeer := client.MatchingLabels{wire.RemoteClusterIDLabel: owner}
	if err := c.client.List(ctx, others, client.InNamespace(configuration.Namespace), ofPeer); err != nil {
		return verdict{}, fmt.Errorf("listing the Configurations of namespace %s, %w", configuration.Namespace, err)
	}
	for i := range others.Items {
		if other := &others.Items[i]; other.DeletionTimestamp == nil && isOlder(other, configuration) {
			const message = "Configuration %s of cluster %q is older, and only one is used: change that one, or delete it"
			return verdict{surplusReason, fmt.Sprintf(message, other.Name, owner)}, nil
		}
	}
	return verdict{}, nil
}

// isOlder reports whether a takes precedence over b. If both were created in the same second, the name decides.
func isOlder(a, b *api.Configuration) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// configure requests the ranges of a Configuration, and publishes them when all of them are granted. Otherwise it
// returns a verdict with the ranges that are missing.
func (c *Controller) configure(ctx context.Context, configuration *api.Configuration) (verdict, error) {
	ranges, err := parseRemote(configuration.Spec.Remote.CIDR)
	if err != nil {
		return verdict{refusedReason, err.Error()}, nil
	}
	all := &ipamv1alpha1.NetworkList{}
	if err := c.client.List(ctx, all); err != nil {
		return verdict{}, fmt.Errorf("listing Networks, %w", err)
	}
	local, err := findLocal(all.Items)
	if err != nil {
		return verdict{waitingReason, err.Error()}, nil
	}
	if configuration.Spec.Local == nil {
		return verdict{}, c.fillLocal(ctx, configuration, local) // the write triggers another reconciliation
	}
	if err := local.check(configuration.Spec.Local.CIDR); err != nil {
		return verdict{refusedReason, err.Error()}, nil
	}
	owned := slices.DeleteFunc(all.Items, func(n ipamv1alpha1.Network) bool { return !metav1.IsControlledBy(&n, configuration) })
	granted, why, err := c.ensureNetworks(ctx, configuration, ranges, owned)
	if err != nil {
		return verdict{}, err
	}
	if why.reason != "" {
		// Published ranges are kept until all other ranges are granted. Networks for ranges that the spec contained in
		// the meantime are deleted. Otherwise a peer could collect ranges.
		owned = slices.DeleteFunc(owned, func(n ipamv1alpha1.Network) bool { return isPublished(configuration, &n) })
		return why, c.deleteUnused(ctx, ranges, owned)
	}
	if err := c.publish(ctx, configuration, granted); err != nil {
		return verdict{}, err
	}
	return verdict{}, c.deleteUnused(ctx, ranges, owned)
}

// isPublished reports whether the status of a Configuration contains the range of a Network.
func isPublished(configuration *api.Configuration, n *ipamv1alpha1.Network) bool {
	published := configuration.Status.Remote
	return published != nil && slices.Contains(slices.Concat(published.CIDR.Pod, published.CIDR.External), n.Status.CIDR)
}

// fillLocal writes the ranges of this cluster into the spec.
func (c *Controller) fillLocal(ctx context.Context, configuration *api.Configuration, local localRanges) error {
	filled := configuration.DeepCopy()
	filled.Spec.Local = &api.ClusterConfig{CIDR: api.ClusterConfigCIDR{Pod: local.pod, External: local.external}}
	patch := client.MergeFromWithOptions(configuration, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, filled, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("setting spec.local of Configuration %s, %w", client.ObjectKeyFromObject(configuration), err)
	}
	return nil
}

// ensureNetworks creates a Network for each range that has none. It returns the granted ranges by their use, or a
// verdict with the ranges that are not granted.
func (c *Controller) ensureNetworks(
	ctx context.Context, configuration *api.Configuration, ranges []remoteRange, owned []ipamv1alpha1.Network,
) (granted api.ClusterConfigCIDR, why verdict, err error) {
	for _, r := range ranges {
		i := slices.IndexFunc(owned, func(n ipamv1alpha1.Network) bool { return r.isOf(&n) && n.DeletionTimestamp == nil })
		if i < 0 {
			err := c.createNetwork(ctx, configuration, r)
			if apierrors.IsInvalid(err) { // for example if the name is too long
				return granted, verdict{
					refusedReason,
					fmt.Sprintf("spec.remote.cidr.%s: %s: %v: choose a shorter name", r.use, r.cidr, err),
				}, nil
			}
			if err != nil {
				return granted, why, err
			}
			why = verdict{waitingReason, fmt.Sprintf("waiting for a range for %s", r.cidr)}
			continue
		}
		n := &owned[i]
		if n.Status.CIDR == "" {
			why = verdict{waitingReason, fmt.Sprintf("Network %s: waiting for a range for %s", n.Name, r.cidr)}
			if refusal := meta.FindStatusCondition(n.Status.Conditions, ipamv1alpha1.GrantedCondition); refusal != nil {
				why = verdict{refusal.Reason, fmt.Sprintf("Network %s: %s", n.Name, refusal.Message)}
			}
			continue
		}
		switch r.use {
		case podUse:
			granted.Pod = append(granted.Pod, n.Status.CIDR)
		case externalUse:
			granted.External = append(granted.External, n.Status.CIDR)
		}
	}
	return granted, why, nil
}

func (c *Controller) createNetwork(ctx context.Context, configuration *api.Configuration, r remoteRange) error {
	owner := metav1.NewControllerRef(configuration, api.GroupVersion.WithKind(api.ConfigurationKind))
	network := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: configuration.Namespace, Name: r.networkName(configuration.Name), OwnerReferences: []metav1.OwnerReference{*owner},
			Labels: map[string]string{
				wire.RemoteClusterIDLabel: configuration.Labels[wire.RemoteClusterIDLabel], wire.CIDRTypeLabel: string(r.use),
			},
		},
		Spec: ipamv1alpha1.NetworkSpec{CIDR: r.cidr},
	}
	if err := c.client.Create(ctx, network); err != nil {
		return fmt.Errorf("creating Network %s, %w", client.ObjectKeyFromObject(network), err)
	}
	return nil
}

// publish writes the granted ranges, the condition, and the label with which Liqo before 1.2 marks a Configuration
// whose ranges are all granted.
func (c *Controller) publish(ctx context.Context, configuration *api.Configuration, granted api.ClusterConfigCIDR) error {
	done := configuration.DeepCopy()
	done.Status.Remote = &api.ClusterConfig{CIDR: granted}
	meta.SetStatusCondition(&done.Status.Conditions, metav1.Condition{
		Type:               api.ConfiguredCondition,
		Status:             metav1.ConditionTrue,
		Reason:             configuredReason,
		Message:            "all ranges of the peer have a local range",
		ObservedGeneration: configuration.Generation,
	})
	if err := c.patchStatus(ctx, done, configuration); err != nil {
		return err
	}
	c.report.Clear(client.ObjectKeyFromObject(configuration))
	if configuration.Labels[wire.ConfiguredLabel] == "true" {
		return nil
	}
	labelled := done.DeepCopy()
	labelled.Labels[wire.ConfiguredLabel] = "true" // another label would have been refused by checkCluster
	if err := c.client.Patch(ctx, labelled, client.MergeFrom(done)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling Configuration %s, %w", client.ObjectKeyFromObject(configuration), err)
	}
	return nil
}

// reject sets the condition of a Configuration that is not configured, with the reason. Ranges that were published
// earlier are kept.
func (c *Controller) reject(ctx context.Context, configuration *api.Configuration, why verdict) error {
	if why.reason != waitingReason {
		c.report.Warn(configuration, why.reason, configureAction, why.message)
	}
	rejected := configuration.DeepCopy()
	meta.SetStatusCondition(&rejected.Status.Conditions, metav1.Condition{
		Type: api.ConfiguredCondition, Status: metav1.ConditionFalse, Reason: why.reason, Message: printable.Message(why.message),
		ObservedGeneration: configuration.Generation,
	})
	return c.patchStatus(ctx, rejected, configuration)
}

func (c *Controller) patchStatus(ctx context.Context, after, before *api.Configuration) error {
	if equality.Semantic.DeepEqual(after.Status, before.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, after, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the status of Configuration %s, %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

// deleteUnused deletes the Networks of ranges that are not in the spec any more.
func (c *Controller) deleteUnused(ctx context.Context, ranges []remoteRange, owned []ipamv1alpha1.Network) error {
	var failures []error
	for i := range owned {
		n := &owned[i]
		if n.DeletionTimestamp != nil || slices.ContainsFunc(ranges, func(r remoteRange) bool { return r.isOf(n) }) {
			continue
		}
		if err := c.client.Delete(ctx, n, client.Preconditions{UID: &n.UID}); client.IgnoreNotFound(err) != nil {
			failures = append(failures, fmt.Errorf("deleting Network %s, %w", client.ObjectKeyFromObject(n), err))
		}
	}
	return errors.Join(failures...)
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &api.ConfigurationList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		For(&api.Configuration{}).
		Watches(&api.Configuration{}, handler.EnqueueRequestsFromMapFunc(c.listNeighbours)).
		WithOptions(workers.Options(1)).
		Watches(&ipamv1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(c.listConfigurations)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.listConfigurationsIn)).
		Complete(report.Failures(c, c.options.Failed))
}

// listConfigurations returns a request for the Configuration that owns a Network. For a Network of this cluster itself,
// it returns requests for all Configurations.
func (c *Controller) listConfigurations(ctx context.Context, network client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(network); owner != nil {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: network.GetNamespace(), Name: owner.Name}}}
	}
	if network.GetLabels()[wire.NetworkTypeLabel] == "" {
		return nil
	}
	return c.list(ctx)
}

// listNeighbours returns requests for the other Configurations in the same namespace, because one of them may take the
// place of a Configuration that is deleted.
func (c *Controller) listNeighbours(ctx context.Context, configuration client.Object) []reconcile.Request {
	neighbours := c.list(ctx, client.InNamespace(configuration.GetNamespace()))
	return slices.DeleteFunc(neighbours, func(r reconcile.Request) bool { return r.Name == configuration.GetName() })
}

func (c *Controller) listConfigurationsIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	if namespace.GetLabels()[wire.RemoteClusterIDLabel] == "" {
		return nil
	}
	return c.list(ctx, client.InNamespace(namespace.GetName()))
}

func (c *Controller) list(ctx context.Context, options ...client.ListOption) (requests []reconcile.Request) {
	all := &api.ConfigurationList{}
	if c.client.List(ctx, all, options...) != nil {
		return nil // errors of the cache are ignored, because an event of the Configuration itself triggers its reconciliation
	}
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}
