// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/release"
)

// A provider that runs Liqo grants access and resources when Tenants, ResourceSlices and Renews are created. Liqo's
// consumers have controllers that create them. This program creates them on the provider itself, with the permissions
// of its administrator.

const (
	// liqoIDName is the name label of Liqo's ConfigMap that contains the ID of a cluster. liqoIDKey is the key of the ID
	// in it.
	liqoIDName = "clusterid-configmap"
	liqoIDKey  = "CLUSTER_ID"
	// KeysSecret is the Secret in the provider's tenant namespace that contains the consumer's signing key. Name and
	// keys are the same as in Liqo's own namespace.
	KeysSecret    = "authentication-keys"
	privateKeyKey = "privateKey"
	publicKeyKey  = "publicKey"
	// issuedSecret is the Secret where Liqo stores the certificate that it has signed for the controllers of a
	// consumer. The Secret with the certificate for a ResourceSlice is named after that ResourceSlice.
	issuedSecret = "liqo-remote-certificate"
)

// liqoRights are the permissions that the user needs on a provider that runs Liqo.
var liqoRights = []right{
	manage("", "namespaces"), manage("", "secrets"), manage(auth.GroupVersion.Group, "tenants"), manage(auth.GroupVersion.Group, "resourceslices"),
	manage(auth.GroupVersion.Group, "renews"),
}

// inspectAsProvider reads which version is installed, of this software or of Liqo.
func (c *Cluster) inspectAsProvider(ctx context.Context) error {
	err := c.inspect(ctx)
	if !errors.Is(err, release.ErrNotInstalled) {
		return err
	}
	ids := &corev1.ConfigMapList{}
	if listErr := c.Client.List(ctx, ids, client.MatchingLabels{"app.kubernetes.io/name": liqoIDName}); listErr != nil {
		return fmt.Errorf("cluster %s: looking for Liqo, %w", c.Name, listErr)
	}
	if len(ids.Items) == 0 || ids.Items[0].Data[liqoIDKey] == "" {
		return err
	}
	c.liqo, c.installation = true, &release.Installation{ClusterID: ids.Items[0].Data[liqoIDKey], Namespace: ids.Items[0].Namespace}
	if err := c.knowsTenants(ctx, ids.Items[0].Labels["app.kubernetes.io/version"]); err != nil {
		return err
	}
	return c.identify(ctx)
}

// oldestLiqo is the first version of Liqo with the resources that this program creates on a provider.
var oldestLiqo = version.MustParseGeneric("1.0.0")

// knowsTenants fails if the Liqo of a provider is too old, by its version or by its CRDs.
func (c *Cluster) knowsTenants(ctx context.Context, label string) error {
	found, err := version.ParseGeneric(label)
	if err == nil && found.LessThan(oldestLiqo) {
		return fmt.Errorf("cluster %s runs Liqo %s, which cannot be joined: upgrade it to %s or later (liqoctl install), or install Refract there", c.Name, label, oldestLiqo)
	}
	switch err := c.Client.List(ctx, &auth.TenantList{}, client.Limit(1)); {
	case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("cluster %s runs Liqo %s without Tenants (%s): enable its authentication module, or upgrade it to %s or later", c.Name, label, auth.GroupVersion, oldestLiqo)
	case err != nil:
		return fmt.Errorf("cluster %s: listing Tenants, %w", c.Name, err)
	}
	return nil
}

// nodeSecret returns the name of the Secret with the kubeconfig of the virtual kubelet. In Liqo the virtual kubelet
// and the controllers are different users.
func (o *Options) nodeSecret() string {
	if o.otherSecret != "" {
		return o.otherSecret
	}
	if o.Provider.liqo {
		return "kubeconfig-resourceslice-" + o.VirtualNode
	}
	return secretName(o.Provider.ID())
}

// key returns the key of the consumer, and creates it if it does not exist.
func (o *Options) key(ctx context.Context) (ed25519.PrivateKey, []byte, error) {
	namespace := wire.TenantNamespace(o.Provider.ID())
	secret := &corev1.Secret{}
	err := o.Consumer.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: KeysSecret}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("cluster %s: getting Secret %s/%s, %w", o.Consumer.Name, namespace, KeysSecret, err)
	}
	if err == nil {
		block, _ := pem.Decode(secret.Data[privateKeyKey])
		if block != nil {
			parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
			if key, ok := parsed.(ed25519.PrivateKey); ok {
				return key, secret.Data[publicKeyKey], nil
			}
		}
		return nil, nil, fmt.Errorf("cluster %s: Secret %s/%s has no Ed25519 key in %s: delete it, and run refractctl unpeer and peer", o.Consumer.Name, namespace, KeysSecret, privateKeyKey)
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key, %w", err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key, %w", err)
	}
	keyPEM, err := encode(key)
	if err != nil {
		return nil, nil, err
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	return key, publicPEM, o.Consumer.apply(ctx, &corev1.Secret{ObjectMeta: meta(namespace, KeysSecret, map[string]string{wire.RemoteClusterIDLabel: o.Provider.ID()}),
		Data: map[string][]byte{privateKeyKey: keyPEM, publicKeyKey: publicPEM}})
}

