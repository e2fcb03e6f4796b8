// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peering"
)

func newCreateVirtualNodeCommand(access *clusterAccess) *cobra.Command {
	share := &shareFlags{}
	var provider string
	var other remoteCluster
	var dryRun bool
	var timeout time.Duration
	var node peering.NodeOptions
	var storage, ingress, balancers, accepted []string
	command := &cobra.Command{
		Use:     "virtualnode NAME",
		Aliases: []string{"vn"},
		Short:   "Create another virtual node for a provider",
		Long: "Create another virtual node for a peered provider, such as one for its GPU nodes. The first one is created by refractctl peer. All of\n" +
			"them share the quota of the provider. Classes and labels that no flag sets are those that the provider offers to the first one; with\n" +
			"--remote-context it is asked for those, and the resources, of this one. The command can be run again: what no flag sets then stays\n" +
			"as it is.",
		Example: "  refractctl create virtualnode milan-gpu --provider=milan --cpu=8 --resource=nvidia.com/gpu=2 --node-selector=gpu=true\n" +
			"  refractctl create virtualnode milan-fast --provider=milan --storage-class=nvme --label=tier=fast",
		Args: cobra.ExactArgs(1),
		RunE: explainErrors(func(cmd *cobra.Command, args []string) error {
			resources, err := share.parseResources()
			if err != nil {
				return usageError(err)
			}
			if err := usageError(checkVirtualNode(args[0])); err != nil {
				return err
			}
			remote, err := cluster.Absent(provider)
			if err != nil {
				return usageError(fmt.Errorf("--provider: %w", err))
			}
			if other.isGiven() {
				if remote, err = access.remotePeer(&other); err != nil {
					return fmt.Errorf("the provider: %w", err)
				}
			}
			consumer, err := access.peeringCluster()
			if err != nil {
				return err
			}
			for _, class := range classesOf(storage) {
				node.StorageClasses = append(node.StorageClasses, offloading.StorageType{StorageClassName: class.name, Default: class.byDefault})
			}
			for _, class := range classesOf(ingress) {
				node.IngressClasses = append(node.IngressClasses, offloading.IngressType{IngressClassName: class.name, Default: class.byDefault})
			}
			for _, class := range classesOf(balancers) {
				node.LoadBalancerClasses = append(node.LoadBalancerClasses, offloading.LoadBalancerType{LoadBalancerClassName: class.name, Default: class.byDefault})
			}
			o := &peering.Options{Consumer: consumer, Provider: remote, ProviderID: provider, VirtualNode: args[0], Resources: resources, Node: node, DryRun: dryRun, Progress: printTo(cmd.ErrOrStderr())}
			if o.AcceptedLabels, err = parseAccepted(cmd.Flags(), accepted); err != nil {
				return usageError(err)
			}
			joined, err := resultWithin(cmd.Context(), timeout, o.CreateNode)
			if err != nil || dryRun {
				return err
			}
			return resultOf(cmd).addJoined(cmd.Context(), consumer.Client, joined)
		}),
	}
	flags := command.Flags()
	share.addFlags(flags)
	flags.StringVar(&provider, "provider", "", "cluster id of the provider")
	other.addFlags(command, access, "context of the provider, which is asked to grant the resources of this node", "kubeconfig of the provider, by default that of this cluster")
	flags.StringToStringVar(&node.Labels, "label", nil, "label of the node, as KEY=VALUE (may be repeated)")
	addAcceptFlag(flags, &accepted)
	flags.StringToStringVar(&node.NodeSelector, "node-selector", nil, "label of the provider's nodes that its pods run on, as KEY=VALUE (may be repeated)")
	flags.StringVar(&node.RuntimeClass, "runtime-class-name", "", "runtime class of its pods, on the provider, which must allow it (tenants.runtimeClasses)")
	flags.StringSliceVar(&storage, "storage-class", nil, "storage class of the provider that it offers; the first one is the default (may be repeated)")
	flags.StringSliceVar(&ingress, "ingress-class", nil, "ingress class that it offers; the first one is the default (may be repeated)")
	flags.StringSliceVar(&balancers, "load-balancer-class", nil, "load balancer class that it offers; the first one is the default (may be repeated)")
	flags.BoolVar(&dryRun, "dry-run", false, "only check; change nothing")
	flags.DurationVar(&timeout, "timeout", peerTimeout, "how long to wait")
	_ = command.MarkFlagRequired("provider")
	completeFlagBy(command, "provider", access.completePeers)
	return command
}

// class is the name of a provider's class, and whether it is the default.
type class struct {
	name      string
	byDefault bool
}

func classesOf(names []string) (found []class) {
	for i, name := range names {
		found = append(found, class{name, i == 0})
	}
	return found
}

func newGetVirtualNodeCommand(access *clusterAccess) *cobra.Command {
	var output *output
	command := &cobra.Command{
		Use:     "virtualnode [NAME...]",
		Aliases: []string{"virtualnodes", "vn"},
		Short:   "Show virtual nodes",
		Example: "  refractctl get virtualnode\n" +
			"  refractctl get virtualnode milan -o json",
		ValidArgsFunction: access.completeVirtualNodes,
		RunE: explainErrors(func(cmd *cobra.Command, names []string) error {
			if err := output.validateFormat(); err != nil {
				return err
			}
			c, err := access.newClient(requestTimeout)
			if err != nil {
				return err
			}
			nodes, err := gatherNodes(cmd.Context(), c)
			if err != nil {
				return err
			}
			all := namesOf(nodes, func(n virtualNodeInfo) string { return n.Name })
			for _, name := range names {
				if !slices.Contains(all, name) {
					return fmt.Errorf("there is no virtual node %s: this cluster has %s", name, cmp.Or(strings.Join(all, ", "), "none"))
				}
			}
			shown := &info{VirtualNodes: slices.DeleteFunc(nodes, func(n virtualNodeInfo) bool { return len(names) > 0 && !slices.Contains(names, n.Name) })}
			switch {
			case output.isTable():
				return shown.printNodes(cmd.OutOrStdout(), output.givenFormat() == wide)
			case output.givenFormat() == "name":
				return shown.printNames(cmd.OutOrStdout())
			}
			return output.printValue(cmd.OutOrStdout(), "VirtualNodes", &struct {
				Items []virtualNodeInfo `json:"items"`
			}{shown.VirtualNodes})
		}),
	}
	output = addOutput(command, "", "", wide)
	return command
}
