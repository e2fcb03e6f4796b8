// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package negotiation applies the offers of providers to the virtual nodes of a consumer.
//
// A provider grants resources, classes and labels in the status of a ResourceSlice, in the tenant namespace of this
// cluster on the provider (package resourceoffer). The controller reads it with the credentials of the virtual node,
// validates it, and updates the fields of the VirtualNode that follow the provider (see internal/negotiation). It
// does not write to the provider.
//
// The VirtualNode stays unchanged while the provider does not respond or denies the request, and after the slice was
// deleted. Changes in quick succession are combined, because each of them may restart the virtual kubelet.
package negotiation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/negotiation"
)

// Options are the settings of the controller.
type Options struct {
	// ClusterID is the ID of this cluster, the consumer.
	ClusterID core.ClusterID
	// Settle is the minimum time between two changes of a VirtualNode. 0 means one minute.
	Settle time.Duration
	// OwnSlices means that VirtualNodes may belong to ResourceSlices of this cluster (package identity).
	OwnSlices bool
	// AcceptedLabels are the labels that every provider may offer. VirtualNodes can list further labels for their
	// provider.
	AcceptedLabels negotiation.Acceptance
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller updates VirtualNodes according to the offers of their providers.
type Controller struct {
	client  client.Client
	live    client.Reader // reads Secrets by name, and the managedFields, which are not cached
	report  *report.Reporter
	options Options
	// remotes gives access to the ResourceSlices of the VirtualNodes on the providers.
	remotes *remote.Pool

	mu sync.Mutex
	// changed contains the time of the last change of each VirtualNode.
	changed map[types.NamespacedName]time.Time
}

// NewController returns a controller that uses the client c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	if options.Settle == 0 {
		options.Settle = defaultSettlePeriod
	}
	return &Controller{
		client: c, live: live, report: report.New(recorder), options: options,
		remotes: remote.NewPool(remote.Options{Scheme: c.Scheme(), Kind: auth.GroupVersion.WithKind(auth.ResourceSliceKind)}),
		changed: map[types.NamespacedName]time.Time{},
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "negotiation" }

// The reasons and the action of this controller's Events.
const (
	followedReason      = "OfferFollowed"
	refusedReason       = "OfferRefused"
	deniedReason        = "OfferDenied"
	notNegotiatedReason = "NotNegotiated"
	notAcceptedReason   = "LabelsNotAccepted"
	followAction        = "Follow"
)

const (
	// defaultSettlePeriod is the default minimum time between two changes to a VirtualNode. With a shorter period, more
	// of the changes in a series are written to the VirtualNode individually; with a longer one, pods stay longer on
	// resources that are no longer offered.
	defaultSettlePeriod = time.Minute
	// refreshInterval is how often the slice is read even without a watch event, to detect new credentials and an
	// upgrade of the provider.
	refreshInterval = 5 * time.Minute
	// answerTimeout limits the wait for a provider that has not responded yet.
	answerTimeout = 30 * time.Second
)

// follows reports whether a VirtualNode follows its provider's offer.
func follows(object client.Object) bool {
	_, ok := object.GetAnnotations()[wire.NegotiatedFieldsAnnotation]
	return ok
}

