// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/folderplugins"
)

// virtualNode is a virtual node of this cluster, whose virtual kubelet runs plugins.
type virtualNode struct {
	name, provider string
	// isReachable reports whether the virtual kubelet runs and can reach the provider.
	isReachable bool
	// changedAt is the time at which isReachable changed.
	changedAt time.Time
	// folder is the value of the annotation with the plugins in the folder of the virtual kubelet.
	folder string
}

// listVirtualNodes returns the virtual nodes of this cluster, sorted by name. They include VirtualNodes without a Node,
// which is missing because of spec.createNode, or because the virtual kubelet has not created it yet.
func listVirtualNodes(ctx context.Context, reader client.Reader) ([]virtualNode, error) {
	nodes, declared := &corev1.NodeList{}, &offloading.VirtualNodeList{}
	if err := reader.List(ctx, nodes, client.MatchingLabels{wire.TypeLabel: wire.VirtualNodeType}); err != nil {
		return nil, fmt.Errorf("listing virtual nodes, %w", err)
	}
	if err := reader.List(ctx, declared); err != nil {
		return nil, fmt.Errorf("listing VirtualNodes, %w", err)
	}
	found := make([]virtualNode, 0, len(nodes.Items))
	for i := range nodes.Items {
		found = append(found, registeredNode(&nodes.Items[i]))
	}
	for i := range declared.Items {
		name := declared.Items[i].Name
		if !slices.ContainsFunc(found, func(n virtualNode) bool { return n.name == name }) {
			found = append(found, declaredNode(&declared.Items[i]))
		}
	}
	slices.SortFunc(found, func(a, b virtualNode) int { return cmp.Compare(a.name, b.name) })
	return found, nil
}

// registeredNode returns the virtual node of a Node. It is reachable if the Node is ready.
func registeredNode(node *corev1.Node) virtualNode {
	n := virtualNode{name: node.Name, provider: node.Labels[wire.RemoteClusterIDLabel], changedAt: node.CreationTimestamp.Time,
		folder: node.Annotations[folderplugins.Annotation]}
	if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); ready != nil {
		n.isReachable, n.changedAt = ready.Status == corev1.ConditionTrue, ready.LastTransitionTime.Time
	}
	return n
}

// declaredNode returns the virtual node of a VirtualNode without a Node. It is reachable if it has no Node on purpose
// and its virtual kubelet runs.
func declaredNode(vn *offloading.VirtualNode) virtualNode {
	n := virtualNode{name: vn.Name, provider: string(vn.Spec.ClusterID), changedAt: vn.CreationTimestamp.Time}
	if vn.Spec.CreateNode == nil || *vn.Spec.CreateNode {
		return n
	}
	if kubelet := kubeletCondition(vn); !kubelet.LastTransitionTime.IsZero() {
		n.isReachable, n.changedAt = kubelet.Status == offloading.RunningConditionStatus, kubelet.LastTransitionTime.Time
	}
	return n
}

// kubeletCondition returns the condition of a VirtualNode about its virtual kubelet, or an empty condition if it has
// none.
func kubeletCondition(vn *offloading.VirtualNode) offloading.VirtualNodeCondition {
	for _, condition := range vn.Status.Conditions {
		if condition.Type == offloading.VirtualKubeletConditionType {
			return condition
		}
	}
	return offloading.VirtualNodeCondition{}
}

// selectNodes returns the virtual nodes whose provider matches any of the revisions. Revisions that are nil are ignored.
func selectNodes(nodes []virtualNode, revisions ...*plugins.PluginRevision) (selected []virtualNode) {
	for _, n := range nodes {
		if slices.ContainsFunc(revisions, func(r *plugins.PluginRevision) bool { return r != nil && isForProvider(r.Spec.Match, n.provider) }) {
			selected = append(selected, n)
		}
	}
	return selected
}

// isForProvider reports whether a plugin is for a provider.
func isForProvider(match *plugins.PluginMatch, provider string) bool {
	return match == nil || len(match.Providers) == 0 || slices.Contains(match.Providers, provider)
}

// maxNames is the maximum number of names of virtual nodes in a message.
const maxNames = 3

// joinNames returns a text with the first names in a list and the number of the remaining names.
func joinNames(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// checkFolders returns an error if one of the virtual kubelets that should run the plugin runs a plugin of the same
// name from its folder, because a virtual kubelet runs only one plugin of a name.
func checkFolders(p *plugins.ReflectionPlugin, nodes []virtualNode) error {
	for _, n := range nodes {
		if !isForProvider(p.Spec.Match, n.provider) {
			continue
		}
		list, err := folderplugins.Decode(map[string]string{folderplugins.Annotation: cmp.Or(n.folder, "{}")})
		if err != nil {
			// An invalid annotation is ignored, because the virtual kubelet itself refuses a plugin of the same name.
			continue
		}
		if slices.ContainsFunc(list.Plugins, func(f folderplugins.Plugin) bool { return f.Name == p.Name && f.IsRunning }) {
			return refusef(nameTakenReason,
				"metadata.name: %s is also the name of a plugin in the folder (--plugin-dir) of virtual node %s: rename one of them",
				p.Name, n.name)
		}
	}
	return nil
}

// listAll returns requests for all plugins, after a virtual node was created or deleted, or its readiness or the
// plugins in its folder have changed.
func (c *Controller) listAll(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	all := &plugins.ReflectionPluginList{}
	if err := c.client.List(ctx, all); err != nil {
		return nil // this cannot happen, because a filled cache returns no errors
	}
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}

// nodeChanges selects the events of Nodes that affect plugins. Nodes that exist at the start are read by the first
// reconciliations.
var nodeChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, isStillNode := e.ObjectNew.(*corev1.Node)
		return !isNode || !isStillNode || registeredNode(before) != registeredNode(after)
	},
}

// virtualNodeChanges selects the events of VirtualNodes that affect plugins.
var virtualNodeChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*offloading.VirtualNode)
		after, isStillNode := e.ObjectNew.(*offloading.VirtualNode)
		return !isNode || !isStillNode || declaredNode(before) != declaredNode(after)
	},
}
