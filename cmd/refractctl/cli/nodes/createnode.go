// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/cmd/refractctl/cli/peerings"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peering"
)

// NewCreateVirtualNodeCommand returns the command "create virtualnode".
func NewCreateVirtualNodeCommand(access *invocation.Access) *cobra.Command {
	share := &peerings.ShareFlags{}
	var provider string
	var other invocation.RemoteCluster
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
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, args []string) error {
			resources, err := share.ParseResources()
			if err != nil {
				return invocation.UsageError(err)
			}
			if err := invocation.UsageError(invocation.CheckVirtualNode(args[0])); err != nil {
				return err
			}
			remote, err := cluster.Absent(provider)
			if err != nil {
				return invocation.UsageError(fmt.Errorf("--provider: %w", err))
			}
			if other.IsGiven() {
				if remote, err = access.RemotePeer(&other); err != nil {
					return fmt.Errorf("the provider: %w", err)
				}
			}
			consumer, err := access.PeeringCluster()
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
			o := &peering.Options{Consumer: consumer, Provider: remote, ProviderID: provider, VirtualNode: args[0], Resources: resources, Node: node, DryRun: dryRun, Progress: invocation.PrintTo(cmd.ErrOrStderr())}
			if o.AcceptedLabels, err = peerings.ParseAccepted(cmd.Flags(), accepted); err != nil {
				return invocation.UsageError(err)
			}
			joined, err := invocation.ResultWithin(cmd.Context(), timeout, o.CreateNode)
			if err != nil || dryRun {
				return err
			}
			return invocation.ResultOf(cmd).AddJoined(cmd.Context(), consumer.Client, joined)
		}),
	}
	flags := command.Flags()
	share.AddFlags(flags)
	flags.StringVar(&provider, "provider", "", "cluster id of the provider")
	other.AddFlags(command, access, "context of the provider, which is asked to grant the resources of this node", "kubeconfig of the provider, by default that of this cluster")
	flags.StringToStringVar(&node.Labels, "label", nil, "label of the node, as KEY=VALUE (may be repeated)")
	peerings.AddAcceptFlag(flags, &accepted)
	flags.StringToStringVar(&node.NodeSelector, "node-selector", nil, "label of the provider's nodes that its pods run on, as KEY=VALUE (may be repeated)")
	flags.StringVar(&node.RuntimeClass, "runtime-class-name", "", "runtime class of its pods, on the provider, which must allow it (tenants.runtimeClasses)")
	flags.StringSliceVar(&storage, "storage-class", nil, "storage class of the provider that it offers; the first one is the default (may be repeated)")
	flags.StringSliceVar(&ingress, "ingress-class", nil, "ingress class that it offers; the first one is the default (may be repeated)")
	flags.StringSliceVar(&balancers, "load-balancer-class", nil, "load balancer class that it offers; the first one is the default (may be repeated)")
	flags.BoolVar(&dryRun, "dry-run", false, "only check; change nothing")
	flags.DurationVar(&timeout, "timeout", peerings.PeerTimeout, "how long to wait")
	_ = command.MarkFlagRequired("provider")
	invocation.CompleteFlagBy(command, "provider", access.CompletePeers)
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