// Reconcile updates one VirtualNode according to the offer of its provider.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vn := &offloading.VirtualNode{}
	err := c.client.Get(ctx, request.NamespacedName, vn)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("getting VirtualNode %s, %w", request.NamespacedName, err)
	}
	if err != nil || vn.DeletionTimestamp != nil || !follows(vn) || vn.Spec.KubeconfigSecretRef == nil {
		c.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if owner := metav1.GetControllerOf(vn); c.options.OwnSlices && owner != nil && owner.Kind == auth.ResourceSliceKind {
		return c.followOwnSlice(ctx, vn)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: vn.Namespace, Name: vn.Spec.KubeconfigSecretRef.Name}
	if err := c.live.Get(ctx, key, secret); err != nil {
		// Other controllers also need the Secret, and report that it is missing.
		return reconcile.Result{RequeueAfter: refreshInterval}, client.IgnoreNotFound(err)
	}
	provider, err := c.remotes.Open(request.NamespacedName, remote.AccessFrom(secret, vn.Spec.ClusterID, c.options.ClusterID))
	if err != nil {
		return reconcile.Result{RequeueAfter: refreshInterval}, report.Errorf(report.Invalid, "connecting to provider %s of VirtualNode %s, %w", vn.Spec.ClusterID, request.NamespacedName, err)
	}
	all, err := list(ctx, provider)
	if reason := unsupported(err); reason != "" {
		return c.notNegotiated(ctx, vn, reason)
	}
	if err != nil {
		return reconcile.Result{}, report.Errorf(report.Provider, "reading the ResourceSlices at provider %s, %w", vn.Spec.ClusterID, err)
	}
	slice, own := negotiation.Find(all, vn.Name, vn.Spec.ClusterID.String())
	if slice == nil {
		return c.notNegotiated(ctx, vn, fmt.Sprintf("ResourceSlice %s does not exist in namespace %s of the provider; run refractctl peer again, or refractctl generate peering-user on the provider", vn.Name, provider.Namespace))
	}
	switch answer, message := negotiation.AnswerOf(slice); {
	case answer == negotiation.Denied:
		return c.noteDenial(ctx, vn, slice, message)
	case answer == "" && c.options.Clock.Since(slice.CreationTimestamp.Time) < answerTimeout:
		return reconcile.Result{RequeueAfter: answerTimeout}, nil
	case answer == "":
		return c.notNegotiated(ctx, vn, fmt.Sprintf("the provider has not answered ResourceSlice %s; upgrade Refract there, and set tenants.offers=true", slice.Name))
	}
	return c.follow(ctx, vn, func(asked corev1.ResourceList) (negotiation.Offer, []string) {
		return negotiation.Usable(slice, own, asked)
	})
}

// followOwnSlice updates a VirtualNode that belongs to a ResourceSlice of this cluster. Package identity copies the
// provider's answer to the slice.
func (c *Controller) followOwnSlice(ctx context.Context, vn *offloading.VirtualNode) (reconcile.Result, error) {
	c.remotes.Drop(client.ObjectKeyFromObject(vn))
	slice := &auth.ResourceSlice{}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(vn), slice); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch answer, message := negotiation.AnswerOf(slice); answer {
	case "":
		return reconcile.Result{}, nil
	case negotiation.Denied:
		return c.noteDenial(ctx, vn, slice, message)
	}
	return c.follow(ctx, vn, func(corev1.ResourceList) (negotiation.Offer, []string) {
		return negotiation.Usable(slice, true, negotiation.RequestedBy(slice))
	})
}

// noteDenial reports that the provider has denied the slice of a VirtualNode.
func (c *Controller) noteDenial(ctx context.Context, vn *offloading.VirtualNode, slice *auth.ResourceSlice, message string) (reconcile.Result, error) {
	c.report.Warn(vn, deniedReason, followAction, fmt.Sprintf("provider %s denied ResourceSlice %s, VirtualNode left unchanged: %s", vn.Spec.ClusterID, slice.Name, message))
	return reconcile.Result{RequeueAfter: refreshInterval}, c.note(ctx, vn, negotiation.Denied, message)
}

// list returns the ResourceSlices on a provider, and starts a watch for them. The watch is started only after a
// successful list. Otherwise it would be retried forever on a provider that does not serve ResourceSlices or does not
// allow this cluster to read them.
func list(ctx context.Context, provider *remote.Remote) ([]auth.ResourceSlice, error) {
	slices := &auth.ResourceSliceList{}
	if err := provider.List(ctx, slices, client.InNamespace(provider.Namespace), client.Limit(remote.MaxItems)); err != nil {
		return nil, err
	}
	return slices.Items, provider.Watch()
}

// unsupported returns the reason if err means that a provider does not negotiate. Otherwise it returns an empty string.
func unsupported(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "this cluster may not list ResourceSlices there: its Tenant was drained or removed (refractctl activate tenant on the provider), or Refract on the provider must be upgraded"
	case apierrors.IsNotFound(err):
		return "the provider has no ResourceSlice CRD; upgrade Refract and its CRDs there"
	}
	return ""
}

// notNegotiated reports that a VirtualNode keeps the values of its creator, because the provider does not negotiate.
func (c *Controller) notNegotiated(ctx context.Context, vn *offloading.VirtualNode, why string) (reconcile.Result, error) {
	c.report.Warn(vn, notNegotiatedReason, followAction, fmt.Sprintf("cannot negotiate with provider %s, VirtualNode left unchanged: %s", vn.Spec.ClusterID, why))
	return reconcile.Result{RequeueAfter: refreshInterval}, c.note(ctx, vn, negotiation.NotNegotiated, why)
}

