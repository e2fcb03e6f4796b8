// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package credentials renews the tokens with which this cluster authenticates to its providers.
//
// A consumer authenticates as the ServiceAccount refract-consumer of its tenant namespace on the provider, which may
// request tokens only for itself. After a third of the lifetime of a token, the controller requests the next one,
// tries it, and stores it in the Secret; clients of the Secret reload it without a restart. A consumer that was
// disconnected for less than two thirds of that lifetime therefore recovers without intervention. A provider revokes
// the access by deleting the ServiceAccount, which invalidates its tokens. Kubeconfigs with other credentials, such
// as certificates, are not changed.
package credentials

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
)

// Options are the settings of the controller.
type Options struct {
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

// Controller renews tokens.
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

// Name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "credentials" }

const (
	renewedReason    = "CredentialsRenewed"
	notRenewedReason = "CredentialsNotRenewed"
	renewAction      = "Renew"
)

const (
	// look is how often a Secret is read: it is not watched, and may have another kubeconfig.
	look = 10 * time.Minute
	// mostAnswer of a provider to a request for a token, in bytes.
	mostAnswer = 1 << 20
	// patience with a provider.
	patience = 30 * time.Second
)

// Reconcile renews the token of a VirtualNode for its provider, when it is due.
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
		return reconcile.Result{RequeueAfter: look}, nil
	}
	// The foreigncluster controller, which uses the kubeconfig all the time, reports its errors.
	config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return reconcile.Result{RequeueAfter: look}, nil //nolint:nilerr // as above
	}
	validity := credentials.ValidityOf(config)
	if _, account := credentials.Account(config.BearerToken); account != wire.ConsumerServiceAccount || !validity.Known() {
		return reconcile.Result{RequeueAfter: look}, nil
	}
	if wait := validity.From.Add(validity.Life() / 3).Sub(c.options.Clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: min(wait, look)}, nil
	}
	until, err := c.renew(ctx, string(vn.Spec.ClusterID), secret, config, validity.Life())
	if err != nil {
		c.report.Warn(vn, notRenewedReason, renewAction, fmt.Sprintf("The credentials for cluster %s in Secret %s expire at %s and could not be renewed: %s. If this continues, run refractctl peer again",
			vn.Spec.ClusterID, key, validity.Until.UTC().Format(time.RFC3339), err))
		return reconcile.Result{}, fmt.Errorf("renewing the token in Secret %s, %w", key, err)
	}
	c.report.Clear(request.NamespacedName)
	c.recorder.Eventf(vn, nil, corev1.EventTypeNormal, renewedReason, renewAction, "Renewed the credentials for cluster %s in Secret %s, valid until %s", vn.Spec.ClusterID, key, until.UTC().Format(time.RFC3339))
	log.FromContext(ctx).Info("Renewed the token for a provider", "provider", vn.Spec.ClusterID, "secret", key.String(), "until", until)
	// A provider may have given it a shorter life.
	return reconcile.Result{RequeueAfter: max(time.Second, min(until.Sub(c.options.Clock.Now())/3, look))}, nil
}

// renew asks for a token of the same life, tries it, and stores it, unless the Secret has changed meanwhile.
func (c *Controller) renew(ctx context.Context, provider string, secret *corev1.Secret, config *rest.Config, life time.Duration) (until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, account := credentials.Account(config.BearerToken)
	present, err := open(config, provider, namespace)
	if err != nil {
		return until, err
	}
	answer, err := present.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return until, report.Errorf(report.Provider, "requesting a token of ServiceAccount %s/%s from the provider, %w", namespace, account, err)
	}
	next := rest.CopyConfig(config)
	next.BearerToken = answer.Status.Token
	if err := try(ctx, next, provider, namespace); err != nil {
		return until, report.Errorf(report.Provider, "trying the new token, %w", err)
	}
	kubeconfig, err := withToken(secret.Data[wire.KubeconfigSecretKey], answer.Status.Token)
	if err != nil {
		return until, err
	}
	changed := secret.DeepCopy() // with its resource version
	changed.Data[wire.KubeconfigSecretKey] = kubeconfig
	if err := c.client.Update(ctx, changed); err != nil {
		return until, fmt.Errorf("storing the new token, %w", err)
	}
	return answer.Status.ExpirationTimestamp.Time, nil
}

// open a provider, and no other cluster that may have its address by now.
func open(config *rest.Config, provider, tenant string) (kubernetes.Interface, error) {
	conn, err := connection.New(config, mostAnswer)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: provider, TenantNamespace: tenant})
	return kubernetes.NewForConfig(conn.Config())
}

// try checks whether the provider accepts the token.
func try(ctx context.Context, config *rest.Config, provider, tenant string) error {
	opened, err := open(config, provider, tenant)
	if err != nil {
		return err
	}
	_, err = opened.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// withToken returns the kubeconfig with another token in its current context.
func withToken(kubeconfig []byte, token string) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, fmt.Errorf("the kubeconfig has no user for its context %q", config.CurrentContext)
	}
	config.AuthInfos[current.AuthInfo].Token = token
	return clientcmd.Write(*config)
}

// Enforces returns the objects that the controller enforces, for metrics.
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
