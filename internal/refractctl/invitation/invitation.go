// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package invitation reads and writes invitations. An invitation lets the administrator of a consumer join a provider
// without having access to the provider.
package invitation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	core "github.com/refract-project/refract/api/core/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

// Invitation is part of a kubeconfig that a provider's administrator gives to a consumer's administrator. It contains
// what refractctl must know about the provider to join the clusters with only the consumer's own permissions. The
// kubeconfig contains a token of the consumer's ServiceAccount, and must be kept secret.
type Invitation struct {
	// Consumer and Provider are the IDs of the clusters. ProviderUID distinguishes the provider from other clusters
	// with the same ID.
	Consumer, Provider, ProviderUID string
	// Version is the version of the provider's installation.
	Version string
	// PodRanges contains the pod ranges of the provider's nodes. It is empty if the nodes have none.
	PodRanges []netip.Prefix
	// ServiceRanges contains the cluster IP ranges of the provider. It is empty if they are unknown.
	ServiceRanges []netip.Prefix `json:",omitempty"`
	// Resources are the resources that the provider grants.
	Resources corev1.ResourceList
	// Gateway is the gateway of the provider to the consumer. It is nil if no gateways connect the clusters.
	Gateway *Gateway `json:",omitempty"`
}

// Gateway is the gateway of a provider, as the consumer needs to know it.
type Gateway struct {
	// Ranges are the ranges of the provider.
	Ranges networking.ClusterConfigCIDR
	// Endpoint is where the consumer's gateway connects.
	Endpoint networking.EndpointStatus
	// PublicKey has 32 bytes (Curve25519).
	PublicKey []byte
	// MTU is the MTU of the tunnel in bytes.
	MTU int
}

// isComplete reports whether a consumer can connect to the gateway.
func (g *Gateway) isComplete() bool {
	return len(g.PublicKey) == publicKeyLength && len(g.Endpoint.Addresses) > 0 && g.Endpoint.Port > 0
}

// publicKeyLength is the length of the public key of a gateway in bytes.
const publicKeyLength = 32

// extensionName is the name of the extension that contains the Invitation in a kubeconfig's cluster.
const extensionName = "peering.refract.io"

// IsIn reports whether a context of a kubeconfig contains an invitation, even an invalid one. The context "" is the
// current context.
func IsIn(config *clientcmdapi.Config, context string) bool {
	_, found := findExtension(config, context)
	return found
}

func findExtension(config *clientcmdapi.Config, context string) (extension runtime.Object, found bool) {
	current := config.Contexts[cmp.Or(context, config.CurrentContext)]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil, false
	}
	extension, found = config.Clusters[current.Cluster].Extensions[extensionName]
	return extension, found
}

// Parse returns the invitation in a context of a kubeconfig, or nil if the context contains none. The context "" is the
// current context.
func Parse(config *clientcmdapi.Config, context string) (*Invitation, error) {
	found, ok := findExtension(config, context)
	if !ok {
		return nil, nil //nolint:nilnil // as documented
	}
	extension, ok := found.(*runtime.Unknown)
	if !ok {
		return nil, fmt.Errorf("the extension %s of the kubeconfig cannot be read: ask for another invitation", extensionName)
	}
	invitation := &Invitation{}
	if err := json.Unmarshal(extension.Raw, invitation); err != nil {
		return nil, fmt.Errorf("the extension %s of the kubeconfig cannot be read: ask for another invitation (%w)", extensionName, err)
	}
	// Without the UID, another cluster with the same ID could not be distinguished from the provider.
	if invitation.ProviderUID == "" || invitation.Provider == "" || invitation.Consumer == "" {
		return nil, fmt.Errorf("the extension %s of the kubeconfig does not say which clusters it is for: ask for another invitation", extensionName)
	}
	if invitation.Gateway != nil && !invitation.Gateway.isComplete() {
		const text = "the extension %s of the kubeconfig has a gateway without a valid key or address: ask for another invitation"
		return nil, fmt.Errorf(text, extensionName)
	}
	for _, id := range []string{invitation.Provider, invitation.Consumer} {
		if err := core.ClusterID(id).Validate(); err != nil {
			return nil, fmt.Errorf("the extension %s of the kubeconfig names a cluster %.100q: ask for another invitation (%w)", extensionName, id, err)
		}
	}
	return invitation, nil
}

// Embed adds the invitation to a cluster of a kubeconfig. It replaces all extensions of the cluster.
func (i *Invitation) Embed(cluster *clientcmdapi.Cluster) error {
	encoded, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encoding the invitation, %w", err)
	}
	cluster.Extensions = map[string]runtime.Object{extensionName: &runtime.Unknown{Raw: encoded, ContentType: runtime.ContentTypeJSON}}
	return nil
}

// LimitResources returns the resources of a virtual node. Resources that are not requested get the amount that the
// provider grants. It returns an error if a request exceeds this amount.
func (i *Invitation) LimitResources(resources corev1.ResourceList) (corev1.ResourceList, error) {
	all := corev1.ResourceList{}
	maps.Copy(all, i.Resources)
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

// EndedError is the error for an invitation that the provider does not accept, or no longer accepts.
type EndedError struct {
	// Cluster is the user's name for the provider. Consumer is the ID of the invited cluster.
	Cluster, Consumer string
	// Expiry is the time at which the token of the invitation expires. It is zero if the time is unknown.
	Expiry time.Time
}

func (e *EndedError) Error() string {
	cause := "the invitation was withdrawn, or is of another cluster"
	if !e.Expiry.IsZero() && !time.Now().Before(e.Expiry) {
		cause = "the invitation expired at " + e.Expiry.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("cluster %s: %s: ask its administrator to run refractctl generate peering-user %s again", e.Cluster, cause, e.Consumer)
}
