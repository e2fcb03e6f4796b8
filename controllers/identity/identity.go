// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
)

// Identities writes the kubeconfigs of Identities, and renews their certificates.
type Identities struct {
	access  *Access
	client  client.Client
	report  *report.Reporter
	nonces  *nonces
	options Options
	// remotes gives access to the Renews of Identities at their providers.
	remotes *remote.Pool

	mu sync.Mutex
	// tried contains the time of the last failed renewal of each Identity.
	tried map[types.NamespacedName]time.Time
}

// NewIdentities returns the controller of Identities, which also signs nonces. It writes with c.
func NewIdentities(c client.Client, recorder events.EventRecorder, access *Access, options Options) *Identities {
	reporter := report.New(recorder)
	return &Identities{
		access: access, client: c, report: reporter, options: options, tried: map[types.NamespacedName]time.Time{}, nonces: &nonces{access: access, client: c, report: reporter},
		remotes: remote.NewPool(remote.Options{Scheme: c.Scheme(), Kind: auth.GroupVersion.WithKind(auth.RenewKind)}),
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (i *Identities) Name() string { return "identity" }

const (
	invalidReason   = "InvalidIdentity"
	refusedReason   = "KubeconfigNotWritten"
	writtenReason   = "KubeconfigWritten"
	writeAction     = "WriteKubeconfig"
	expiredReason   = "CredentialsExpired"
	sliceNamePrefix = "resourceslice-"
)

// formerSecretDelay is how long the garbage collector may take to delete the Secret of an Identity that was deleted and
// created again.
const formerSecretDelay = 2 * time.Second

// kubeconfigSecret returns the name of the Secret with the kubeconfig of an Identity.
func kubeconfigSecret(identity string) string { return "kubeconfig-" + identity }

// sliceOf returns the name of the ResourceSlice of an Identity.
func sliceOf(identity *auth.Identity) string {
	if owner := metav1.GetControllerOf(identity); owner != nil && owner.Kind == auth.ResourceSliceKind {
		return owner.Name
	}
	return identity.Labels[wire.ResourceSliceNameLabel]
}

// sliceSubject returns the subject of the certificate of a ResourceSlice of the consumer.
func sliceSubject(slice, consumer string) clientcert.Subject {
	return clientcert.Subject{CommonName: auth.ResourceSliceUser(slice, consumer), Organization: consumer}
}

// subjectOf returns the subject of the certificate of an Identity of the consumer.
func subjectOf(identity *auth.Identity, consumer string) clientcert.Subject {
	if identity.Spec.Type == auth.ResourceSliceIdentityType {
		return sliceSubject(sliceOf(identity), consumer)
	}
	return clientcert.Subject{CommonName: consumer, Organization: wire.ControlPlaneGroup}
}

// Reconcile writes the kubeconfig of one Identity, and renews its certificate when this is due.
func (i *Identities) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	identity := &auth.Identity{}
	if err := i.client.Get(ctx, request.NamespacedName, identity); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("getting Identity %s, %w", request.NamespacedName, err)
	}
	if identity.UID == "" || identity.DeletionTimestamp != nil {
		i.remotes.Drop(request.NamespacedName)
		i.report.Clear(request.NamespacedName)
		i.recordRenewal(request.NamespacedName, time.Time{})
		return reconcile.Result{}, nil
	}
	provider, err := i.access.providerOf(ctx, identity.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if provider == "" || identity.Spec.ClusterID.String() != provider {
		i.report.Warn(identity, invalidReason, writeAction, fmt.Sprintf("spec.clusterID is %q, but namespace %s is not the tenant namespace of that cluster (%s=true, %s=%s): create the Identity in namespace %s",
			identity.Spec.ClusterID, identity.Namespace, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, identity.Spec.ClusterID, wire.TenantNamespace(identity.Spec.ClusterID.String())))
		return reconcile.Result{}, nil
	}
	key, err := i.access.clusterKey(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	kubeconfig, validity, err := newKubeconfig(identity, i.options.ClusterID.String(), key)
	if err != nil {
		i.report.Warn(identity, invalidReason, writeAction, err.Error())
		// Somebody may restore the key that the certificate is for.
		return reconcile.Result{RequeueAfter: refreshInterval}, nil
	}
	refused, err := i.writeSecret(ctx, identity, kubeconfig)
	if err != nil {
		return reconcile.Result{}, err
	}
	if refused != "" {
		i.report.Warn(identity, refusedReason, writeAction, refused)
		return reconcile.Result{RequeueAfter: refreshInterval}, nil
	}
	if err := i.writeStatus(ctx, identity); err != nil {
		return reconcile.Result{}, err
	}
	wait, err := i.renew(ctx, identity, key, validity)
	return reconcile.Result{RequeueAfter: min(wait, refreshInterval)}, err
}

// newKubeconfig returns the kubeconfig of an Identity of the consumer, and the validity of its certificate. The error says which field
// cannot be used, and the remedy.
func newKubeconfig(identity *auth.Identity, consumer string, key crypto.Signer) ([]byte, credentials.Validity, error) {
	params, subject := &identity.Spec.AuthParams, subjectOf(identity, consumer)
	validity := clientcert.ValidityFor(params.SignedCRT, subject, key.Public())
	switch server, err := connection.ParseServer(params.APIServer); {
	case params.AwsConfig != nil:
		return nil, validity, fmt.Errorf("spec.authParams.awsConfig: the provider issues AWS IAM users instead of certificates, which is not supported: install Refract there, and join the clusters with refractctl peer --credentials=token")
	case params.ProxyURL != nil && *params.ProxyURL != "":
		return nil, validity, fmt.Errorf("spec.authParams.proxyURL: the provider cannot choose a proxy of this cluster: remove it, and set the environment variable HTTPS_PROXY of the controller manager and of the virtual kubelet")
	case err != nil:
		return nil, validity, fmt.Errorf("spec.authParams.apiServer %w", err)
	case connection.RefersToNoMachine(server):
		return nil, validity, fmt.Errorf("spec.authParams.apiServer: no machine has the address %s: use the address at which this cluster reaches the API server of the provider", server.Host)
	case len(params.CA) > 0 && !isPEM(params.CA):
		return nil, validity, errors.New("spec.authParams.ca contains no certificates in PEM")
	case !validity.Known():
		return nil, validity, fmt.Errorf("spec.authParams.signedCRT is not a certificate for the key of this cluster and the subject %s: run liqoctl peer again", subject)
	}
	keyPEM, err := clientcert.EncodePrivateKey(key)
	if err != nil {
		return nil, validity, err
	}
	name, config := identity.Spec.ClusterID.String(), clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: params.APIServer, CertificateAuthorityData: params.CA}
	config.AuthInfos[identity.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: params.SignedCRT, ClientKeyData: keyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: identity.Name}
	if identity.Spec.Namespace != nil {
		config.Contexts[name].Namespace = *identity.Spec.Namespace
	}
	config.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*config)
	return kubeconfig, validity, err
}

