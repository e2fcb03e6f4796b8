// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// A provider that runs Liqo grants access and resources for Tenants, ResourceSlices and Renews. The controllers of
// consumers that run Liqo create these objects. This program creates them directly on the provider, with the
// permissions of the provider's administrator.

const (
	// KeysSecret is the Secret in the provider's tenant namespace that contains the consumer's signing key. It has
	// the same name and keys as the Secret in Liqo's own namespace.
	KeysSecret = wire.ClusterKeySecret
	// issuedSecret is the Secret where Liqo stores the certificate that it has signed for the controllers of a
	// consumer. For the certificate of a ResourceSlice, a dash and the name of the ResourceSlice are appended.
	issuedSecret = "liqo-remote-certificate"
)

// liqoRights are the permissions that the user needs on a provider that runs Liqo.
var liqoRights = []cluster.Right{
	cluster.RightToManage("", "namespaces"), cluster.RightToManage("", "secrets"), cluster.RightToManage(auth.GroupVersion.Group, "tenants"),
	cluster.RightToManage(auth.GroupVersion.Group, "resourceslices"), cluster.RightToManage(auth.GroupVersion.Group, "renews"),
}

// liqoIssuer is an Issuer for a provider that runs Liqo. It makes the provider admit the consumer and issue the
// credentials of the consumer's controllers.
type liqoIssuer struct{ *joining }

// subject returns the subject of the certificate of the consumer's controllers.
func (i liqoIssuer) subject() clientcert.Subject {
	return clientcert.Subject{CommonName: i.consumer.ID(), Organization: wire.ControlPlaneGroup}
}

// IsReusable reports whether a certificate was issued for the consumer.
func (i liqoIssuer) IsReusable(_ context.Context, config *rest.Config) (bool, error) {
	return clientcert.ValidityFor(config.CertData, i.subject(), nil).Known(), nil
}

// Issue returns the certificate of the consumer's controllers and its private key.
func (i liqoIssuer) Issue(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	key, public, err := i.ensureKey(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	nonce, err := i.awaitNonce(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	tenant := i.liqoTenant()
	tenant.Spec.PublicKey, tenant.Spec.Signature = public, ed25519.Sign(key, nonce)
	if tenant.Spec.CSR, err = clientcert.New(i.subject(), key); err != nil {
		return nil, time.Time{}, err
	}
	if err := i.atProvider.Apply(ctx, tenant); err != nil {
		return nil, time.Time{}, err
	}
	params, err := i.awaitAdmission(ctx, tenant)
	if err != nil {
		return nil, time.Time{}, err
	}
	return i.credentialsFrom(ctx, key, i.subject(), params, auth.RenewSpec{IdentityType: auth.ControlPlaneIdentityType, CSR: tenant.Spec.CSR})
}

// ensureKey returns the key of the consumer. It creates the key if it does not exist.
func (j *joining) ensureKey(ctx context.Context) (ed25519.PrivateKey, []byte, error) {
	namespace := wire.TenantNamespace(j.provider.ID())
	secret := &corev1.Secret{}
	err := j.consumer.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: KeysSecret}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("cluster %s: getting Secret %s/%s, %w", j.consumer.Name, namespace, KeysSecret, err)
	}
	if err == nil {
		parsed, _ := clientcert.ParsePrivateKey(secret.Data[wire.PrivateKeyField])
		if key, ok := parsed.(ed25519.PrivateKey); ok {
			return key, secret.Data[wire.PublicKeyField], nil
		}
		return nil, nil, fmt.Errorf("cluster %s: Secret %s/%s has no Ed25519 key in %s: delete it, and run refractctl unpeer and peer", j.consumer.Name, namespace, KeysSecret, wire.PrivateKeyField)
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key, %w", err)
	}
	publicPEM, err := clientcert.EncodeKey(public)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := clientcert.EncodePrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, publicPEM, j.atConsumer.Apply(ctx, &corev1.Secret{ObjectMeta: cluster.Meta(namespace, KeysSecret, map[string]string{wire.RemoteClusterIDLabel: j.provider.ID()}),
		Data: map[string][]byte{wire.PrivateKeyField: keyPEM, wire.PublicKeyField: publicPEM}})
}