func encode(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key, %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// nonce returns the nonce that the provider has created for the consumer.
func (o *Options) nonce(ctx context.Context) (nonce []byte, err error) {
	secret := o.nonceSecret()
	if err := o.Provider.apply(ctx, secret); err != nil {
		return nil, err
	}
	err = o.await(ctx, "nonce of "+o.Provider.ID(), func(ctx context.Context) (string, error) {
		if err := o.Provider.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return "", fmt.Errorf("cluster %s: getting Secret %s, %w", o.Provider.Name, client.ObjectKeyFromObject(secret), err)
		}
		if nonce = secret.Data[wire.NonceKey]; len(nonce) == 0 {
			return "Liqo has generated none yet in Secret " + client.ObjectKeyFromObject(secret).String(), nil
		}
		return "", nil
	})
	return nonce, err
}

func (o *Options) nonceSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta(wire.TenantNamespace(o.Consumer.ID()), wire.NonceSecret, map[string]string{wire.NonceLabel: "true", wire.RemoteClusterIDLabel: o.Consumer.ID()})}
}

func (o *Options) tenantObject() *auth.Tenant {
	id := o.Consumer.ID()
	return &auth.Tenant{ObjectMeta: meta(wire.TenantNamespace(id), id, map[string]string{wire.RemoteClusterIDLabel: id}), Spec: auth.TenantSpec{ClusterID: core.ClusterID(id)}}
}

