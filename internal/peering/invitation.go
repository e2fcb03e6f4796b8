// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/release"
)

// Invitation is passed, inside a kubeconfig, from the administrator of a provider to the administrator of a consumer.
// With it Peer joins the clusters with only the consumer's own permissions on the provider. The kubeconfig contains a
// token of the consumer's ServiceAccount, and must be kept as secret as that token.
type Invitation struct {
	// Consumer and Provider are cluster IDs. ProviderUID distinguishes clusters with the same ID.
	Consumer, Provider, ProviderUID string
	// Version is the version of the provider's installation.
	Version string
	// PodRanges are the pod ranges of the provider's nodes, empty if the nodes have none.
	PodRanges []netip.Prefix
	// ServiceRanges are the cluster IP ranges of the provider, empty if they are unknown.
	ServiceRanges []netip.Prefix `json:",omitempty"`
	// Resources are the resources that the provider grants.
	Resources corev1.ResourceList
}

// invitationExtension is the name of the extension that contains the Invitation in a kubeconfig's cluster.
const invitationExtension = "peering.refract.io"

// IsInvitation reports whether a context of a kubeconfig has an invitation, even an unreadable one. "" is the current
// context.
func IsInvitation(config *clientcmdapi.Config, context string) bool {
	_, found := extensionOf(config, context)
	return found
}

func extensionOf(config *clientcmdapi.Config, context string) (extension runtime.Object, found bool) {
	current := config.Contexts[cmp.Or(context, config.CurrentContext)]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil, false
	}
	extension, found = config.Clusters[current.Cluster].Extensions[invitationExtension]
	return extension, found
}

// Invited returns the invitation in the current context of a kubeconfig, or nil if the context has none.
func Invited(config *clientcmdapi.Config, context string) (*Invitation, error) {
	found, ok := extensionOf(config, context)
	if !ok {
		return nil, nil //nolint:nilnil // as documented
	}
	extension, ok := found.(*runtime.Unknown)
	if !ok {
		return nil, fmt.Errorf("the extension %s of the kubeconfig cannot be read: ask for another invitation", invitationExtension)
	}
	invitation := &Invitation{}
	if err := json.Unmarshal(extension.Raw, invitation); err != nil {
		return nil, fmt.Errorf("the extension %s of the kubeconfig cannot be read: ask for another invitation (%w)", invitationExtension, err)
	}
	// Without the UID, another cluster that claims the ID of the provider could not be distinguished from the provider.
	if invitation.ProviderUID == "" || invitation.Provider == "" || invitation.Consumer == "" {
		return nil, fmt.Errorf("the extension %s of the kubeconfig does not say which clusters it is for: ask for another invitation", invitationExtension)
	}
	for _, id := range []string{invitation.Provider, invitation.Consumer} {
		if err := core.ClusterID(id).Validate(); err != nil {
			return nil, fmt.Errorf("the extension %s of the kubeconfig names a cluster %.100q: ask for another invitation (%w)", invitationExtension, id, err)
		}
	}
	return invitation, nil
}

// Absent returns a Cluster that cannot be accessed and has only an ID.
func Absent(id string) (*Cluster, error) {
	if err := core.ClusterID(id).Validate(); err != nil {
		return nil, err
	}
	return &Cluster{Name: id, installation: &release.Installation{ClusterID: id}}, nil
}

// Invite admits a consumer at a provider and returns a kubeconfig with an Invitation. Only the ID of the consumer has
// to be known. Peer accepts the kubeconfig in place of a kubeconfig of the provider. The kubeconfig is valid for the
// given lifetime. The peering that Peer creates with it stays valid afterwards. Invite may be called again. If it
// fails, it removes the objects that it has created, as Peer does.
func (o *Options) Invite(ctx context.Context, life time.Duration) (kubeconfig []byte, expires time.Time, err error) {
	if err := o.Provider.inspect(ctx); err != nil {
		return nil, expires, err
	}
	if o.Consumer.ID() == o.Provider.ID() {
		return nil, expires, fmt.Errorf("cluster %s has the id %q itself: name the consumer", o.Provider.Name, o.Provider.ID())
	}
	o.given = maps.Clone(o.Resources)
	if o.Resources, err = o.grants(ctx); err != nil {
		return nil, expires, err
	}
	var found []error
	for _, look := range []func(context.Context) error{o.checkTenantLimits, o.checkServer, o.providerRights, o.Provider.hasRoles, o.tenantAtProvider, o.checkDrained} {
		found = append(found, look(ctx))
	}
	if err := errors.Join(found...); err != nil || o.DryRun {
		return nil, expires, err
	}
	if err := o.learnNetwork(ctx); err != nil {
		return nil, expires, err
	}
	o.Provider.created = nil
	kubeconfig, expires, err = o.admit(ctx, life)
	if err != nil {
		return nil, expires, o.takeBack(ctx, err, "refractctl generate peering-user "+o.Consumer.ID(), "refractctl delete peering-user "+o.Consumer.ID())
	}
	return kubeconfig, expires, nil
}

