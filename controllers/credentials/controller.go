// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package credentials renews the tokens and certificates that this cluster uses to access its providers.
//
// A consumer authenticates to its provider as the ServiceAccount refract-consumer in its tenant namespace there. This
// account may request tokens only for itself. After a third of the lifetime of a token, the controller requests a new
// token, tries it, and replaces the token in the Secret. The processes that use the Secret reload it without a restart.
// A consumer can therefore be disconnected for up to two thirds of the lifetime, and reconnect without help. A provider
// revokes the access by deleting the ServiceAccount, which invalidates its tokens.
//
// A certificate that refractctl peer has requested is renewed, too, if the provider supports this. An annotation of the
// Secret records whether it does. Each renewal uses a new key and a Renew in the tenant namespace on the provider,
// signed with the current key. Kubeconfigs with other credentials are not changed.
package credentials

import (
	"cmp"
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/renewal"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
)

// Options are the settings of the controller.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller renews credentials.
type Controller struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	report   *report.Reporter
	options  Options
}

// NewController returns a controller that writes through c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, recorder: recorder, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "credentials" }

const (
	renewedReason    = "CredentialsRenewed"
	notRenewedReason = "CredentialsNotRenewed"
	renewAction      = "Renew"
)

const (
	// secretReadInterval is how often a Secret is read. Secrets are not watched, and the kubeconfig may be replaced.
	secretReadInterval = 10 * time.Minute
	// minSecretReadInterval replaces secretReadInterval for credentials with a lifetime of minutes.
	minSecretReadInterval = 10 * time.Second
	// minRenewalInterval limits how often credentials with a lifetime of seconds are renewed. A shorter interval floods
	// the provider with requests.
	minRenewalInterval = time.Second
)

// providerAccess contains the current credentials for a provider and a function that requests new ones.
type providerAccess struct {
	// provider is the cluster ID of the provider. tenant is the tenant namespace of this cluster there.
	provider, tenant string
	config           *rest.Config
	validity         credentials.Validity
	// kind is the name of this kind of credentials in messages. next requests new credentials.
	kind string
	next func(context.Context, providerAccess) (*nextCredentials, error)
	// again is the command or option of refractctl that creates new credentials.
	again string
}

// nextCredentials contains the new credentials, which replace the current ones.
type nextCredentials struct {
	config *rest.Config
	until  time.Time
	put    func(user *clientcmdapi.AuthInfo)
}

// Reconcile renews a VirtualNode's credentials for its provider when they are due.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vn := &offloading.VirtualNode{}
	if err := c.client.Get(ctx, request.NamespacedName, vn); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if vn.Spec.KubeconfigSecretRef == nil || vn.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: vn.Namespace, Name: vn.Spec.KubeconfigSecretRef.Name}
	if err := c.live.Get(ctx, key, secret); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("getting Secret %s, %w", key, err)
		}
		return reconcile.Result{RequeueAfter: secretReadInterval}, nil
	}
	// The foreigncluster controller reports invalid kubeconfigs, so the error is not reported here.
	config, err := remote.ParseKubeconfig(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return reconcile.Result{RequeueAfter: secretReadInterval}, nil //nolint:nilerr // the foreigncluster controller reports it
	}
	of, renewed := c.accessOf(string(vn.Spec.ClusterID), secret, config)
	// If this controller does not renew the credentials, they change only when refractctl peer is run again.
	if !renewed {
		again := secretReadInterval
		if of.validity.Known() {
			again = min(secretReadInterval, max(of.validity.Life()/10, minSecretReadInterval))
		}
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if wait := of.validity.From.Add(of.validity.Life() / 3).Sub(c.options.Clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: min(wait, secretReadInterval)}, nil
	}
	until, err := c.renewCredentials(ctx, of, secret)
	if err != nil {
		c.report.Warn(vn, notRenewedReason, renewAction, c.notRenewed(of, key, err))
		return reconcile.Result{}, fmt.Errorf("renewing the %s in Secret %s, %w", of.kind, key, err)
	}
	c.report.Clear(request.NamespacedName)
	c.recorder.Eventf(vn, nil, corev1.EventTypeNormal, renewedReason, renewAction, "Renewed the credentials for cluster %s in Secret %s, valid until %s", vn.Spec.ClusterID, key, until.UTC().Format(time.RFC3339))
	log.FromContext(ctx).Info("Renewed the credentials for a provider", "kind", of.kind, "provider", vn.Spec.ClusterID, "secret", key.String(), "until", until)
	// The delay depends on the actual lifetime, because a provider may issue credentials with a shorter lifetime than
	// requested.
	return reconcile.Result{RequeueAfter: max(minRenewalInterval, min(until.Sub(c.options.Clock.Now())/3, secretReadInterval))}, nil
}