// tenancy lets a provider that runs Liqo admit the consumer, and returns the credentials of the consumer's
// controllers.
func (o *Options) tenancy(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	key, public, err := o.key(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	nonce, err := o.nonce(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	tenant := o.tenantObject()
	tenant.Spec.PublicKey, tenant.Spec.Signature = public, ed25519.Sign(key, nonce)
	if tenant.Spec.CSR, err = clientcert.New(o.subject(), key); err != nil {
		return nil, time.Time{}, err
	}
	if err := o.Provider.apply(ctx, tenant); err != nil {
		return nil, time.Time{}, err
	}
	var params *auth.AuthParams
	err = o.await(ctx, "Tenant "+tenant.Name+" of "+o.Provider.ID(), func(ctx context.Context) (string, error) {
		if err := o.Provider.Client.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil {
			return "", fmt.Errorf("cluster %s: getting Tenant %s, %w", o.Provider.Name, client.ObjectKeyFromObject(tenant), err)
		}
		if params = tenant.Status.AuthParams; params == nil {
			return "Liqo has not admitted it yet, its Events say why: kubectl describe tenant", nil
		}
		return "", nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return o.holder(ctx, key, o.subject(), params, auth.RenewSpec{IdentityType: auth.ControlPlaneIdentityType, CSR: tenant.Spec.CSR})
}

// holder returns the credentials with an issued certificate. The certificate is renewed if less than a third of its
// lifetime is left.
func (o *Options) holder(ctx context.Context, key ed25519.PrivateKey, subject clientcert.Subject, params *auth.AuthParams, renewal auth.RenewSpec) (*clientcmdapi.AuthInfo, time.Time, error) {
	if params.AwsConfig != nil {
		return nil, time.Time{}, fmt.Errorf("cluster %s issues AWS IAM users instead of certificates: install Refract there, and join it with tokens", o.Provider.Name)
	}
	validity := clientcert.ValidityFor(params.SignedCRT, subject, key.Public())
	if validity.Known() && time.Until(validity.Until) < validity.Life()/3 {
		renewed, err := o.renew(ctx, renewal)
		if err != nil {
			return nil, time.Time{}, err
		}
		params, validity = renewed, clientcert.ValidityFor(renewed.SignedCRT, subject, key.Public())
	}
	if left := time.Until(validity.Until); validity.Known() && left <= 0 {
		return nil, time.Time{}, fmt.Errorf("cluster %s issued a certificate that expired at %s: check its clock, and run the command again", o.Provider.Name, validity.Until.UTC().Format(time.RFC3339))
	}
	if !validity.Known() {
		return nil, time.Time{}, fmt.Errorf("cluster %s issued a certificate that is not the one that was requested (%s): run refractctl unpeer, and join the clusters again", o.Provider.Name, subject)
	}
	keyPEM, err := encode(key)
	return &clientcmdapi.AuthInfo{ClientCertificateData: params.SignedCRT, ClientKeyData: keyPEM}, validity.Until, err
}

// renew requests a new certificate from a provider that runs Liqo. Liqo (v1.1.2) answers a Renew with the certificate
// that it has signed before, as long as a Secret contains it. So the Secret is deleted first. A consumer cannot
// delete it, and must not be able to: Liqo then signs a certificate for any user of the cluster that the Renew names.
func (o *Options) renew(ctx context.Context, spec auth.RenewSpec) (params *auth.AuthParams, err error) {
	spec.ConsumerClusterID = core.ClusterID(o.Consumer.ID())
	name, issued := "controlplane-"+o.Provider.ID(), issuedSecret
	if spec.ResourceSliceRef != nil {
		name, issued = "resourceslice-"+spec.ResourceSliceRef.Name, issuedSecret+"-"+spec.ResourceSliceRef.Name
	}
	namespace := wire.TenantNamespace(o.Consumer.ID())
	renew := &auth.Renew{ObjectMeta: meta(namespace, name, o.replicated()), Spec: spec}
	if err := o.Provider.remove(ctx, renew); err != nil { // left by an earlier attempt
		return nil, err
	}
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: issued}}
	if err := client.IgnoreNotFound(o.Provider.Client.Delete(ctx, kept)); err != nil {
		return nil, fmt.Errorf("cluster %s: deleting Secret %s, %w", o.Provider.Name, client.ObjectKeyFromObject(kept), err)
	}
	if err := o.Provider.apply(ctx, renew); err != nil {
		return nil, err
	}
	err = o.await(ctx, "Renew "+name+" of "+o.Provider.ID(), func(ctx context.Context) (string, error) {
		if err := o.Provider.Client.Get(ctx, client.ObjectKeyFromObject(renew), renew); err != nil {
			return "", fmt.Errorf("cluster %s: getting Renew %s, %w", o.Provider.Name, client.ObjectKeyFromObject(renew), err)
		}
		if params = renew.Status.AuthParams; params == nil {
			return "Liqo has not renewed the certificate yet", nil
		}
		return "", nil
	})
	return params, errors.Join(err, o.Provider.remove(ctx, renew))
}

// replicated returns the labels that Liqo sets on objects that it copies from the consumer.
func (o *Options) replicated() map[string]string {
	return map[string]string{wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: o.Consumer.ID(), wire.RemoteClusterIDLabel: o.Consumer.ID()}
}

func (o *Options) sliceObject(name string) *auth.ResourceSlice {
	return &auth.ResourceSlice{ObjectMeta: meta(wire.TenantNamespace(o.Consumer.ID()), name, o.replicated()), Spec: auth.ResourceSliceSpec{
		ConsumerClusterID: ptr.To(core.ClusterID(o.Consumer.ID())), ProviderClusterID: ptr.To(core.ClusterID(o.Provider.ID())), Class: auth.DefaultResourceSliceClass, Resources: o.Resources,
	}}
}

// share requests resources for the virtual node from a provider that runs Liqo, and stores the kubeconfig of its
// virtual kubelet.
func (o *Options) share(ctx context.Context) error {
	key, _, err := o.key(ctx)
	if err != nil {
		return err
	}
	subject := clientcert.Subject{CommonName: auth.ResourceSliceUser(o.VirtualNode, o.Consumer.ID()), Organization: o.Consumer.ID()}
	slice := o.sliceObject(o.VirtualNode)
	if slice.Spec.CSR, err = clientcert.New(subject, key); err != nil {
		return err
	}
	if err := o.Provider.apply(ctx, slice); err != nil {
		return err
	}
	asked := time.Now()
	if err := o.await(ctx, "ResourceSlice "+slice.Name+" of "+o.Provider.ID(), func(ctx context.Context) (string, error) {
		missing, err := o.granted(ctx, slice)
		if missing == "" && err == nil && !isGranted(o.Resources, slice.Status.Resources) && time.Since(asked) < grantPatience {
			return "the provider has not granted the requested resources yet", nil
		}
		return missing, err
	}); err != nil {
		return err
	}
	if !isGranted(o.Resources, slice.Status.Resources) {
		o.say("%s: warning: granted other resources than requested: %s", o.Provider.ID(), slice.Status.Condition(auth.ResourcesCondition).Message)
	}
	user, expires, err := o.holder(ctx, key, subject, slice.Status.AuthParams, auth.RenewSpec{
		IdentityType: auth.ResourceSliceIdentityType, CSR: slice.Spec.CSR, ResourceSliceRef: &corev1.LocalObjectReference{Name: slice.Name},
	})
	if err != nil {
		return err
	}
	o.say("%s: the certificate of virtual node %s expires on %s, run the command again before", o.Consumer.ID(), o.VirtualNode, expires.UTC().Format(time.DateOnly))
	o.take(&slice.Status)
	if o.nodeAccess, err = o.kubeconfig(o.server(), user); err != nil {
		return err
	}
	return o.Consumer.apply(ctx, o.ofVirtualKubelet())
}

// ofVirtualKubelet returns the Secret with the kubeconfig that share has stored.
func (o *Options) ofVirtualKubelet() *corev1.Secret {
	secret := o.secret(o.nodeAccess)
	secret.Name = o.nodeSecret()
	return secret
}

// grantPatience limits how long a provider may take to react to a changed request. Liqo takes less than a second.
const grantPatience = 5 * time.Second

// isGranted reports whether exactly the requested quantities were granted.
func isGranted(asked, granted corev1.ResourceList) bool {
	for name, quantity := range asked {
		if is, ok := granted[name]; !ok || is.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

// granted returns the part of the response that is still missing. It fails if the provider denies the request.
func (o *Options) granted(ctx context.Context, slice *auth.ResourceSlice) (missing string, err error) {
	if err := o.Provider.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
		return "", fmt.Errorf("cluster %s: getting ResourceSlice %s, %w", o.Provider.Name, client.ObjectKeyFromObject(slice), err)
	}
	for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
		switch condition := slice.Status.Condition(what); {
		case condition == nil:
			return fmt.Sprintf("%s is not decided yet", what), nil
		case condition.Status == auth.ResourceSliceDenied:
			return "", fmt.Errorf("cluster %s denies ResourceSlice %s (%s): %s", o.Provider.Name, slice.Name, what, condition.Message)
		}
	}
	if slice.Status.AuthParams == nil {
		return "it has no credentials yet", nil
	}
	return "", nil
}

// take sets the granted resources, classes, labels and selector on the virtual node, unless the user has set them.
func (o *Options) take(status *auth.ResourceSliceStatus) {
	if len(status.Resources) > 0 {
		o.Resources = status.Resources
	}
	if len(o.Node.StorageClasses) == 0 {
		o.Node.StorageClasses = status.StorageClasses
	}
	if len(o.Node.IngressClasses) == 0 {
		o.Node.IngressClasses = status.IngressClasses
	}
	if len(o.Node.LoadBalancerClasses) == 0 {
		o.Node.LoadBalancerClasses = status.LoadBalancerClasses
	}
	if len(o.Node.Labels) == 0 {
		labels := harmless(status.NodeLabels)
		if refused := o.AcceptedLabels.Restrict(labels, o.nodeLabels); len(refused) > 0 {
			o.say("%s: warning: %s", o.Consumer.ID(), negotiation.DescribeRefused(refused, o.Provider.ID()))
		}
		o.Node.Labels = labels
	}
	if len(o.Node.NodeSelector) == 0 {
		o.Node.NodeSelector = status.NodeSelector
	}
}

// harmless returns the labels without the reserved ones, which a provider must not set.
func harmless(labels map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range labels {
		if !negotiation.IsReserved(key) {
			kept[key] = value
		}
	}
	return kept
}

// atLiqo returns the objects for the consumer on a provider that runs Liqo, without the tenant namespace.
func (o *Options) atLiqo(ctx context.Context) ([]client.Object, error) {
	objects := []client.Object{o.nonceSecret(), o.tenantObject()}
	shares := &auth.ResourceSliceList{}
	if err := o.Provider.Client.List(ctx, shares, client.InNamespace(wire.TenantNamespace(o.Consumer.ID()))); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cluster %s: listing ResourceSlices, %w", o.Provider.Name, err)
	}
	for i := range shares.Items {
		objects = append(objects, &shares.Items[i])
	}
	return objects, nil
}

// joinedAsLiqo reports whether the provider was joined as a provider that runs Liqo. Only the ID of the provider has
// to be known.
func (o *Options) joinedAsLiqo(ctx context.Context) (bool, error) {
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: KeysSecret}
	err := o.Consumer.Client.Get(ctx, key, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: getting Secret %s, %w", o.Consumer.Name, key, err)
	}
	return true, nil
}