// awaitNonce waits until the provider has created a nonce for the consumer, and returns the nonce.
func (j *joining) awaitNonce(ctx context.Context) (nonce []byte, err error) {
	secret := j.nonceSecret()
	if err := j.atProvider.Apply(ctx, secret); err != nil {
		return nil, err
	}
	err = j.Await(ctx, "nonce of "+j.provider.ID(), func(ctx context.Context) (string, error) {
		if err := j.provider.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return "", fmt.Errorf("cluster %s: getting Secret %s, %w", j.provider.Name, client.ObjectKeyFromObject(secret), err)
		}
		if nonce = secret.Data[wire.NonceKey]; len(nonce) == 0 {
			return "Liqo has generated none yet in Secret " + client.ObjectKeyFromObject(secret).String(), nil
		}
		return "", nil
	})
	return nonce, err
}

// awaitAdmission waits until the provider has issued credentials for a Tenant, and returns the credentials.
func (j *joining) awaitAdmission(ctx context.Context, tenant *auth.Tenant) (params *auth.AuthParams, err error) {
	err = j.Await(ctx, "Tenant "+tenant.Name+" of "+j.provider.ID(), func(ctx context.Context) (string, error) {
		if err := j.provider.Client.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil {
			return "", fmt.Errorf("cluster %s: getting Tenant %s, %w", j.provider.Name, client.ObjectKeyFromObject(tenant), err)
		}
		if params = tenant.Status.AuthParams; params == nil {
			return "Liqo has not admitted it yet, its Events say why: kubectl describe tenant", nil
		}
		return "", nil
	})
	return params, err
}

func (p *pair) nonceSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: cluster.Meta(p.tenant.Namespace(), wire.NonceSecret, map[string]string{wire.NonceLabel: "true", wire.RemoteClusterIDLabel: p.consumer.ID()})}
}

func (p *pair) liqoTenant() *auth.Tenant {
	id := p.consumer.ID()
	return &auth.Tenant{ObjectMeta: cluster.Meta(p.tenant.Namespace(), id, map[string]string{wire.RemoteClusterIDLabel: id}), Spec: auth.TenantSpec{ClusterID: core.ClusterID(id)}}
}

// credentialsFrom returns the credentials with an issued certificate. If less than a third of the certificate's
// lifetime is left, it renews the certificate first.
func (j *joining) credentialsFrom(ctx context.Context, key ed25519.PrivateKey, subject clientcert.Subject, params *auth.AuthParams, renewal auth.RenewSpec) (*clientcmdapi.AuthInfo, time.Time, error) {
	if params.AwsConfig != nil {
		return nil, time.Time{}, fmt.Errorf("cluster %s issues AWS IAM users instead of certificates: install Refract there, and join it with tokens", j.provider.Name)
	}
	validity := clientcert.ValidityFor(params.SignedCRT, subject, key.Public())
	if validity.Known() && time.Until(validity.Until) < validity.Life()/3 {
		renewed, err := j.renewAtLiqo(ctx, renewal)
		if err != nil {
			return nil, time.Time{}, err
		}
		params, validity = renewed, clientcert.ValidityFor(renewed.SignedCRT, subject, key.Public())
	}
	if left := time.Until(validity.Until); validity.Known() && left <= 0 {
		return nil, time.Time{}, fmt.Errorf("cluster %s issued a certificate that expired at %s: check its clock, and run the command again", j.provider.Name, validity.Until.UTC().Format(time.RFC3339))
	}
	if !validity.Known() {
		return nil, time.Time{}, fmt.Errorf("cluster %s issued a certificate that is not the one that was requested (%s): run refractctl unpeer, and join the clusters again", j.provider.Name, subject)
	}
	keyPEM, err := clientcert.EncodePrivateKey(key)
	return &clientcmdapi.AuthInfo{ClientCertificateData: params.SignedCRT, ClientKeyData: keyPEM}, validity.Until, err
}

