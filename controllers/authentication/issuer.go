// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/internal/tenantcondition"
	"github.com/refract-project/refract/internal/clientcert"
)

// Issuer issues credentials for this cluster to consumers. It is safe for concurrent use.
type Issuer struct {
	client client.Client
	live   client.Reader
	server *APIServer
	clock  clock.PassiveClock
}

// NewIssuer returns an issuer that requests certificates with c; live must not use a cache.
func NewIssuer(c client.Client, live client.Reader, server *APIServer, clock clock.PassiveClock) *Issuer {
	return &Issuer{client: c, live: live, server: server, clock: clock}
}

// signTimeout is shorter than the limit of a reconciliation. The signer of Kubernetes takes less than a second.
const signTimeout = 15 * time.Second

// signRetryInterval is the retry interval for problems of this cluster. With a shorter interval, a cluster that signs
// no certificates gets too many requests.
const signRetryInterval = time.Minute

// refusal is an error that usually persists until an object changes.
type refusal struct {
	reason, message string
	// again is the delay until a retry if no object changes; 0 means no retry.
	again time.Duration
}

func (r *refusal) Error() string { return r.message }

func refuse(reason, format string, arguments ...any) error {
	return &refusal{reason: reason, message: fmt.Sprintf(format, arguments...)}
}

// refusalOf returns the refusal that err wraps, or nil for any other error.
func refusalOf(err error) *refusal {
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return refused
	}
	return nil
}

// Event reasons of refused requests.
const (
	invalidTenantReason  = "InvalidTenant"
	nonceNotFoundReason  = "NonceNotFound"
	signatureReason      = "SignatureVerificationFailed"
	invalidCSRReason     = "InvalidCSR"
	notSignedReason      = "CertificateNotSigned"
	tenantNotFoundReason = "TenantNotFound"
	addressUnknownReason = "APIServerAddressUnknown"
)

// tenantOf returns the effective Tenant of a namespace. This is the oldest one that is not being deleted, or nil if
// there is none. Tenants of consumers that refractctl has admitted do not count.
func tenantOf(ctx context.Context, c client.Reader, namespace string) (*auth.Tenant, error) {
	list := &auth.TenantList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the Tenants in namespace %s, %w", namespace, err)
	}
	var counts *auth.Tenant
	for i := range list.Items {
		tenant := &list.Items[i]
		if tenant.DeletionTimestamp == nil && !tenant.IsOfRefractctl() && (counts == nil || older(tenant, counts)) {
			counts = tenant
		}
	}
	return counts, nil
}

func older(a, b *auth.Tenant) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// tenant returns the Tenant and the public key of the consumer that a tenant namespace belongs to. It refuses a request
// that contains the ID of another consumer.
func (i *Issuer) tenant(ctx context.Context, namespace string, consumer *core.ClusterID) (*auth.Tenant, crypto.PublicKey, error) {
	tenant, err := tenantOf(ctx, i.client, namespace)
	if err == nil && tenant == nil {
		// The Tenant is read without the cache. A consumer that is denied removes its virtual nodes, so an outdated
		// cache must not cause a denial.
		tenant, err = tenantOf(ctx, i.live, namespace)
	}
	if err != nil {
		return nil, nil, err
	}
	if tenant == nil {
		return nil, nil, refuse(tenantNotFoundReason, "namespace %s has no Tenant: run liqoctl peer", namespace)
	}
	if consumer == nil || *consumer != tenant.Spec.ClusterID {
		return nil, nil, refuse(invalidTenantReason, "spec.consumerClusterID is not %q, the consumer that namespace %s belongs to", tenant.Spec.ClusterID, namespace)
	}
	if err := i.entitled(ctx, tenant); err != nil {
		return nil, nil, err
	}
	record, err := tenantcondition.ReadRecord(ctx, i.client, namespace)
	if err != nil {
		return nil, nil, err
	}
	if record.IsMissingIn(tenant) {
		// Another reconciliation will set the Tenant's condition, and this change triggers the next attempt.
		return nil, nil, refuse(invalidTenantReason, "consumer %s was %s when its former Tenant was deleted: an administrator has to run refractctl activate tenant %s", tenant.Spec.ClusterID, record.Condition, tenant.Spec.ClusterID)
	}
	key, err := i.prove(ctx, tenant)
	return tenant, key, err
}

// entitled refuses a Tenant that is not in the tenant namespace of its consumer, or is not the effective Tenant of this
// namespace.
func (i *Issuer) entitled(ctx context.Context, tenant *auth.Tenant) error {
	consumer, err := tenancy.Consumer(ctx, i.client, tenant.Namespace)
	if err != nil {
		return err
	}
	if consumer == "" || string(tenant.Spec.ClusterID) != consumer {
		return refuse(invalidTenantReason, "spec.clusterID is %q, but namespace %s is not the tenant namespace of that cluster: create the Tenant in the namespace with the labels %s=true and %s=%s",
			tenant.Spec.ClusterID, tenant.Namespace, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, tenant.Spec.ClusterID)
	}
	if err := tenant.Spec.ClusterID.Validate(); err != nil {
		return refuse(invalidTenantReason, "spec.clusterID: %s", err)
	}
	counts, err := tenantOf(ctx, i.client, tenant.Namespace)
	if err != nil {
		return err
	}
	if counts == nil || counts.UID != tenant.UID {
		return refuse(invalidTenantReason, "namespace %s already has another Tenant, which is used: delete one of them", tenant.Namespace)
	}
	return nil
}

