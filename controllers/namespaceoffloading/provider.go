// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/internal/nodelabels"
	"github.com/refract-project/refract/internal/remotedata"
)

// provider is the state of a cluster that namespaces can be offloaded to.
type provider struct {
	id string
	// namespace is the tenant namespace, which contains the NamespaceMap. Only VirtualNodes in this namespace get
	// access.
	namespace string
	// nodes are the virtual nodes of the provider. The list is empty if only the NamespaceMap is left.
	nodes []virtualNode
	// dead is true if an administrator has declared the provider permanently lost.
	dead bool
	// picked is true if the clusterSelector selects the provider, whether or not the namespace is already mapped.
	picked bool
	// unpromised contains the virtual nodes that the clusterSelector selects only because of labels that the Node has
	// and the VirtualNode does not specify. No new namespaces are offloaded to them.
	unpromised []virtualNode
	// refusal is the reason why this cluster does not request the remote namespace on the provider. It is empty if
	// there is no such reason.
	refusal string
	// leaves is the time at which a namespace that is no longer selected is withdrawn from the provider. It is zero
	// if no withdrawal is due.
	leaves time.Time
	// held lists the volumes whose data in the remote namespace prevents its deletion. If retained is true, the remote
	// namespace is kept until these volumes are deleted, even if the NamespaceOffloading is deleted before.
	held     remotedata.Volumes
	retained bool
	// mapping is the NamespaceMap of the provider. It is read when it is first needed, and is nil before.
	mapping *offloading.NamespaceMap
}

type virtualNode struct {
	resource *offloading.VirtualNode
	// node is nil until the Node is registered.
	node *corev1.Node
}

// listProviders returns all clusters that have virtual nodes in this cluster, or whose NamespaceMap contains remote
// namespaces in its status. Other NamespaceMaps are ignored, because consumers of this cluster may create
// NamespaceMaps, but may not write their status.
func (c *Controller) listProviders(ctx context.Context) ([]*provider, error) {
	virtualNodes, nodes, mappings := &offloading.VirtualNodeList{}, &corev1.NodeList{}, &offloading.NamespaceMapList{}
	clusters, namespaces := &core.ForeignClusterList{}, &corev1.NamespaceList{}
	for _, list := range []client.ObjectList{virtualNodes, nodes, mappings, clusters, namespaces} {
		if err := c.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing virtual nodes, NamespaceMaps, ForeignClusters and namespaces, %w", err)
		}
	}
	byID, known := map[string]*provider{}, map[string]bool{}
	for i := range virtualNodes.Items {
		known[virtualNodes.Items[i].Spec.ClusterID.String()] = true
	}
	tenants := tenantNamespaces(namespaces.Items)
	get := func(id string) *provider {
		if byID[id] == nil {
			byID[id] = &provider{id: id, namespace: tenants.namespaceFor(id)}
		}
		return byID[id]
	}
	for i := range mappings.Items {
		mapping := &mappings.Items[i]
		id := mapping.Labels[wire.RemoteIDLabel]
		if tenants.hasMapping(mapping) && (known[id] || len(mapping.Status.CurrentMapping) > 0) {
			get(id).mapping = mapping
		}
	}
	for i := range virtualNodes.Items {
		resource := &virtualNodes.Items[i]
		if resource.DeletionTimestamp != nil {
			// No more namespaces are offloaded to the provider. Namespaces that are already offloaded stay until the
			// node is drained.
			continue
		}
		p := get(resource.Spec.ClusterID.String())
		p.nodes = append(p.nodes, virtualNode{resource: resource, node: nodeOf(resource, nodes.Items)})
	}
	for i := range clusters.Items {
		if p := byID[clusters.Items[i].Spec.ClusterID.String()]; p != nil {
			p.dead = peers.IsDead(&clusters.Items[i])
		}
	}
	ids := slices.Sorted(maps.Keys(byID))
	providers := make([]*provider, 0, len(ids))
	for _, id := range ids {
		providers = append(providers, byID[id])
	}
	return providers, nil
}

// tenantNames maps the ID of each cluster to its tenant namespace.
type tenantNames map[string]string

