// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto"
	"encoding/base64"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/rbac"
)

// A consumer that refractctl peer has joined with a certificate has no Tenant. The command records the key of the
// issued certificate on the tenant namespace, which the consumer cannot write. The holder of a recorded key may have
// the next certificate signed for another key, which is then recorded, too.

// Event reasons of refused renewals.
const (
	withdrawnReason  = "AccessWithdrawn"
	unknownKeyReason = "UnknownKey"
	proofReason      = "ProofVerificationFailed"
)

// ofConsumer reports whether a Renew belongs to a consumer that refractctl peer has joined.
func ofConsumer(renew client.Object) bool { return renew.GetName() == wire.ConsumerRenew }

// renewConsumer signs the next certificate for a consumer whose first certificate was issued by refractctl peer.
func (c *Renewals) renewConsumer(ctx context.Context, renew *auth.Renew) error {
	namespace, consumer, err := c.entitledConsumer(ctx, renew)
	if err != nil {
		return err
	}
	recorded := clientcert.ParseKeys(namespace.Annotations[wire.ConsumerKeysAnnotation])
	present, err := proved(renew, recorded)
	if err != nil {
		return err
	}
	subject := clientcert.Consumer(consumer)
	next, err := clientcert.Check(renew.Spec.CSR, subject, nil)
	if err != nil {
		return refuse(invalidCSRReason, "spec.csr is refused: %s", err)
	}
	if given := renew.Status.AuthParams; given != nil && clientcert.ValidityFor(given.SignedCRT, subject, next).Known() {
		return nil
	}
	// The key is recorded before the certificate is issued, because a certificate cannot be renewed unless its key is
	// recorded.
	if err := c.record(ctx, namespace, recorded, present, next); err != nil {
		return err
	}
	signed, err := c.issuer.sign(ctx, consumer, renew.Spec.CSR)
	if err != nil {
		return err
	}
	return c.answer(ctx, renew, subject, auth.RenewStatus{AuthParams: &auth.AuthParams{SignedCRT: signed}})
}

// entitledConsumer returns the tenant namespace of a Renew and its consumer, if the consumer still has access. All
// reads bypass the cache, because access may have been withdrawn a moment ago.
func (c *Renewals) entitledConsumer(ctx context.Context, renew *auth.Renew) (*corev1.Namespace, string, error) {
	namespace := &corev1.Namespace{}
	if err := c.issuer.live.Get(ctx, client.ObjectKey{Name: renew.Namespace}, namespace); err != nil {
		return nil, "", fmt.Errorf("getting Namespace %s, %w", renew.Namespace, err)
	}
	consumer := namespace.Labels[wire.RemoteClusterIDLabel]
	switch {
	case namespace.Labels[wire.TenantNamespaceLabel] != "true" || consumer == "" || namespace.Name != wire.TenantNamespace(consumer):
		return nil, "", refuse(invalidRenewReason, "namespace %s is not the tenant namespace of a consumer", namespace.Name)
	case namespace.DeletionTimestamp != nil:
		return nil, "", refuse(withdrawnReason, "namespace %s is being deleted: consumer %s is no longer peered", namespace.Name, consumer)
	case renew.Spec.ConsumerClusterID != core.ClusterID(consumer):
		return nil, "", refuse(invalidRenewReason, "spec.consumerClusterID is %q, and namespace %s is the tenant namespace of %q", renew.Spec.ConsumerClusterID, namespace.Name, consumer)
	case renew.Spec.IdentityType != auth.ControlPlaneIdentityType:
		return nil, "", refuse(invalidRenewReason, "spec.identityType is %q: use %s", renew.Spec.IdentityType, auth.ControlPlaneIdentityType)
	case namespace.Annotations[wire.ConsumerKeysAnnotation] == "":
		return nil, "", refuse(withdrawnReason, "namespace %s has no annotation %s with the key of an issued certificate: run refractctl peer --credentials=certificate again",
			namespace.Name, wire.ConsumerKeysAnnotation)
	}
	access := rbac.Peer(c.options.RolePrefix, consumer).TenantNamespace(namespace.Name)
	binding := &rbacv1.RoleBinding{}
	err := c.issuer.live.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: access.GetName()}, binding)
	if client.IgnoreNotFound(err) != nil {
		return nil, "", fmt.Errorf("getting RoleBinding %s/%s, %w", namespace.Name, access.GetName(), err)
	}
	if apierrors.IsNotFound(err) || !slices.Contains(binding.Subjects, rbac.Group(consumer)) {
		return nil, "", refuse(withdrawnReason, "RoleBinding %s does not grant group %s access to namespace %s: run refractctl peer again to restore it", access.GetName(), consumer, namespace.Name)
	}
	return namespace, consumer, c.active(ctx, namespace.Name, consumer)
}

