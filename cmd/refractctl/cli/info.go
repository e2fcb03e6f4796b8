// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/cmd/refractctl/cli/namespaces"
	"github.com/refract-project/refract/internal/negotiation"
)

// info is the output of the command info for a cluster. Its lists are sorted by name.
type info struct {
	Clusters     []clusterInfo     `json:"clusters"`
	VirtualNodes []virtualNodeInfo `json:"virtualNodes"`
	Namespaces   []namespaceInfo   `json:"namespaces"`
	Pods         []podsInfo        `json:"pods"`
}

// clusterInfo describes a ForeignCluster.
type clusterInfo struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	APIServer string `json:"apiServer"`
	Network   string `json:"network"`
	// Conditions are the conditions of the cluster, with their reasons.
	Conditions []conditionInfo `json:"conditions,omitempty"`
}

// conditionInfo is a condition of a ForeignCluster.
type conditionInfo struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Since   string `json:"since,omitempty"`
	Message string `json:"message,omitempty"`
}

// virtualNodeInfo describes a VirtualNode and its Node.
type virtualNodeInfo struct {
	Name     string            `json:"name"`
	Cluster  string            `json:"cluster"`
	Node     string            `json:"node"` // Ready, NotReady, Unknown or Missing
	Capacity map[string]string `json:"capacity,omitempty"`
	// StorageClasses, IngressClasses and LoadBalancerClasses are the provider's classes that the node offers. The
	// default classes are marked.
	StorageClasses      []string `json:"storageClasses,omitempty"`
	IngressClasses      []string `json:"ingressClasses,omitempty"`
	LoadBalancerClasses []string `json:"loadBalancerClasses,omitempty"`
	// Offer is the answer from the provider (Accepted, Denied or NotNegotiated) and its reason. It is empty if the node
	// does not follow an offer.
	Offer string `json:"offer,omitempty"`
	// Requested lists the resources that were requested from the provider.
	Requested string `json:"requested,omitempty"`
}

// namespaceInfo describes a NamespaceOffloading.
type namespaceInfo struct {
	Name     string   `json:"name"`
	Remote   string   `json:"remoteNamespace"`
	Pods     string   `json:"pods"` // the pod offloading strategy
	Phase    string   `json:"phase"`
	Clusters []string `json:"clusters"`
}

// podsInfo counts the offloaded pods of one namespace on one virtual node.
type podsInfo struct {
	Namespace string         `json:"namespace"`
	Node      string         `json:"node"`
	Ready     int            `json:"ready"`
	Phases    map[string]int `json:"phases"`
}

func newInfoCommand(access *invocation.Access) *cobra.Command {
	var output *invocation.Output
	command := &cobra.Command{
		Use:   "info [PEER...]",
		Short: "Show peers, virtual nodes, offloaded namespaces and pods",
		Long: "Show the peers of this cluster, their virtual nodes, the namespaces offloaded to them, and the pods that run there. For peers given by\n" +
			"cluster ID, conditions are shown as well.",
		Example: "  refractctl info\n" +
			"  refractctl info milan\n" +
			"  refractctl info -n shop -o wide\n" +
			"  refractctl info --context=home -o jsonpath='{.virtualNodes[*].name}'",
		ValidArgsFunction: access.CompletePeers,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, peers []string) error {
			if err := output.ValidateFormat(); err != nil {
				return err
			}
			c, err := access.NewClient(invocation.RequestTimeout)
			if err != nil {
				return err
			}
			gathered, err := gatherInfo(cmd.Context(), c, access.NamespaceFlag())
			if err == nil && len(peers) > 0 {
				err = gathered.keepPeers(peers)
			}
			if err != nil {
				return err
			}
			switch {
			case output.IsTable():
				return gathered.printTables(cmd.OutOrStdout(), output.GivenFormat() == invocation.Wide, len(peers) > 0)
			case output.GivenFormat() == "name":
				return gathered.printNames(cmd.OutOrStdout())
			}
			return output.PrintValue(cmd.OutOrStdout(), "Info", gathered)
		}),
	}
	output = invocation.AddOutput(command, "", "", invocation.Wide)
	return command
}