// renewAtLiqo requests a new certificate from a provider that runs Liqo. As long as a Secret contains an earlier
// certificate, Liqo (v1.1.2) responds to a Renew with this certificate. Therefore, the Secret is deleted first.
// Consumers cannot delete it, and must not be able to: without the Secret, Liqo signs a certificate for any user of the
// cluster that is named in the Renew.
func (j *joining) renewAtLiqo(ctx context.Context, spec auth.RenewSpec) (params *auth.AuthParams, err error) {
	spec.ConsumerClusterID = core.ClusterID(j.consumer.ID())
	name, issued := wire.ControlPlaneIdentity(j.provider.ID()), issuedSecret
	if spec.ResourceSliceRef != nil {
		name, issued = "resourceslice-"+spec.ResourceSliceRef.Name, issuedSecret+"-"+spec.ResourceSliceRef.Name
	}
	namespace := j.tenant.Namespace()
	renew := &auth.Renew{ObjectMeta: cluster.Meta(namespace, name, j.replicatedLabels()), Spec: spec}
	if err := j.atProvider.Remove(ctx, renew); err != nil { // an earlier attempt may have left the Renew
		return nil, err
	}
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: issued}}
	if err := client.IgnoreNotFound(j.provider.Client.Delete(ctx, kept)); err != nil {
		return nil, fmt.Errorf("cluster %s: deleting Secret %s, %w", j.provider.Name, client.ObjectKeyFromObject(kept), err)
	}
	if err := j.atProvider.Apply(ctx, renew); err != nil {
		return nil, err
	}
	err = j.Await(ctx, "Renew "+name+" of "+j.provider.ID(), func(ctx context.Context) (string, error) {
		if err := j.provider.Client.Get(ctx, client.ObjectKeyFromObject(renew), renew); err != nil {
			return "", fmt.Errorf("cluster %s: getting Renew %s, %w", j.provider.Name, client.ObjectKeyFromObject(renew), err)
		}
		if params = renew.Status.AuthParams; params == nil {
			return "Liqo has not renewed the certificate yet", nil
		}
		return "", nil
	})
	return params, errors.Join(err, j.atProvider.Remove(ctx, renew))
}

// replicatedLabels returns the labels that Liqo sets on objects that it copies from the consumer.
func (p *pair) replicatedLabels() map[string]string {
	return map[string]string{wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: p.consumer.ID(), wire.RemoteClusterIDLabel: p.consumer.ID()}
}

// liqoSlice returns the ResourceSlice that requests a virtual node's resources from a provider that runs Liqo.
func (p *pair) liqoSlice(name string, resources corev1.ResourceList) *auth.ResourceSlice {
	return &auth.ResourceSlice{ObjectMeta: cluster.Meta(p.tenant.Namespace(), name, p.replicatedLabels()), Spec: auth.ResourceSliceSpec{
		ConsumerClusterID: ptr.To(core.ClusterID(p.consumer.ID())), ProviderClusterID: ptr.To(core.ClusterID(p.provider.ID())), Class: auth.DefaultResourceSliceClass, Resources: resources,
	}}
}

// shareLiqoSlice requests resources for the virtual node from a provider that runs Liqo, and stores the kubeconfig
// for the virtual kubelet.
func (j *joining) shareLiqoSlice(ctx context.Context, t *terms) (*offeredNode, error) {
	key, _, err := j.ensureKey(ctx)
	if err != nil {
		return nil, err
	}
	subject := clientcert.Subject{CommonName: auth.ResourceSliceUser(t.name, j.consumer.ID()), Organization: j.consumer.ID()}
	slice := j.liqoSlice(t.name, t.resources)
	if slice.Spec.CSR, err = clientcert.New(subject, key); err != nil {
		return nil, err
	}
	if err := j.atProvider.Apply(ctx, slice); err != nil {
		return nil, err
	}
	if err := j.awaitLiqoSlice(ctx, slice); err != nil {
		return nil, err
	}
	user, expires, err := j.credentialsFrom(ctx, key, subject, slice.Status.AuthParams, auth.RenewSpec{
		IdentityType: auth.ResourceSliceIdentityType, CSR: slice.Spec.CSR, ResourceSliceRef: &corev1.LocalObjectReference{Name: slice.Name},
	})
	if err != nil {
		return nil, err
	}
	j.Report("%s: the certificate of virtual node %s expires on %s, run the command again before", j.consumer.ID(), t.name, expires.UTC().Format(time.DateOnly))
	kubeconfig, err := t.address.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	secret := j.accessSecret(t.address.ChosenURL, kubeconfig, false)
	secret.Name = j.objectsOfNode(t.name).secretName
	return &offeredNode{nodeTerms: j.acceptLiqoOffer(t.nodeTerms, &slice.Status), kubeletSecret: secret}, j.atConsumer.Apply(ctx, secret)
}