// active refuses a consumer if one of its Tenants is being deleted or drained. A cordon is also a reason to refuse it,
// unless the Tenant belongs to refractctl.
func (c *Renewals) active(ctx context.Context, namespace, consumer string) error {
	tenants := &auth.TenantList{}
	if err := c.issuer.live.List(ctx, tenants, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the Tenants in namespace %s, %w", namespace, err)
	}
	for i := range tenants.Items {
		switch tenant := &tenants.Items[i]; {
		case tenant.DeletionTimestamp != nil:
			return refuse(withdrawnReason, "Tenant %s of consumer %s is being deleted", tenant.Name, consumer)
		// A cordon only affects pods. Certificates are still renewed, because the peering must continue after the
		// cordon.
		case tenant.IsOfRefractctl() && tenant.Spec.TenantCondition != auth.TenantDrained:
		case tenant.Spec.TenantCondition == auth.TenantCordoned || tenant.Spec.TenantCondition == auth.TenantDrained:
			return refuse(withdrawnReason, "Tenant %s of consumer %s is %s: set spec.tenantCondition to %s to renew its certificate", tenant.Name, consumer, tenant.Spec.TenantCondition, auth.TenantActive)
		}
	}
	return nil
}

// proved returns the public key that verifies the request's signature. Only recorded keys are accepted.
func proved(renew *auth.Renew, recorded clientcert.Keys) (crypto.PublicKey, error) {
	key, err := parseKey(renew.Spec.PublicKey)
	if err != nil {
		return nil, refuse(unknownKeyReason, "spec.publicKey: %s", err)
	}
	if !recorded.Has(key) {
		return nil, refuse(unknownKeyReason, "spec.publicKey is not one of the recorded keys of namespace %s (%s): run refractctl peer --credentials=certificate again", renew.Namespace, wire.ConsumerKeysAnnotation)
	}
	proof, err := base64.StdEncoding.DecodeString(renew.Annotations[wire.RenewalProofAnnotation])
	if err != nil || !clientcert.Proves(renew.Spec.CSR, proof, key) {
		return nil, refuse(proofReason, "annotation %s is not the signature of spec.csr by spec.publicKey: only the holder of the present certificate may ask for the next one", wire.RenewalProofAnnotation)
	}
	return key, nil
}

// record records the key of the certificate that will be signed next, unless the record has changed in the meantime.
func (c *Renewals) record(ctx context.Context, namespace *corev1.Namespace, recorded clientcert.Keys, present, next crypto.PublicKey) error {
	keys, err := recorded.After(present, next)
	if err != nil {
		return err
	}
	if slices.Equal(keys, recorded) {
		return nil
	}
	changed := namespace.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, wire.ConsumerKeysAnnotation, keys.String())
	if err := c.client.Patch(ctx, changed, client.MergeFromWithOptions(namespace, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("recording the next key of the consumer on Namespace %s, %w", namespace.Name, err)
	}
	return nil
}

// answer writes the status of a Renew. The status also contains the reason of a refusal, because the consumer cannot
// read Events in this cluster.
func (c *Renewals) answer(ctx context.Context, renew *auth.Renew, subject clientcert.Subject, status auth.RenewStatus) error {
	if equality.Semantic.DeepEqual(renew.Status, status) {
		return nil
	}
	desired := renew.DeepCopy()
	desired.Status = status
	if err := c.client.Status().Patch(ctx, desired, client.MergeFromWithOptions(renew, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the status of Renew %s, %w", client.ObjectKeyFromObject(renew), err)
	}
	if status.AuthParams != nil {
		c.tellRenewed(renew, subject, status.AuthParams.SignedCRT)
	}
	return nil
}