// gatherInfo reads the information about a cluster. It includes the offloadings and pods of one namespace, or of all
// namespaces if namespace is "".
func gatherInfo(ctx context.Context, c client.Client, namespace string) (*info, error) {
	clusters, offloadings := &core.ForeignClusterList{}, &offloading.NamespaceOffloadingList{}
	if err := invocation.FillLists(ctx, c, clusters); err != nil {
		return nil, err
	}
	nodes, err := gatherNodes(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := c.List(ctx, offloadings, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing %s, %w", invocation.KindsOf(offloadings), err)
	}
	pods, err := offloadedPods(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return &info{
		Clusters: describeClusters(clusters.Items), VirtualNodes: nodes, Namespaces: describeNamespaces(offloadings.Items), Pods: countPods(pods),
	}, nil
}

// podsAtOnce is the page size for listing pods. It keeps each request short, because a cluster may have ten thousand
// offloaded pods.
const podsAtOnce = 500

// offloadedPods lists the offloaded pods of a namespace, or of all namespaces if namespace is "".
func offloadedPods(ctx context.Context, c client.Client, namespace string) (pods []corev1.Pod, err error) {
	for next := ""; ; {
		page := &corev1.PodList{}
		err := c.List(ctx, page, client.InNamespace(namespace), client.MatchingLabels{wire.OffloadedPodLabel: "true"}, client.Limit(podsAtOnce), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing offloaded pods, %w", err)
		}
		pods = append(pods, page.Items...)
		if next = page.Continue; next == "" {
			return pods, nil
		}
	}
}

// gatherNodes reads the virtual nodes of a cluster.
func gatherNodes(ctx context.Context, c client.Client) ([]virtualNodeInfo, error) {
	virtualNodes, nodes := &offloading.VirtualNodeList{}, &corev1.NodeList{}
	if err := invocation.FillLists(ctx, c, virtualNodes); err != nil {
		return nil, err
	}
	if err := c.List(ctx, nodes, client.MatchingLabels{wire.TypeLabel: wire.VirtualNodeType}); err != nil {
		return nil, fmt.Errorf("listing virtual nodes, %w", err)
	}
	return describeNodes(virtualNodes.Items, nodes.Items), nil
}

func describeClusters(clusters []core.ForeignCluster) []clusterInfo {
	described := make([]clusterInfo, 0, len(clusters))
	for i := range clusters {
		status := &clusters[i].Status
		network := "NotChecked"
		if known := core.ConditionOf(status.Conditions, core.NetworkStatusCondition); known != core.ConditionStatusNone {
			network = string(known)
		} else if status.Modules.Networking.Enabled {
			network = string(core.ConditionOf(status.Modules.Networking.Conditions, core.NetworkConnectionStatusCondition))
		}
		described = append(described, clusterInfo{
			ID: string(clusters[i].Spec.ClusterID), Role: string(status.Role), Network: network,
			APIServer: string(core.ConditionOf(status.Conditions, core.APIServerStatusCondition)), Conditions: describeConditions(status.Conditions),
		})
	}
	return described
}

func describeConditions(conditions []core.Condition) []conditionInfo {
	described := make([]conditionInfo, 0, len(conditions))
	for _, c := range conditions {
		one := conditionInfo{Type: string(c.Type), Status: string(c.Status), Message: c.Message}
		if !c.LastTransitionTime.IsZero() {
			one.Since = c.LastTransitionTime.UTC().Format(time.RFC3339)
		}
		described = append(described, one)
	}
	return described
}

func describeNodes(virtualNodes []offloading.VirtualNode, nodes []corev1.Node) []virtualNodeInfo {
	described := make([]virtualNodeInfo, 0, len(virtualNodes))
	for i := range virtualNodes {
		spec, annotations := &virtualNodes[i].Spec, virtualNodes[i].Annotations
		vn := virtualNodeInfo{
			Name: virtualNodes[i].Name, Cluster: string(spec.ClusterID), Node: "Missing", StorageClasses: negotiation.StorageNames(spec.StorageClasses), IngressClasses: negotiation.IngressNames(spec.IngressClasses),
			LoadBalancerClasses: negotiation.LoadBalancerNames(spec.LoadBalancerClasses), Offer: annotations[wire.OfferAnnotation], Requested: annotations[wire.RequestedResourcesAnnotation],
		}
		for j := range nodes {
			if nodes[j].Name == vn.Name {
				vn.Node, vn.Capacity = nodeReadiness(&nodes[j]), map[string]string{}
				for name, quantity := range nodes[j].Status.Capacity {
					vn.Capacity[string(name)] = quantity.String()
				}
			}
		}
		described = append(described, vn)
	}
	return described
}

func nodeReadiness(node *corev1.Node) string {
	switch _, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); {
	case condition == nil || condition.Status == corev1.ConditionUnknown:
		return "Unknown"
	case condition.Status == corev1.ConditionTrue:
		return "Ready"
	}
	return "NotReady"
}

func describeNamespaces(offloadings []offloading.NamespaceOffloading) []namespaceInfo {
	described := make([]namespaceInfo, 0, len(offloadings))
	for i := range offloadings {
		nso := &offloadings[i]
		described = append(described, namespaceInfo{
			Name: nso.Namespace, Remote: nso.Status.RemoteNamespaceName, Pods: string(nso.Spec.PodOffloadingStrategy),
			Phase: string(nso.Status.OffloadingPhase), Clusters: namespaces.SelectedClusters(nso),
		})
	}
	return described
}

func countPods(pods []corev1.Pod) []podsInfo {
	counts := map[[2]string]*podsInfo{}
	for i := range pods {
		pod := &pods[i]
		key := [2]string{pod.Namespace, pod.Spec.NodeName}
		if counts[key] == nil {
			counts[key] = &podsInfo{Namespace: key[0], Node: key[1], Phases: map[string]int{}}
		}
		counts[key].Phases[string(pod.Status.Phase)]++
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				counts[key].Ready++
			}
		}
	}
	sorted := make([]podsInfo, 0, len(counts))
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		sorted = append(sorted, *counts[key])
	}
	return sorted
}