func isPEM(text []byte) bool {
	_, err := cert.ParseCertsPEM(text)
	return err == nil
}

// writeSecret writes the kubeconfig to the Secret of an Identity. If the Secret belongs to somebody else, it is left
// unchanged, and refused says so.
func (i *Identities) writeSecret(ctx context.Context, identity *auth.Identity, kubeconfig []byte) (refused string, err error) {
	name := kubeconfigSecret(identity.Name)
	present, err := i.access.getSecret(ctx, identity.Namespace, name)
	if err != nil {
		return "", err
	}
	desired := present.DeepCopy()
	if present == nil {
		desired = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identity.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(identity, auth.GroupVersion.WithKind(auth.IdentityKind))}}}
	}
	if owner := metav1.GetControllerOf(desired); owner != nil && owner.Kind == auth.IdentityKind && owner.Name == identity.Name && owner.UID != identity.UID {
		return "", report.Later(fmt.Errorf("a former Identity owns Secret %s/%s, which is being deleted", identity.Namespace, name), formerSecretDelay)
	}
	if !metav1.IsControlledBy(desired, identity) {
		return fmt.Sprintf("Secret %s/%s exists and does not belong to this Identity; it was left unchanged. If refractctl peer has created it, the clusters are joined already: delete this Identity, or run refractctl unpeer first", identity.Namespace, name), nil
	}
	if desired.Labels == nil {
		desired.Labels = map[string]string{}
	}
	maps.Copy(desired.Labels, map[string]string{wire.RemoteClusterIDLabel: identity.Spec.ClusterID.String(), wire.IdentityTypeLabel: string(identity.Spec.Type)})
	if identity.Spec.Namespace != nil && *identity.Spec.Namespace != "" {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, wire.RemoteTenantNamespaceAnnotation, *identity.Spec.Namespace)
	}
	desired.Data = map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}
	switch {
	case present == nil:
		err = i.client.Create(ctx, desired, client.FieldOwner(fieldManager))
	case equality.Semantic.DeepEqual(present, desired):
		return "", nil
	default:
		err = i.client.Update(ctx, desired, client.FieldOwner(fieldManager))
	}
	if err != nil {
		return "", i.access.checkAccess(identity.Namespace, fmt.Errorf("writing Secret %s/%s, %w", identity.Namespace, name, err))
	}
	i.report.Tell(identity, nil, writtenReason, writeAction, "Wrote the kubeconfig of provider "+identity.Spec.ClusterID.String()+" to Secret "+name)
	return "", nil
}

// writeStatus writes the name of the Secret to the status of an Identity.
func (i *Identities) writeStatus(ctx context.Context, identity *auth.Identity) error {
	name := kubeconfigSecret(identity.Name)
	if ref := identity.Status.KubeconfigSecretRef; ref != nil && ref.Name == name {
		return nil
	}
	changed := identity.DeepCopy()
	changed.Status.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: name}
	if err := i.client.Status().Patch(ctx, changed, client.MergeFrom(identity), client.FieldOwner(fieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the status of Identity %s, %w", client.ObjectKeyFromObject(identity), err)
	}
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (i *Identities) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.IdentityList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr. ctx must be done when the manager stops.
func (i *Identities) Register(ctx context.Context, mgr manager.Manager) error {
	if err := i.nonces.register(mgr); err != nil {
		return err
	}
	i.remotes.Bind(ctx)
	// With lanes, a provider that does not respond delays only its own Identities.
	lanes := workers.NewLanes(report.Failures(i, i.options.Failed))
	if err := mgr.Add(lanes); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(i.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.Identity{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: workers.Changed})).
		Complete(lanes)
}
