// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/renewal"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/credentials"
)

const (
	renewedReason    = "CredentialsRenewed"
	notRenewedReason = "CredentialsNotRenewed"
	renewAction      = "Renew"
	// maxRenewInterval is the longest pause after a provider has not issued a new certificate. Two thirds of the lifetime
	// are left for further attempts. minRenewInterval is the shortest one, for certificates with a lifetime of minutes.
	maxRenewInterval = time.Hour
	minRenewInterval = 10 * time.Second
)

// renew requests the next certificate of an Identity after a third of the lifetime of the current one, or when a user
// asks for it. It returns the delay until the Identity must be reconciled again.
func (i *Identities) renew(ctx context.Context, identity *auth.Identity, key crypto.Signer, present credentials.Validity) (time.Duration, error) {
	now, name := i.options.Clock.Now(), client.ObjectKeyFromObject(identity)
	if wait := dueIn(present, now); wait > 0 && identity.Annotations[wire.RenewAnnotation] != "true" {
		return max(wait, minRenewInterval), nil
	}
	pause := min(maxRenewInterval, max(present.Life()/20, minRenewInterval))
	if wait := i.triedAt(name).Add(pause).Sub(now); wait > 0 {
		return wait, nil
	}
	// After a renewal, the cache may still have the former certificate.
	if err := fresh.Check(ctx, i.client, i.access.live, identity); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	next, err := i.requestCertificate(ctx, identity, key)
	validity := clientcert.ValidityFor(next, subjectOf(identity, i.options.ClusterID.String()), key.Public())
	why := ""
	switch {
	case err != nil && apifailure.IsAnswered(err):
		why = err.Error()
	case err != nil:
		why = "it does not respond; the log of the controller manager has the error"
	case !validity.Known():
		why = "the certificate that it has issued is not the requested one"
	case bytes.Equal(next, identity.Spec.AuthParams.SignedCRT) || validity.From.Before(present.From):
		// Liqo answers a Renew with the certificate that it has stored.
		why = "it has issued the same certificate again"
	}
	if why != "" {
		i.recordRenewal(name, now)
		i.reportNotRenewed(identity, present, now, why)
		if err != nil {
			err = report.Later(fmt.Errorf("renewing the certificate of Identity %s, %w", name, err), pause)
		}
		return pause, err
	}
	changed := identity.DeepCopy()
	changed.Spec.AuthParams.SignedCRT = next
	delete(changed.Annotations, wire.RenewAnnotation)
	if err := i.client.Patch(ctx, changed, client.MergeFromWithOptions(identity, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
		return 0, fmt.Errorf("storing the new certificate in Identity %s, %w", name, err)
	}
	i.recordRenewal(name, time.Time{})
	i.report.Clear(name)
	i.report.Tell(identity, nil, renewedReason, renewAction, fmt.Sprintf("Renewed the certificate for provider %s, valid until %s", identity.Spec.ClusterID, validity.Until.UTC().Format(time.RFC3339)))
	return max(dueIn(validity, now), minRenewInterval), nil
}

// dueIn returns the time until a third of the lifetime of a certificate has passed.
func dueIn(validity credentials.Validity, now time.Time) time.Duration {
	return validity.From.Add(validity.Life() / 3).Sub(now)
}

// triedAt returns the time of the last failed renewal of an Identity, or the zero time.
func (i *Identities) triedAt(name types.NamespacedName) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tried[name]
}

// recordRenewal records a failed renewal of an Identity. The zero time means that there is none.
func (i *Identities) recordRenewal(name types.NamespacedName, failed time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if failed.IsZero() {
		delete(i.tried, name)
		return
	}
	i.tried[name] = failed
}

// reportNotRenewed reports that the certificate of an Identity was not renewed, if less than a third of its lifetime is
// left, or a user has asked for the renewal.
func (i *Identities) reportNotRenewed(identity *auth.Identity, present credentials.Validity, now time.Time, why string) {
	left := present.Until.Sub(now)
	const remedy = "If this continues, peer the clusters again (liqoctl peer)"
	switch {
	case left <= 0:
		i.report.Warn(identity, expiredReason, renewAction, fmt.Sprintf("the certificate for provider %s has expired at %s, and the provider has not renewed it: %s. Peer the clusters again (liqoctl peer)",
			identity.Spec.ClusterID, present.Until.UTC().Format(time.RFC3339), why))
	case left < present.Life()/3 || identity.Annotations[wire.RenewAnnotation] == "true":
		i.report.Warn(identity, notRenewedReason, renewAction, fmt.Sprintf("the certificate for provider %s is valid until %s, and the provider has not renewed it: %s. %s",
			identity.Spec.ClusterID, present.Until.UTC().Format(time.RFC3339), why, remedy))
	}
}

// requestCertificate requests a certificate for the key and the subject of an Identity from its provider.
func (i *Identities) requestCertificate(ctx context.Context, identity *auth.Identity, key crypto.Signer) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, renewal.Timeout)
	defer cancel()
	provider := identity.Spec.ClusterID.String()
	of, err := i.access.controlPlane(ctx, identity.Namespace, provider)
	if err != nil {
		return nil, err
	}
	if of == nil {
		return nil, report.Errorf(report.Missing, "Identity %s/%s does not exist, or cannot be used", identity.Namespace, wire.ControlPlaneIdentity(provider))
	}
	opened, err := i.remotes.Open(client.ObjectKeyFromObject(identity), of.access)
	if err != nil {
		return nil, report.Errorf(report.Invalid, "connecting to provider %s, %w", provider, err)
	}
	csr, err := clientcert.New(subjectOf(identity, i.options.ClusterID.String()), key)
	if err != nil {
		return nil, err
	}
	public, err := clientcert.EncodeKey(key.Public())
	if err != nil {
		return nil, err
	}
	consumer := i.options.ClusterID
	renew := &auth.Renew{
		ObjectMeta: metav1.ObjectMeta{Namespace: opened.Namespace, Name: identity.Name, Labels: copyLabels(consumer.String())},
		Spec:       auth.RenewSpec{ConsumerClusterID: consumer, PublicKey: public, CSR: csr, IdentityType: identity.Spec.Type},
	}
	if identity.Spec.Type == auth.ResourceSliceIdentityType {
		renew.Spec.ResourceSliceRef = &corev1.LocalObjectReference{Name: sliceOf(identity)}
	}
	return renewal.Request(ctx, opened, renew)
}

// copyLabels returns the labels of the objects of a consumer in its tenant namespace on a provider.
func copyLabels(consumer string) map[string]string {
	return map[string]string{wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: consumer, wire.RemoteClusterIDLabel: consumer}
}
