// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/negotiation"
)

const (
	wrongCertificateReason = "InvalidCertificate"
	nodeExistsReason       = "VirtualNodeExists"
	nodeCreatedReason      = "VirtualNodeCreated"
	createNodeAction       = "CreateVirtualNode"
)

// clockGrace is the most by which the clock of a provider may be ahead.
const clockGrace = 5 * time.Minute

// refusal is an answer of a provider that cannot be applied, for an Event about the slice.
type refusal struct{ reason, action, message string }

func (r *refusal) Error() string { return r.message }

func refuse(reason, action, format string, arguments ...any) error {
	return &refusal{reason, action, fmt.Sprintf(format, arguments...)}
}

// applyAnswer creates the Identity of a slice that the provider has accepted, and its VirtualNode if one is requested. of
// is the access of this cluster to the provider. It returns a *refusal if the provider has denied the slice, or if the
// answer cannot be used.
func (s *ResourceSlices) applyAnswer(ctx context.Context, slice *auth.ResourceSlice, of *controlPlane) error {
	for _, condition := range slice.Status.Conditions {
		if condition.Status == auth.ResourceSliceDenied {
			return refuse(deniedReason, sendAction, "provider %s denied this ResourceSlice (%s): %s", of.access.Provider, condition.Type, condition.Message)
		}
	}
	if slice.Status.Decision(auth.AuthenticationCondition) != auth.ResourceSliceAccepted || slice.Status.AuthParams == nil {
		return nil
	}
	identity, err := s.ensureIdentity(ctx, slice, of)
	if err != nil {
		return err
	}
	requested := slice.Annotations[wire.CreateVirtualNodeAnnotation]
	if requested == "" || requested == "false" || slice.Status.Decision(auth.ResourcesCondition) != auth.ResourceSliceAccepted || identity.Status.KubeconfigSecretRef == nil {
		return nil
	}
	return s.ensureNode(ctx, slice, identity.Status.KubeconfigSecretRef.Name)
}

// checkCertificate returns the validity of the certificate that the provider has issued for a slice, or a *refusal if it
// cannot be used.
func (s *ResourceSlices) checkCertificate(params *auth.AuthParams, subject clientcert.Subject, key crypto.Signer) (credentials.Validity, error) {
	issued := clientcert.ValidityFor(params.SignedCRT, subject, key.Public())
	switch {
	case params.AwsConfig != nil:
		return issued, refuse(wrongCertificateReason, sendAction, "the provider issues AWS IAM users instead of certificates, which is not supported: install Refract there, and join the clusters with refractctl peer --credentials=token")
	case !issued.Known():
		return issued, refuse(wrongCertificateReason, sendAction, "status.authParams.signedCRT is not a certificate for the key of this cluster and the subject %s: it is not used, and no virtual node is created", subject)
	case issued.From.After(s.options.Clock.Now().Add(clockGrace)):
		// It would keep later certificates from being used.
		return issued, refuse(wrongCertificateReason, sendAction, "status.authParams.signedCRT is not valid before %s: it is not used. Compare the clocks of the clusters", issued.From.UTC().Format(time.RFC3339))
	}
	return issued, nil
}