// follow applies the provider's offer to the VirtualNode if it differs and enough time has passed since the last
// change.
func (c *Controller) follow(ctx context.Context, cached *offloading.VirtualNode, usable func(asked corev1.ResourceList) (negotiation.Offer, []string)) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(cached)
	vn := &offloading.VirtualNode{}
	if err := c.live.Get(ctx, key, vn); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	asked, err := negotiation.Requested(vn)
	if err != nil {
		c.report.Warn(vn, notNegotiatedReason, followAction, fmt.Sprintf("cannot negotiate, VirtualNode left unchanged: %s", err))
		return reconcile.Result{}, nil
	}
	if asked == nil || vn.DeletionTimestamp != nil || vn.UID != cached.UID {
		return reconcile.Result{}, nil
	}
	offer, problems := usable(asked.Resources)
	accepted, err := negotiation.AcceptedLabels(vn)
	if err != nil {
		problems = append(problems, err.Error())
	}
	refused := asked.Restrict(&offer, slices.Concat(c.options.AcceptedLabels, accepted), vn)
	if len(problems)+len(refused) == 0 {
		c.report.Clear(key)
	}
	if len(problems) > 0 {
		c.report.Warn(vn, refusedReason, followAction, fmt.Sprintf("ignoring a part of the offer of provider %s: %s", vn.Spec.ClusterID, strings.Join(problems, "; ")))
	}
	if len(refused) > 0 {
		c.report.Warn(vn, notAcceptedReason, followAction, negotiation.DescribeRefused(refused, vn.Spec.ClusterID.String()))
	}
	desired := vn.DeepCopy()
	changed := asked.Apply(&offer, desired)
	if wait := c.unsettled(key); len(changed) > 0 && wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	metav1.SetMetaDataAnnotation(&desired.ObjectMeta, wire.OfferAnnotation, string(negotiation.Accepted))
	if len(changed) == 0 && vn.Annotations[wire.OfferAnnotation] == string(negotiation.Accepted) {
		return reconcile.Result{RequeueAfter: refreshInterval}, nil
	}
	// The optimistic lock preserves changes that other clients have made in the meantime.
	if err := c.client.Patch(ctx, desired, client.MergeFromWithOptions(vn, client.MergeFromWithOptimisticLock{}), client.FieldOwner(negotiation.Manager)); err != nil {
		return reconcile.Result{}, fmt.Errorf("patching VirtualNode %s, %w", key, err)
	}
	if len(changed) > 0 {
		c.mu.Lock()
		c.changed[key] = c.options.Clock.Now()
		c.mu.Unlock()
		c.report.Tell(desired, nil, followedReason, followAction, fmt.Sprintf("updated to the offer of provider %s: %s", vn.Spec.ClusterID, negotiation.Describe(desired, changed)))
	}
	return reconcile.Result{RequeueAfter: refreshInterval}, nil
}

// unsettled returns the time until a VirtualNode may be changed again. The result is not positive if it may be changed
// now.
func (c *Controller) unsettled(key types.NamespacedName) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.changed[key]
	if !ok {
		return 0
	}
	return c.options.Settle - c.options.Clock.Since(last)
}

// note writes the provider's answer to an annotation of the VirtualNode if the answer has changed.
func (c *Controller) note(ctx context.Context, vn *offloading.VirtualNode, answer negotiation.Answer, why string) error {
	text := fmt.Sprintf("%s: %s", answer, why)
	if vn.Annotations[wire.OfferAnnotation] == text {
		return nil
	}
	changed := vn.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, wire.OfferAnnotation, text)
	if err := c.client.Patch(ctx, changed, client.MergeFrom(vn), client.FieldOwner(negotiation.Manager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
	}
	return nil
}

func (c *Controller) forget(key types.NamespacedName) {
	c.remotes.Drop(key)
	c.report.Clear(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.changed, key)
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.VirtualNodeList{}, follows
}

// Register adds the controller to mgr. ctx must be done when the manager stops.
func (c *Controller) Register(ctx context.Context, mgr manager.Manager) error {
	c.remotes.Bind(ctx)
	// With lanes, a request that waits for a provider blocks only the reconciliation of its own VirtualNode.
	lanes := workers.NewLanes(report.Failures(c, c.options.Failed))
	if err := mgr.Add(lanes); err != nil {
		return err
	}
	b := builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&offloading.VirtualNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: workers.Changed})).
		WatchesRawSource(source.Channel(c.remotes.Events(), &handler.EnqueueRequestForObject{}))
	if c.options.OwnSlices {
		// A VirtualNode has the name of its slice.
		b = b.Watches(&auth.ResourceSlice{}, &handler.EnqueueRequestForObject{})
	}
	return b.Complete(lanes)
}