func tenantNamespaces(namespaces []corev1.Namespace) tenantNames {
	names := tenantNames{}
	for i := range namespaces {
		n := &namespaces[i]
		id := n.Labels[wire.RemoteClusterIDLabel]
		if n.Labels[wire.TenantNamespaceLabel] != "true" || id == "" {
			continue
		}
		if other, ok := names[id]; !ok || n.Name == wire.TenantNamespace(id) || n.Name < other && other != wire.TenantNamespace(id) {
			names[id] = n.Name
		}
	}
	return names
}

// namespaceFor returns the namespace that is labelled as the tenant namespace of the cluster. If there is none, it
// returns the default name.
func (t tenantNames) namespaceFor(id string) string {
	if name, ok := t[id]; ok {
		return name
	}
	return wire.TenantNamespace(id)
}

// hasMapping reports whether a NamespaceMap is in the tenant namespace of its provider. A NamespaceMap in another
// namespace is ignored, because its author does not represent the provider.
func (t tenantNames) hasMapping(mapping *offloading.NamespaceMap) bool {
	return peers.IsOutgoing(mapping) && mapping.Namespace == t.namespaceFor(mapping.Labels[wire.RemoteIDLabel])
}

func nodeOf(resource *offloading.VirtualNode, nodes []corev1.Node) *corev1.Node {
	for i := range nodes {
		if nodes[i].Name == resource.Name && nodes[i].Labels[wire.TypeLabel] == wire.VirtualNodeType {
			return &nodes[i]
		}
	}
	return nil
}

type selection int

const (
	unsure selection = iota
	yes
	no
)

// isSelected reports whether the selector picks any of the provider's nodes. A node is picked if both the labels of its
// Node and the labels in its VirtualNode match (see promisedLabels). If the labels of the Node were sufficient, the
// virtual kubelet could select namespaces, because it may change its Node. The result is unsure in two cases: a node on
// which the result depends is not registered, so that not all its labels are known; or only one of the two sets of
// labels matches.
func (p *provider) isSelected(s *selector) selection {
	if len(p.nodes) == 0 {
		return unsure
	}
	p.unpromised = nil
	result := no
	for _, n := range p.nodes {
		promised := s.matchesNode(n.resource.Name, n.promisedLabels())
		registered := n.node != nil && s.matchesNode(n.resource.Name, n.node.Labels)
		switch {
		case promised && (registered || n.node == nil):
			p.unpromised = nil
			return yes
		case promised || n.node == nil:
			result = unsure
		case registered:
			result = unsure
			p.unpromised = append(p.unpromised, n)
		}
	}
	return result
}

// promisedLabels returns the labels that the Node must have according to its VirtualNode, which the virtual kubelet
// cannot change.
func (n virtualNode) promisedLabels() map[string]string {
	return nodelabels.Of(n.resource.Name, n.resource.Spec.ClusterID.String(), n.resource, nil)
}

// isMapped reports whether the namespace is mapped on the provider, or was mapped when the provider has last updated
// the status.
func (p *provider) isMapped(namespace string) bool {
	if p.mapping == nil {
		return false
	}
	_, requested := p.mapping.Spec.DesiredMapping[namespace]
	_, exists := p.mapping.Status.CurrentMapping[namespace]
	return requested || exists
}

// mapNamespace requests the remote namespace in the provider's NamespaceMap, and creates the map if necessary. It does
// not request a remote namespace that belongs to another namespace. The write fails if the map has changed since it was
// read, so that it considers all other requests.
func (c *Controller) mapNamespace(ctx context.Context, nso *offloading.NamespaceOffloading, p *provider, remoteNamespace string) error {
	if err := c.ensureMap(ctx, p); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if p.isRequested(nso.Namespace) || p.findRival(nso.Namespace, remoteNamespace) != "" {
			return nil
		}
		// If the NamespaceOffloading existed only in the cache, the namespace would remain offloaded forever.
		if err := fresh.Check(ctx, c.client, c.uncached, nso); err != nil {
			return err
		}
		err := c.patchMap(ctx, p, nso.Namespace, remoteNamespace, p.mapping.ResourceVersion)
		if apierrors.IsConflict(err) {
			return errors.Join(err, c.readMap(ctx, p))
		}
		return err
	})
}