// awaitLiqoSlice waits until the provider has granted a ResourceSlice. The provider may grant different resources
// than requested.
func (j *joining) awaitLiqoSlice(ctx context.Context, slice *auth.ResourceSlice) error {
	requested, begun := slice.Spec.Resources, time.Now()
	if err := j.Await(ctx, "ResourceSlice "+slice.Name+" of "+j.provider.ID(), func(ctx context.Context) (string, error) {
		missing, err := j.describeMissing(ctx, slice)
		if missing == "" && err == nil && !isGranted(requested, slice.Status.Resources) && time.Since(begun) < offerTimeout {
			return "the provider has not granted the requested resources yet", nil
		}
		return missing, err
	}); err != nil {
		return err
	}
	if !isGranted(requested, slice.Status.Resources) {
		j.Report("%s: warning: granted other resources than requested: %s", j.provider.ID(), slice.Status.Condition(auth.ResourcesCondition).Message)
	}
	return nil
}

// isGranted reports whether exactly the requested quantities were granted.
func isGranted(asked, granted corev1.ResourceList) bool {
	for name, quantity := range asked {
		if is, ok := granted[name]; !ok || is.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

// describeMissing returns a description of what is missing in the provider's response. It fails if the provider denies
// the request.
func (j *joining) describeMissing(ctx context.Context, slice *auth.ResourceSlice) (missing string, err error) {
	if err := j.provider.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
		return "", fmt.Errorf("cluster %s: getting ResourceSlice %s, %w", j.provider.Name, client.ObjectKeyFromObject(slice), err)
	}
	for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
		switch condition := slice.Status.Condition(what); {
		case condition == nil:
			return fmt.Sprintf("%s is not decided yet", what), nil
		case condition.Status == auth.ResourceSliceDenied:
			return "", fmt.Errorf("cluster %s denies ResourceSlice %s (%s): %s", j.provider.Name, slice.Name, what, condition.Message)
		}
	}
	if slice.Status.AuthParams == nil {
		return "it has no credentials yet", nil
	}
	return "", nil
}

// acceptLiqoOffer returns the settings of the virtual node. The resources are those that the provider has granted.
// Classes, labels and selector that the user has not set are taken from the provider's status.
func (p *pair) acceptLiqoOffer(t nodeTerms, status *auth.ResourceSliceStatus) nodeTerms {
	if len(status.Resources) > 0 {
		t.resources = status.Resources
	}
	if len(t.node.StorageClasses) == 0 {
		t.node.StorageClasses = status.StorageClasses
	}
	if len(t.node.IngressClasses) == 0 {
		t.node.IngressClasses = status.IngressClasses
	}
	if len(t.node.LoadBalancerClasses) == 0 {
		t.node.LoadBalancerClasses = status.LoadBalancerClasses
	}
	if len(t.node.Labels) == 0 {
		labels := harmlessLabels(status.NodeLabels)
		if refused := t.accepted.Restrict(labels, t.presentLabels); len(refused) > 0 {
			p.Report("%s: warning: %s", p.consumer.ID(), negotiation.DescribeRefused(refused, p.provider.ID()))
		}
		t.node.Labels = labels
	}
	if len(t.node.NodeSelector) == 0 {
		t.node.NodeSelector = status.NodeSelector
	}
	return t
}

// harmlessLabels returns the labels without the reserved ones, which a provider must not set.
func harmlessLabels(labels map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range labels {
		if !negotiation.IsReserved(key) {
			kept[key] = value
		}
	}
	return kept
}

// liqoObjects returns the objects for the consumer on a provider that runs Liqo, except the tenant namespace.
func (p *pair) liqoObjects(ctx context.Context) ([]client.Object, error) {
	objects := []client.Object{p.nonceSecret(), p.liqoTenant()}
	slices := &auth.ResourceSliceList{}
	if err := p.provider.Client.List(ctx, slices, client.InNamespace(p.tenant.Namespace())); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cluster %s: listing ResourceSlices, %w", p.provider.Name, err)
	}
	for i := range slices.Items {
		objects = append(objects, &slices.Items[i])
	}
	return objects, nil
}

// isJoinedAsLiqo reports whether the provider was joined as a provider that runs Liqo. The provider does not have to
// be accessible.
func (p *pair) isJoinedAsLiqo(ctx context.Context) (bool, error) {
	key := client.ObjectKey{Namespace: wire.TenantNamespace(p.provider.ID()), Name: KeysSecret}
	err := p.consumer.Client.Get(ctx, key, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: getting Secret %s, %w", p.consumer.Name, key, err)
	}
	return true, nil
}