// accessOf returns the credentials in a kubeconfig, and reports whether this controller renews them.
func (c *Controller) accessOf(provider string, secret *corev1.Secret, config *rest.Config) (providerAccess, bool) {
	of := providerAccess{provider: provider, config: config, validity: credentials.ValidityOf(config)}
	if namespace, account := credentials.Account(config.BearerToken); account == wire.ConsumerServiceAccount {
		of.kind, of.tenant, of.next, of.again = "token", namespace, c.nextToken, "refractctl peer"
		return of, of.validity.Known()
	}
	of.kind, of.next, of.again = "certificate", c.nextCertificate, "refractctl peer --credentials=certificate"
	of.tenant = cmp.Or(secret.Annotations[wire.RemoteTenantNamespaceAnnotation], wire.TenantNamespace(c.options.ClusterID))
	return of, config.BearerToken == "" && secret.Annotations[wire.RenewedAnnotation] == "true" && clientcert.ValidityFor(config.CertData, c.certificateSubject(), nil).Known()
}

// notRenewed returns the note of the Event about credentials that could not be renewed. Expired credentials cannot be
// used to request new ones, so the note then says how to create new ones.
func (c *Controller) notRenewed(of providerAccess, secret client.ObjectKey, err error) string {
	until := of.validity.Until.UTC().Format(time.RFC3339)
	if !of.validity.Until.After(c.options.Clock.Now()) {
		return fmt.Sprintf("The credentials for cluster %s in Secret %s have expired at %s, before they could be renewed: run %s again (%s)", of.provider, secret, until, of.again, err)
	}
	return fmt.Sprintf("The credentials for cluster %s in Secret %s expire at %s and could not be renewed: %s. If this continues, run %s again", of.provider, secret, until, err, of.again)
}

// renewCredentials requests new credentials, tries them, and stores them, unless the Secret was changed in the
// meantime.
func (c *Controller) renewCredentials(ctx context.Context, of providerAccess, secret *corev1.Secret) (until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewal.Timeout)
	defer cancel()
	next, err := of.next(ctx, of)
	if err != nil {
		return until, err
	}
	if err := tryCredentials(ctx, next.config, of.provider, of.tenant); err != nil {
		return until, report.Errorf(report.Provider, "trying the new %s, %w", of.kind, err)
	}
	kubeconfig, err := withUser(secret.Data[wire.KubeconfigSecretKey], next.put)
	if err != nil {
		return until, err
	}
	// The update contains the resource version, so it fails if the Secret was changed in the meantime.
	changed := secret.DeepCopy()
	changed.Data[wire.KubeconfigSecretKey] = kubeconfig
	if err := c.client.Update(ctx, changed); err != nil {
		return until, fmt.Errorf("storing the new %s, %w", of.kind, err)
	}
	return next.until, nil
}

// nextToken requests a token with the same lifetime as the current one.
func (c *Controller) nextToken(ctx context.Context, of providerAccess) (*nextCredentials, error) {
	namespace, account := credentials.Account(of.config.BearerToken)
	present, err := openProvider(of.config, of.provider, namespace)
	if err != nil {
		return nil, err
	}
	answer, err := present.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(of.validity.Life().Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, report.Errorf(report.Provider, "requesting a token of ServiceAccount %s/%s from the provider, %w", namespace, account, err)
	}
	config := rest.CopyConfig(of.config)
	config.BearerToken = answer.Status.Token
	return &nextCredentials{config: config, until: answer.Status.ExpirationTimestamp.Time, put: func(user *clientcmdapi.AuthInfo) { user.Token = answer.Status.Token }}, nil
}

// openProvider returns a client for the provider. Its requests fail if another cluster has taken over the provider's
// address.
func openProvider(config *rest.Config, provider, tenant string) (kubernetes.Interface, error) {
	conn, err := connection.New(config, remote.SmallAnswers)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: provider, TenantNamespace: tenant})
	return kubernetes.NewForConfig(conn.Config())
}

// tryCredentials checks whether the provider accepts the credentials.
func tryCredentials(ctx context.Context, config *rest.Config, provider, tenant string) error {
	opened, err := openProvider(config, provider, tenant)
	if err != nil {
		return err
	}
	_, err = opened.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// withUser calls change with the user of the kubeconfig's current context, and returns the changed kubeconfig.
func withUser(kubeconfig []byte, change func(user *clientcmdapi.AuthInfo)) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, fmt.Errorf("the kubeconfig has no user for its context %q", config.CurrentContext)
	}
	change(config.AuthInfos[current.AuthInfo])
	return clientcmd.Write(*config)
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.VirtualNodeList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&offloading.VirtualNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(report.Failures(c, c.options.Failed))
}
