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

// provider is a cluster that namespaces can be offloaded to, as this consumer
// knows it.
type provider struct {
	id string
	// namespace is the tenant namespace: where its NamespaceMap lives, or is to
	// be created, and where alone its VirtualNodes get rights.
	namespace string
	// nodes are its virtual nodes; none when only the map is left.
	nodes []virtualNode
	// dead: an administrator says that it never comes back.
	dead bool
	// picked by the clusterSelector, whether the namespace is mapped yet or not.
	picked bool
	// refusal is why this cluster does not request the remote namespace there, "" if it does.
	refusal string
	// leaves is when the namespace, which is not selected any more, is withdrawn
	// from it; zero when it is not.
	leaves time.Time
	// held are the volumes with data in the remote namespace, which is kept because of them. retained: until they go, not until the
	// NamespaceOffloading does.
	held     remotedata.Volumes
	retained bool
	// mapping is nil until it is needed.
	mapping *offloading.NamespaceMap
}

type virtualNode struct {
	resource *offloading.VirtualNode
	// node is nil while it is not registered.
	node *corev1.Node
}

// providers returns all clusters with virtual nodes here, and those with remote namespaces in the status of their NamespaceMap. Any
// other NamespaceMap is ignored: consumers of this cluster may create NamespaceMaps, but not write their status.
func (c *Controller) providers(ctx context.Context) ([]*provider, error) {
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
			byID[id] = &provider{id: id, namespace: tenants.of(id)}
		}
		return byID[id]
	}
	for i := range mappings.Items {
		mapping := &mappings.Items[i]
		id := mapping.Labels[wire.RemoteIDLabel]
		if tenants.has(mapping) && (known[id] || len(mapping.Status.CurrentMapping) > 0) {
			get(id).mapping = mapping
		}
	}
	for i := range virtualNodes.Items {
		resource := &virtualNodes.Items[i]
		if resource.DeletionTimestamp != nil {
			continue // no namespace is offloaded to it any more; those that are stay until it is drained
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

// tenantNames are the tenant namespaces by the id of their cluster.
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

// of returns the namespace that is labelled as the tenant namespace of the cluster, else the one of the usual name.
func (t tenantNames) of(id string) string {
	if name, ok := t[id]; ok {
		return name
	}
	return wire.TenantNamespace(id)
}

// has reports whether a NamespaceMap goes to the provider that the namespace is for. One in another namespace is ignored: its author does not
// represent the provider.
func (t tenantNames) has(mapping *offloading.NamespaceMap) bool {
	return peers.IsOutgoing(mapping) && mapping.Namespace == t.of(mapping.Labels[wire.RemoteIDLabel])
}

func nodeOf(resource *offloading.VirtualNode, nodes []corev1.Node) *corev1.Node {
	for i := range nodes {
		if nodes[i].Name == resource.Name && nodes[i].Labels[wire.TypeLabel] == wire.VirtualNodeType {
			return &nodes[i]
		}
	}
	return nil
}

type answer int

const (
	unsure answer = iota
	yes
	no
)

// selected says whether the selector picks the provider: any of its nodes is
// enough. It is unsure as long as a node that decides it is not registered,
// because what is known of it then are not all its labels, and when a Node has
// not the labels that its VirtualNode says: it lost them, and gets them back.
func (p *provider) selected(s *selector) answer {
	if len(p.nodes) == 0 {
		return unsure
	}
	result := no
	for _, n := range p.nodes {
		if s.matches(n.resource.Name, n.labels()) {
			return yes
		}
		if n.node == nil || s.matches(n.resource.Name, n.promised()) {
			result = unsure
		}
	}
	return result
}

// labels are those of the Node; before it is registered, those it will have as
// far as the VirtualNode says.
func (n virtualNode) labels() map[string]string {
	if n.node != nil {
		return n.node.Labels
	}
	return n.promised()
}

// promised are the labels that the Node is to have, as far as the VirtualNode says.
func (n virtualNode) promised() map[string]string {
	return nodelabels.Of(n.resource.Name, n.resource.Spec.ClusterID.String(), n.resource, nil)
}

// knows reports whether the namespace is mapped there, or still was at the
// provider's last word.
func (p *provider) knows(namespace string) bool {
	if p.mapping == nil {
		return false
	}
	_, requested := p.mapping.Spec.DesiredMapping[namespace]
	_, exists := p.mapping.Status.CurrentMapping[namespace]
	return requested || exists
}

// mapNamespace wishes for the remote namespace in the provider's map, and makes the map
// when there is none yet. It does not when another namespace has that remote namespace: the
// map is written as it was read, so that no request is overlooked.
func (c *Controller) mapNamespace(ctx context.Context, nso *offloading.NamespaceOffloading, p *provider, remoteNamespace string) error {
	if err := c.ensureMap(ctx, p); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if p.wishes(nso.Namespace) || p.rival(nso.Namespace, remoteNamespace) != "" {
			return nil
		}
		// One that the API server has forgotten would offload its namespace, and it would never be unoffloaded.
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

// readMap replaces what the cache said of the map.
func (c *Controller) readMap(ctx context.Context, p *provider) error {
	mapping := &offloading.NamespaceMap{}
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(p.mapping), mapping); err != nil {
		return fmt.Errorf("getting NamespaceMap %s, %w", client.ObjectKeyFromObject(p.mapping), err)
	}
	p.mapping = mapping
	return nil
}

// lookUpMap replaces what the cache said of the map, also that there is none.
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

// unmapNamespace takes the request for a remote namespace back. The provider deletes the remote namespace.
func (c *Controller) unmapNamespace(ctx context.Context, nso *offloading.NamespaceOffloading, p *provider) error {
	if !p.wishes(nso.Namespace) {
		return nil
	}
	if err := fresh.Check(ctx, c.client, c.uncached, nso); err != nil {
		return err
	}
	return c.patchMap(ctx, p, nso.Namespace, nil, "")
}

// patchMap changes nothing but the entry of this namespace, nil removes it:
// NamespaceOffloadings share the map, and one that the cache does not show yet
// must not be lost. With a version the map must still be of it.
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

// leave withdraws the namespace from a provider that its clusterSelector does not pick.
func (c *Controller) leave(ctx context.Context, nso *offloading.NamespaceOffloading, p *provider) error {
	remoteNamespace := p.requested(nso.Namespace)
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
