// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resourceshare runs on a consumer. It restores the ResourceSlices of the consumer's virtual nodes on providers
// that run Liqo.
//
// A provider that runs Liqo deletes the ResourceSlices of a drained consumer. When the consumer is activated again, a
// consumer that runs Liqo sends its ResourceSlices again. A ResourceSlice that refractctl peer has created, however,
// exists only on the provider. If it is gone, the controller recreates it, with the resources of the VirtualNode and
// with a certificate request for the key of the peering. Its user and the name of its Quota stay the same, so the
// credentials of the virtual node remain valid.
//
// If a provider deletes the ResourceSlice again, the controller recreates it after a pause. If the provider has revoked
// this cluster's access, the controller retries.
package resourceshare

import (
	"context"
	"crypto"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
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
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/printable"
)

// Options are the settings of the controller.
type Options struct {
	// ClusterID is the ID of this cluster, the consumer.
	ClusterID core.ClusterID
	// Pause is the minimum time between two creations of a ResourceSlice. It is also the retry interval while this
	// cluster has no access. 0 means 15 seconds.
	Pause time.Duration
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller restores ResourceSlices on providers.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
	// remotes gives access to the ResourceSlices of the VirtualNodes on the providers.
	remotes *remote.Pool

	mu     sync.Mutex
	shares map[types.NamespacedName]*share
}

// share is the state of the ResourceSlice of a VirtualNode.
type share struct {
	// missing is the time since which the ResourceSlice has been missing. created is the time of its last creation.
	missing, created time.Time
	pause            time.Duration
	// repeated is true if the provider deleted the last ResourceSlice before the pause was over.
	repeated bool
}

const (
	// defaultRecreateDelay is the first pause before a ResourceSlice is recreated. With a shorter pause, the
	// controller would fight with a provider that deletes the ResourceSlice.
	defaultRecreateDelay = 15 * time.Second
	// maxRecreateDelay limits the pause before a ResourceSlice is recreated.
	maxRecreateDelay = 10 * time.Minute
)

// wait records that the ResourceSlice is missing, and returns the delay until it may be recreated.
func (s *share) wait(now time.Time, pause time.Duration) time.Duration {
	if s.missing.IsZero() {
		s.missing = now
		s.repeated = !s.created.IsZero() && now.Sub(s.created) < s.pause
		if s.repeated {
			s.pause = min(2*s.pause, max(maxRecreateDelay, pause))
		} else {
			s.pause = pause
		}
	}
	return s.pause - now.Sub(s.missing)
}

// isSettled reports whether the ResourceSlice has existed for at least as long as the pause.
func (s *share) isSettled(now time.Time) bool { return now.Sub(s.created) >= s.pause }

// NewController returns a controller that uses the client c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	if options.Pause == 0 {
		options.Pause = defaultRecreateDelay
	}
	return &Controller{
		client: c, live: live, report: report.New(recorder), options: options,
		remotes: remote.NewPool(remote.Options{Scheme: c.Scheme(), Kind: auth.GroupVersion.WithKind(auth.ResourceSliceKind), SameName: true}),
		shares:  map[types.NamespacedName]*share{},
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "resourceshare" }

const (
	restoredReason  = "ResourceSliceRestored"
	deniedReason    = "ResourceSliceDenied"
	withdrawnReason = "AccessWithdrawn"
	restoreAction   = "Restore"
	// refreshInterval is how often the ResourceSlice is read even without a watch event, to detect new credentials.
	refreshInterval = 5 * time.Minute
	// maxMessage is the maximum length of a provider's message in an Event, in bytes.
	maxMessage = 512
)

// hasShare reports whether refractctl has requested the resources of a virtual node from a provider that runs Liqo.
func hasShare(object client.Object) bool {
	vn, ok := object.(*offloading.VirtualNode)
	return ok && vn.Labels["app.kubernetes.io/managed-by"] == wire.ManagedByRefractctl &&
		vn.Spec.KubeconfigSecretRef != nil && vn.Spec.KubeconfigSecretRef.Name == "kubeconfig-resourceslice-"+vn.Name
}

// Reconcile restores the ResourceSlice of one virtual node.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vn := &offloading.VirtualNode{}
	err := c.client.Get(ctx, request.NamespacedName, vn)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("getting VirtualNode %s, %w", request.NamespacedName, err)
	}
	if err != nil || vn.DeletionTimestamp != nil || !hasShare(vn) {
		c.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: vn.Namespace, Name: "kubeconfig-controlplane-" + vn.Spec.ClusterID.String()}
	if err := c.live.Get(ctx, key, secret); err != nil {
		// Other controllers report that the Secret is missing.
		return reconcile.Result{RequeueAfter: refreshInterval}, client.IgnoreNotFound(err)
	}
	access := remote.AccessFrom(secret, vn.Spec.ClusterID, c.options.ClusterID)
	provider, err := c.remotes.Open(request.NamespacedName, access)
	if err != nil {
		return reconcile.Result{RequeueAfter: refreshInterval}, report.Errorf(report.Invalid, "connecting to provider %s of VirtualNode %s, %w", vn.Spec.ClusterID, request.NamespacedName, err)
	}
	slice := &auth.ResourceSlice{}
	err = provider.Get(ctx, client.ObjectKey{Namespace: provider.Namespace, Name: vn.Name}, slice)
	switch {
	case apierrors.IsForbidden(err):
		c.report.Warn(vn, withdrawnReason, restoreAction, fmt.Sprintf("provider %s has withdrawn the access of this cluster, as liqoctl drain tenant does: nothing runs there until an administrator of the provider runs liqoctl activate tenant %s",
			vn.Spec.ClusterID, c.options.ClusterID))
		return reconcile.Result{RequeueAfter: c.options.Pause}, nil
	case apierrors.IsNotFound(err):
		return c.restore(ctx, vn, provider, access)
	case err != nil:
		return reconcile.Result{}, report.Errorf(report.Provider, "reading ResourceSlice %s at provider %s, %w", vn.Name, vn.Spec.ClusterID, err)
	}
	c.tellDenial(vn, slice)
	return reconcile.Result{RequeueAfter: refreshInterval}, provider.Watch()
}