// readMap reads the NamespaceMap of the provider from the API server, because the cached one may be outdated.
func (c *Controller) readMap(ctx context.Context, p *provider) error {
	mapping := &offloading.NamespaceMap{}
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(p.mapping), mapping); err != nil {
		return fmt.Errorf("getting NamespaceMap %s, %w", client.ObjectKeyFromObject(p.mapping), err)
	}
	p.mapping = mapping
	return nil
}

// lookUpMap does the same as readMap, but a missing map is not an error.
func (c *Controller) lookUpMap(ctx context.Context, p *provider) error {
	key := client.ObjectKey{Namespace: p.namespace, Name: p.id}
	if p.mapping != nil {
		key = client.ObjectKeyFromObject(p.mapping)
	}
	mapping := &offloading.NamespaceMap{}
	err := c.uncached.Get(ctx, key, mapping)
	switch {
	case apierrors.IsNotFound(err):
		p.mapping = nil
	case err != nil:
		return fmt.Errorf("getting NamespaceMap %s, %w", key, err)
	case peers.IsOutgoing(mapping):
		p.mapping = mapping
	}
	return nil
}

// unmapNamespace removes the request for a remote namespace. The provider then deletes the remote namespace.
func (c *Controller) unmapNamespace(ctx context.Context, nso *offloading.NamespaceOffloading, p *provider) error {
	if !p.isRequested(nso.Namespace) {
		return nil
	}
	if err := fresh.Check(ctx, c.client, c.uncached, nso); err != nil {
		return err
	}
	return c.patchMap(ctx, p, nso.Namespace, nil, "")
}

// patchMap changes only the entry of this namespace, or removes it if remoteNamespace is nil. The map contains entries
// of other NamespaceOffloadings, which must not be lost even if they are missing in the cache. If version is not empty,
// the map must have this resource version.
func (c *Controller) patchMap(ctx context.Context, p *provider, namespace string, remoteNamespace any, version string) error {
	change := map[string]any{"spec": map[string]any{"desiredMapping": map[string]any{namespace: remoteNamespace}}}
	if version != "" {
		change["metadata"] = map[string]any{"resourceVersion": version}
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding patch, %w", err)
	}
	changed := p.mapping.DeepCopy()
	err = c.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if err != nil {
		return fmt.Errorf("writing NamespaceMap %s, %w", client.ObjectKeyFromObject(p.mapping), err)
	}
	p.mapping = changed
	return nil
}

// leaveProvider withdraws the namespace from a provider that its clusterSelector does not select.
func (c *Controller) leaveProvider(ctx context.Context, nso *offloading.NamespaceOffloading, p *provider) error {
	remoteNamespace := p.requestedName(nso.Namespace)
	if err := c.unmapNamespace(ctx, nso, p); err != nil || remoteNamespace == "" {
		return err
	}
	c.report.Tell(p.mapping, nso, droppedReason, offloadAction, fmt.Sprintf(
		"removed the mapping of namespace %s to %s: the clusterSelector of its NamespaceOffloading matches no virtual node of cluster %s", nso.Namespace, remoteNamespace, p.id))
	return nil
}

func (c *Controller) ensureMap(ctx context.Context, p *provider) error {
	if p.mapping != nil {
		return nil
	}
	mapping := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.namespace,
		Name:      p.id,
		Labels: map[string]string{
			wire.RemoteClusterIDLabel: p.id,
			wire.RemoteIDLabel:        p.id,
			wire.ReplicationLabel:     "true",
		},
	}}
	err := c.client.Create(ctx, mapping, client.FieldOwner(fieldManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("waiting for NamespaceMap %s to be seen (labels %s=true and %s are needed), %w",
			client.ObjectKeyFromObject(mapping), wire.ReplicationLabel, wire.RemoteIDLabel, err)
	case err != nil:
		return fmt.Errorf("creating NamespaceMap %s, %w", client.ObjectKeyFromObject(mapping), err)
	}
	p.mapping = mapping
	return nil
}