// admit admits the consumer and returns a kubeconfig for it.
func (o *Options) admit(ctx context.Context, life time.Duration) (kubeconfig []byte, expires time.Time, err error) {
	if err := o.admitConsumer(ctx); err != nil {
		return nil, expires, err
	}
	if err := o.grant(ctx); err != nil {
		return nil, expires, err
	}
	user, expires, err := o.tokenFor(ctx, life)
	if err != nil {
		return nil, expires, fmt.Errorf("cluster %s: %w", o.Provider.Name, err)
	}
	config, err := o.kubeconfigFor(o.server(), user)
	if err != nil {
		return nil, expires, err
	}
	extension, err := json.Marshal(Invitation{Consumer: o.Consumer.ID(), Provider: o.Provider.ID(), ProviderUID: o.Provider.uid,
		Version: o.Provider.installation.Version, PodRanges: o.ranges[o.Provider], ServiceRanges: o.serviceRanges[o.Provider], Resources: o.Resources})
	if err != nil {
		return nil, expires, fmt.Errorf("encoding the invitation, %w", err)
	}
	config.Clusters[o.Provider.ID()].Extensions = map[string]runtime.Object{invitationExtension: &runtime.Unknown{Raw: extension, ContentType: runtime.ContentTypeJSON}}
	kubeconfig, err = clientcmd.Write(*config)
	if err != nil {
		return nil, expires, fmt.Errorf("writing the kubeconfig, %w", err)
	}
	return kubeconfig, expires, o.checkKubeconfig(ctx, kubeconfig)
}

// accept describes the provider with the facts in its invitation, because a consumer has no permission to read them.
func (c *Cluster) accept(ctx context.Context) error {
	c.installation = &release.Installation{ClusterID: c.invitation.Provider, Version: c.invitation.Version}
	c.uid = c.invitation.ProviderUID
	_, err := c.Clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if apierrors.IsUnauthorized(err) {
		return &invitationEndedError{cluster: c.Name, consumer: c.invitation.Consumer, expiry: credentials.ValidityOf(c.Config).Until}
	}
	if err != nil {
		return fmt.Errorf("cluster %s: using the invitation, %w", c.Name, err)
	}
	return nil
}

// invitationEndedError is returned for an invitation that the provider does not accept, or no longer accepts.
type invitationEndedError struct {
	cluster, consumer string
	expiry            time.Time
}

func (e *invitationEndedError) Error() string {
	cause := "the invitation was withdrawn, or is of another cluster"
	if !e.expiry.IsZero() && !time.Now().Before(e.expiry) {
		cause = "the invitation expired at " + e.expiry.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("cluster %s: %s: ask its administrator to run refractctl generate peering-user %s again", e.cluster, cause, e.consumer)
}

// resume accesses a provider whose invitation has expired with the token that the consumer has renewed since the
// clusters were joined.
func (o *Options) resume(ctx context.Context, ended *invitationEndedError) error {
	current, err := o.currentAccess(ctx)
	if err != nil {
		return err
	}
	config := rest.CopyConfig(o.Provider.Config)
	if current == nil || current.BearerToken == config.BearerToken || !leadsTo(config, current) {
		return ended
	}
	config.BearerToken, config.BearerTokenFile = current.BearerToken, ""
	resumed := &Cluster{Name: o.Provider.Name, Config: config, invitation: o.Provider.invitation}
	if resumed.Client, err = client.New(config, client.Options{Scheme: o.Consumer.Client.Scheme()}); err != nil {
		return fmt.Errorf("cluster %s: %w", o.Provider.Name, err)
	}
	if resumed.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("cluster %s: %w", o.Provider.Name, err)
	}
	if err := resumed.accept(ctx); err != nil {
		if errors.As(err, new(*invitationEndedError)) { // the consumer has lost its access
			return fmt.Errorf("%w; if it has revoked the access of this cluster, end the peering with refractctl unpeer %s --force", ended, o.Provider.invitation.Provider)
		}
		return err
	}
	o.Provider = resumed
	return nil
}

// leadsTo reports whether a kubeconfig is for the same API server as the kubeconfig in use. The token must not be
// sent to the server of a file from another source.
func leadsTo(config, inUse *rest.Config) bool {
	switch {
	case config.Insecure, config.ServerName != inUse.ServerName:
		return false
	case len(config.CAData) > 0:
		return bytes.Equal(config.CAData, inUse.CAData)
	}
	return config.Host == inUse.Host
}

// currentAccess returns the current access of the consumer to its provider, or nil if it has none.
func (o *Options) currentAccess(ctx context.Context) (*rest.Config, error) {
	provider := o.Provider.invitation.Provider
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: wire.TenantNamespace(provider), Name: secretName(provider)}
	if err := o.Consumer.Client.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // as documented
		}
		return nil, fmt.Errorf("cluster %s: getting Secret %s, %w", o.Consumer.Name, key, err)
	}
	config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return nil, fmt.Errorf("cluster %s: reading Secret %s, %w", o.Consumer.Name, key, err)
	}
	return config, nil
}

// fits checks that the resources of a virtual node do not exceed the resources that the provider grants. The granted
// resources are the default.
func (i *Invitation) fits(resources corev1.ResourceList) (corev1.ResourceList, error) {
	all := maps.Clone(i.Resources)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		quantity, given := resources[name], i.Resources[name]
		if quantity.Cmp(given) > 0 {
			return nil, fmt.Errorf("--%s is %s, but %s gives %s: request at most that, or ask its administrator for more (refractctl generate peering-user %s --%s)",
				name, quantity.String(), i.Provider, given.String(), i.Consumer, name)
		}
		all[name] = quantity
	}
	return all, nil
}