// tellDenial reports on the VirtualNode that the provider has denied its ResourceSlice.
func (c *Controller) tellDenial(vn *offloading.VirtualNode, slice *auth.ResourceSlice) {
	settled := c.notice(client.ObjectKeyFromObject(vn))
	for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
		if slice.Status.Decision(what) == auth.ResourceSliceDenied {
			c.report.Warn(vn, deniedReason, restoreAction, fmt.Sprintf("provider %s denied ResourceSlice %s (%s), so it takes no new pods: %s", vn.Spec.ClusterID, slice.Name, what,
				printable.Shorten(printable.Line(slice.Status.Condition(what).Message), maxMessage)))
			return
		}
	}
	if settled {
		c.report.Clear(client.ObjectKeyFromObject(vn))
	}
}

// restore recreates the ResourceSlice of a virtual node.
func (c *Controller) restore(ctx context.Context, vn *offloading.VirtualNode, provider *remote.Remote, access remote.Access) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(vn)
	wait, repeated := c.pause(key)
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, provider.Watch()
	}
	config, err := remote.ParseKubeconfig(access.Kubeconfig)
	if err != nil {
		return reconcile.Result{}, report.Errorf(report.Invalid, "reading the kubeconfig of provider %s, %w", vn.Spec.ClusterID, err)
	}
	signer, err := keyOf(config)
	if err != nil {
		return reconcile.Result{RequeueAfter: refreshInterval}, report.Errorf(report.Invalid, "reading the key of the kubeconfig of provider %s: run refractctl peer again, %w", vn.Spec.ClusterID, err)
	}
	slice, err := c.slice(vn, provider.Namespace, signer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := fresh.Check(ctx, c.client, c.live, vn); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := provider.Create(ctx, slice); err != nil {
		return reconcile.Result{}, report.Errorf(report.Provider, "creating ResourceSlice %s at provider %s, %w", slice.Name, vn.Spec.ClusterID, err)
	}
	c.record(key)
	if repeated {
		return reconcile.Result{RequeueAfter: refreshInterval}, provider.Watch()
	}
	c.report.Clear(key)
	c.report.Tell(vn, nil, restoredReason, restoreAction, fmt.Sprintf("provider %s no longer had ResourceSlice %s, which was created again: %s may have deleted it by draining this cluster", vn.Spec.ClusterID, slice.Name, vn.Spec.ClusterID))
	return reconcile.Result{RequeueAfter: refreshInterval}, provider.Watch()
}

// keyOf returns the private key of the client certificate in a kubeconfig.
func keyOf(config *rest.Config) (crypto.Signer, error) {
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", pair.PrivateKey)
	}
	return signer, nil
}

// slice returns the ResourceSlice of a virtual node, as refractctl peer creates and deletes it.
func (c *Controller) slice(vn *offloading.VirtualNode, namespace string, signer crypto.Signer) (*auth.ResourceSlice, error) {
	consumer := c.options.ClusterID.String()
	csr, err := clientcert.New(clientcert.Subject{CommonName: auth.ResourceSliceUser(vn.Name, consumer), Organization: consumer}, signer)
	if err != nil {
		return nil, err
	}
	return &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vn.Name, Labels: map[string]string{
			"app.kubernetes.io/managed-by": wire.ManagedByRefractctl, wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: consumer, wire.RemoteClusterIDLabel: consumer,
		}},
		Spec: auth.ResourceSliceSpec{
			ConsumerClusterID: ptr.To(c.options.ClusterID), ProviderClusterID: ptr.To(vn.Spec.ClusterID), Class: auth.DefaultResourceSliceClass, Resources: vn.Spec.ResourceQuota.Hard, CSR: csr,
		},
	}, nil
}

// pause returns the delay until the ResourceSlice of a virtual node may be recreated. repeated reports whether the
// provider deleted the previous one before the pause was over.
func (c *Controller) pause(key types.NamespacedName) (wait time.Duration, repeated bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shares[key] == nil {
		c.shares[key] = &share{}
	}
	wait = c.shares[key].wait(c.options.Clock.Now(), c.options.Pause)
	return wait, c.shares[key].repeated
}

// record records that the controller has created the ResourceSlice of a virtual node.
func (c *Controller) record(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shares[key]; s != nil {
		s.missing, s.created = time.Time{}, c.options.Clock.Now()
	}
}

// notice records that the ResourceSlice of a virtual node exists. It reports whether the ResourceSlice has existed for
// at least as long as the pause.
func (c *Controller) notice(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[key]
	if s == nil {
		return true
	}
	s.missing = time.Time{}
	return s.isSettled(c.options.Clock.Now())
}

func (c *Controller) forget(key types.NamespacedName) {
	c.remotes.Drop(key)
	c.report.Clear(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shares, key)
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.VirtualNodeList{}, hasShare
}

// Register adds the controller to mgr. ctx must be done when the manager stops.
func (c *Controller) Register(ctx context.Context, mgr manager.Manager) error {
	c.remotes.Bind(ctx)
	// With lanes, a provider that does not respond delays only its own virtual nodes.
	lanes := workers.NewLanes(report.Failures(c, c.options.Failed))
	if err := mgr.Add(lanes); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&offloading.VirtualNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: workers.Changed})).
		WatchesRawSource(source.Channel(c.remotes.Events(), &handler.EnqueueRequestForObject{})).
		Complete(lanes)
}