// ensureIdentity returns the Identity of a slice. It creates the Identity, or replaces its certificate by a newer one of
// the provider. The provider's address is copied from the Identity for its control plane, so that a provider cannot send
// virtual kubelets to other servers.
func (s *ResourceSlices) ensureIdentity(ctx context.Context, slice *auth.ResourceSlice, of *controlPlane) (*auth.Identity, error) {
	subject := sliceSubject(slice.Name, s.options.ClusterID.String())
	issued, err := s.checkCertificate(slice.Status.AuthParams, subject, of.key)
	if err != nil {
		return nil, err
	}
	name := client.ObjectKey{Namespace: slice.Namespace, Name: sliceNamePrefix + slice.Name}
	present := &auth.Identity{}
	err = s.client.Get(ctx, name, present)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Identity %s, %w", name, err)
	}
	desired := present.DeepCopy()
	if apierrors.IsNotFound(err) {
		desired = &auth.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(slice, auth.GroupVersion.WithKind(auth.ResourceSliceKind))}}}
	}
	if !metav1.IsControlledBy(desired, slice) {
		return nil, refuse(wrongCertificateReason, sendAction, "Identity %s exists and does not belong to this ResourceSlice; it was left unchanged: delete it, or use another name for the ResourceSlice", name.Name)
	}
	if desired.Labels == nil {
		desired.Labels = map[string]string{}
	}
	maps.Copy(desired.Labels, map[string]string{wire.RemoteClusterIDLabel: of.identity.Spec.ClusterID.String(), wire.ResourceSliceNameLabel: slice.Name})
	desired.Spec.ClusterID, desired.Spec.Type = of.identity.Spec.ClusterID, auth.ResourceSliceIdentityType
	desired.Spec.AuthParams.APIServer, desired.Spec.AuthParams.CA = of.identity.Spec.AuthParams.APIServer, of.identity.Spec.AuthParams.CA
	// A renewed certificate is newer than the one in the slice.
	if used := clientcert.ValidityFor(desired.Spec.AuthParams.SignedCRT, subject, of.key.Public()); !used.Known() || issued.From.After(used.From) {
		desired.Spec.AuthParams.SignedCRT = slice.Status.AuthParams.SignedCRT
	}
	switch {
	case desired.UID == "":
		err = s.client.Create(ctx, desired, client.FieldOwner(fieldManager))
	case equality.Semantic.DeepEqual(present, desired):
		return present, nil
	default:
		err = s.client.Patch(ctx, desired, client.MergeFromWithOptions(present, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
	}
	if err != nil {
		return nil, fmt.Errorf("writing Identity %s, %w", name, err)
	}
	return desired, nil
}

// ensureNode creates the VirtualNode of a slice. Package negotiation keeps its fields up to date with the slice.
func (s *ResourceSlices) ensureNode(ctx context.Context, slice *auth.ResourceSlice, secret string) error {
	key := client.ObjectKeyFromObject(slice)
	present := &offloading.VirtualNode{}
	err := s.client.Get(ctx, key, present)
	if err == nil {
		if !metav1.IsControlledBy(present, slice) {
			return refuse(nodeExistsReason, createNodeAction, "VirtualNode %s exists and does not belong to this ResourceSlice; it was left unchanged: use another name for the ResourceSlice", key.Name)
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("getting VirtualNode %s, %w", key, err)
	}
	vn := s.newNode(slice, secret)
	if err := s.client.Create(ctx, vn, client.FieldOwner(negotiation.Manager)); err != nil {
		return fmt.Errorf("creating VirtualNode %s, %w", key, err)
	}
	s.report.Tell(slice, vn, nodeCreatedReason, createNodeAction, "Created VirtualNode "+vn.Name)
	return nil
}

// newNode returns the VirtualNode of a slice.
func (s *ResourceSlices) newNode(slice *auth.ResourceSlice, secret string) *offloading.VirtualNode {
	provider := slice.Labels[wire.RemoteIDLabel]
	requested := negotiation.RequestedBy(slice)
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: slice.Namespace, Name: slice.Name,
			Labels:          map[string]string{wire.RemoteClusterIDLabel: provider, wire.ResourceSliceNameLabel: slice.Name},
			Annotations:     negotiation.Annotations(slice.Spec.Resources),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(slice, auth.GroupVersion.WithKind(auth.ResourceSliceKind))},
		},
		Spec: offloading.VirtualNodeSpec{
			ClusterID: core.ClusterID(provider), CreateNode: ptr.To(true),
			KubeconfigSecretRef: &corev1.LocalObjectReference{Name: secret},
		},
	}
	if accepted, ok := slice.Annotations[wire.AcceptedLabelsAnnotation]; ok {
		vn.Annotations[wire.AcceptedLabelsAnnotation] = accepted
	}
	offer, _ := negotiation.Check(&slice.Status, requested)
	accepted, _ := negotiation.AcceptedLabels(vn)
	slices.Concat(s.options.AcceptedLabels, accepted).Restrict(offer.Labels, nil)
	vn.Spec.ResourceQuota.Hard = offer.Resources
	vn.Spec.StorageClasses, vn.Spec.IngressClasses, vn.Spec.LoadBalancerClasses, vn.Spec.Labels = offer.StorageClasses, offer.IngressClasses, offer.LoadBalancerClasses, offer.Labels
	if len(slice.Status.NodeSelector) > 0 {
		vn.Spec.OffloadingPatch = &offloading.OffloadingPatch{NodeSelector: slice.Status.NodeSelector}
	}
	return vn
}