// keepPeers removes all information that is not about the given peers. It fails if a peer is unknown.
func (i *info) keepPeers(peers []string) error {
	for _, peer := range peers {
		if !slices.ContainsFunc(i.Clusters, func(c clusterInfo) bool { return c.ID == peer }) {
			return fmt.Errorf("there is no peer %s: this cluster knows %s", peer, cmp.Or(strings.Join(namesOf(i.Clusters, func(c clusterInfo) string { return c.ID }), ", "), "none"))
		}
	}
	named := func(id string) bool { return slices.Contains(peers, id) }
	i.Clusters = slices.DeleteFunc(i.Clusters, func(c clusterInfo) bool { return !named(c.ID) })
	i.VirtualNodes = slices.DeleteFunc(i.VirtualNodes, func(n virtualNodeInfo) bool { return !named(n.Cluster) })
	i.Namespaces = slices.DeleteFunc(i.Namespaces, func(n namespaceInfo) bool { return !slices.ContainsFunc(n.Clusters, named) })
	i.Pods = slices.DeleteFunc(i.Pods, func(p podsInfo) bool {
		return !slices.ContainsFunc(i.VirtualNodes, func(n virtualNodeInfo) bool { return n.Name == p.Node })
	})
	return nil
}

// printNames writes the names of all objects as "kind.group/name", one per line.
func (i *info) printNames(out io.Writer) error {
	for _, list := range []struct {
		kind  string
		names []string
	}{
		{"foreigncluster." + core.GroupVersion.Group, namesOf(i.Clusters, func(c clusterInfo) string { return c.ID })},
		{"virtualnode." + offloading.GroupVersion.Group, namesOf(i.VirtualNodes, func(n virtualNodeInfo) string { return n.Name })},
		{"namespace", namesOf(i.Namespaces, func(n namespaceInfo) string { return n.Name })},
	} {
		for _, name := range list.names {
			if _, err := fmt.Fprintf(out, "%s/%s\n", list.kind, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func namesOf[T any](rows []T, name func(T) string) (names []string) {
	for _, row := range rows {
		names = append(names, name(row))
	}
	return names
}

// otherResources lists the resources of a virtual node that have no separate column in the table. It returns "" if
// there are none.
func (n *virtualNodeInfo) otherResources() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n.Capacity)) {
		if name != "cpu" && name != "memory" && name != "pods" {
			all = append(all, name+"="+n.Capacity[name])
		}
	}
	return strings.Join(all, ",")
}

// printTables writes all tables. If wide is true, they have additional columns.
func (i *info) printTables(out io.Writer, wide, conditions bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	invocation.PrintSection(table, "CLUSTER\tROLE\tAPI SERVER\tNETWORK", i.Clusters, func(c clusterInfo) []string {
		return []string{c.ID, c.Role, c.APIServer, c.Network}
	})
	for _, c := range i.Clusters {
		if conditions {
			invocation.PrintSection(table, "CONDITION OF "+c.ID+"\tSTATUS\tSINCE\tMESSAGE", c.Conditions, func(c conditionInfo) []string {
				return []string{c.Type, c.Status, c.Since, c.Message}
			})
		}
	}
	i.writeNodes(table, wide)
	for j := range i.VirtualNodes {
		if answer, why, _ := strings.Cut(i.VirtualNodes[j].Offer, ": "); conditions && why != "" {
			invocation.PrintSection(table, "OFFER TO "+i.VirtualNodes[j].Name+"\tMESSAGE", []string{why}, func(why string) []string { return []string{answer, why} })
		}
	}
	invocation.PrintSection(table, "NAMESPACE\tREMOTE NAMESPACE\tPHASE\tPODS RUN\tCLUSTERS", i.Namespaces, func(n namespaceInfo) []string {
		return []string{n.Name, n.Remote, n.Phase, n.Pods, strings.Join(n.Clusters, ",")}
	})
	invocation.PrintSection(table, "OFFLOADED PODS OF\tON\tREADY\tPHASES", i.Pods, func(p podsInfo) []string {
		var phases []string
		for _, phase := range slices.Sorted(maps.Keys(p.Phases)) {
			phases = append(phases, fmt.Sprintf("%s %d", phase, p.Phases[phase]))
		}
		return []string{p.Namespace, p.Node, fmt.Sprint(p.Ready), strings.Join(phases, ", ")}
	})
	return table.Flush()
}

// printNodes writes only the table of virtual nodes.
func (i *info) printNodes(out io.Writer, wide bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	i.writeNodes(table, wide)
	return table.Flush()
}

func (i *info) writeNodes(table io.Writer, wide bool) {
	header := "VIRTUAL NODE\tCLUSTER\tNODE\tOFFER\tCPU\tMEMORY\tPODS"
	if wide {
		header += "\tOTHER RESOURCES\tREQUESTED\tSTORAGE\tINGRESS\tLOAD BALANCERS"
	}
	invocation.PrintSection(table, header, i.VirtualNodes, func(n virtualNodeInfo) []string {
		answer, _, _ := strings.Cut(n.Offer, ":")
		cells := []string{n.Name, n.Cluster, n.Node, answer, n.Capacity["cpu"], n.Capacity["memory"], n.Capacity["pods"]}
		if wide {
			cells = append(cells, n.otherResources(), n.Requested, strings.Join(n.StorageClasses, ", "), strings.Join(n.IngressClasses, ", "), strings.Join(n.LoadBalancerClasses, ", "))
		}
		return cells
	})
}