// prove returns the key of a consumer after the consumer has proved that it holds the key. Each key is proved only
// once: a certificate in the status shows that its key was proved. The returned key is nil if an administrator has
// waived the proof.
func (i *Issuer) prove(ctx context.Context, tenant *auth.Tenant) (crypto.PublicKey, error) {
	if tenant.Spec.Policy() == auth.TolerateNoHandshake {
		return nil, nil //nolint:nilnil // any key
	}
	key, err := parseKey(tenant.Spec.PublicKey)
	if err != nil {
		return nil, refuse(signatureReason, "spec.publicKey: %s", err)
	}
	if given := tenant.Status.AuthParams; given != nil && clientcert.ValidityFor(given.SignedCRT, controlPlane(tenant), key).Known() {
		return key, nil // the proof was already given; the nonce may have changed since then
	}
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: tenant.Namespace, Name: wire.NonceSecret}
	if err := i.live.Get(ctx, name, secret); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Secret %s, %w", name, err)
	}
	nonce := secret.Data[wire.NonceKey]
	if len(nonce) == 0 {
		return nil, refuse(nonceNotFoundReason, "Secret %s has no nonce that the consumer could have signed: run liqoctl peer again", name)
	}
	if !clientcert.Verify(key, nonce, tenant.Spec.Signature) {
		return nil, refuse(signatureReason, "spec.signature is not that of the nonce in Secret %s by spec.publicKey: run liqoctl peer again", name)
	}
	return key, nil
}

// order contains the parameters of a certificate to be issued.
type order struct {
	consumer string
	subject  clientcert.Subject
	request  []byte
	key      crypto.PublicKey // if it is nil, any key is accepted
	proxy    *string
	// present contains the credentials that were issued earlier. They are kept as long as they are usable.
	present *auth.AuthParams
	// renew requests a new certificate when a third of the lifetime of the present certificate has passed.
	renew bool
}

// issue returns the consumer's credentials for this cluster.
func (i *Issuer) issue(ctx context.Context, o order) (*auth.AuthParams, error) {
	key, err := clientcert.Check(o.request, o.subject, o.key)
	if err != nil {
		return nil, refuse(invalidCSRReason, "spec.csr is refused: %s", err)
	}
	url, authority, err := i.server.locate(ctx, i.live)
	if err != nil {
		return nil, err
	}
	params := &auth.AuthParams{APIServer: url, CA: authority, ProxyURL: o.proxy}
	if o.present != nil && i.usable(o.present.SignedCRT, o.subject, key, o.renew) {
		params.SignedCRT = o.present.SignedCRT
		return params, nil
	}
	params.SignedCRT, err = i.sign(ctx, o.consumer, o.request)
	return params, err
}

// sign lets this cluster sign a validated request.
func (i *Issuer) sign(ctx context.Context, consumer string, request []byte) ([]byte, error) {
	signed, err := clientcert.Sign(ctx, i.client, i.live, clientcert.Request{
		PEM: request, GenerateName: "refract-" + consumer + "-", Labels: map[string]string{wire.RemoteClusterIDLabel: consumer},
		Reason: "RefractAuthentication", Message: fmt.Sprintf("Consumer %s is entitled to it", consumer), Timeout: signTimeout,
	})
	if errors.Is(err, clientcert.ErrNotSigned) {
		return nil, &refusal{reason: notSignedReason, again: signRetryInterval, message: err.Error() + ". If it signs none, join this consumer with refractctl peer --credentials=token"}
	}
	return signed, err
}

// usable reports whether an issued certificate can be kept instead of being replaced.
func (i *Issuer) usable(certificate []byte, subject clientcert.Subject, key crypto.PublicKey, renew bool) bool {
	validity := clientcert.ValidityFor(certificate, subject, key)
	if !validity.Known() {
		return false
	}
	left := validity.Until.Sub(i.clock.Now())
	if renew {
		return left > validity.Life()*2/3
	}
	return left > 0
}

// controlPlane returns the certificate subject of the consumer's controllers.
func controlPlane(tenant *auth.Tenant) clientcert.Subject {
	return clientcert.Subject{CommonName: string(tenant.Spec.ClusterID), Organization: wire.ControlPlaneGroup}
}

// virtualKubelet returns the certificate subject of a ResourceSlice's user.
func virtualKubelet(tenant *auth.Tenant, slice string) clientcert.Subject {
	consumer := string(tenant.Spec.ClusterID)
	return clientcert.Subject{CommonName: auth.ResourceSliceUser(slice, consumer), Organization: consumer}
}
