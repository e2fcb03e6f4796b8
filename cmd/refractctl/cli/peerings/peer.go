// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/peering"
)

// PeerTimeout limits how long it may take until a virtual node is Ready.
const PeerTimeout = 3 * time.Minute

// twoClusters contains the flags of commands that access both a consumer and a provider.
type twoClusters struct {
	access  *invocation.Access
	remote  invocation.RemoteCluster
	dryRun  bool
	timeout time.Duration
}

func (t *twoClusters) addFlags(command *cobra.Command, patience time.Duration) {
	flags := command.Flags()
	t.remote.AddFlags(command, t.access, "context of the provider", "kubeconfig of the provider, by default that of this cluster")
	flags.BoolVar(&t.dryRun, "dry-run", false, "check, and change nothing")
	flags.DurationVar(&t.timeout, "timeout", patience, "how long to wait")
}

// peeringOptions returns the options for the two clusters.
func (t *twoClusters) peeringOptions(out io.Writer) (*peering.Options, error) {
	if !t.remote.IsGiven() {
		return nil, invocation.UsageError(errors.New("no provider is given: set --remote-context or --remote-kubeconfig"))
	}
	consumer, err := t.access.PeeringCluster()
	if err != nil {
		return nil, fmt.Errorf("the consumer: %w", err)
	}
	provider, err := t.access.RemotePeer(&t.remote)
	if err != nil {
		return nil, fmt.Errorf("the provider: %w", err)
	}
	return &peering.Options{Consumer: consumer, Provider: provider, DryRun: t.dryRun, Progress: invocation.PrintTo(out)}, nil
}

// ParseNetwork parses the value of --network.
func ParseNetwork(name string) (plugins.NetworkMode, error) {
	switch name {
	case "":
		return "", nil
	case "reachable":
		return plugins.ReachableNetwork, nil
	case "gateway":
		return plugins.GatewayNetwork, nil
	case "none":
		return plugins.NoNetwork, nil
	}
	return "", fmt.Errorf("--network is %q: use gateway, reachable or none", name)
}

// ParseRanges parses ranges of addresses in CIDR notation.
func ParseRanges(flag string, texts []string) (ranges []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not an address range: use CIDR notation, such as 10.1.0.0/16", flag, text)
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, nil
}

// NewPeerCommand returns the command "peer".
func NewPeerCommand(access *invocation.Access) *cobra.Command {
	t := &twoClusters{access: access}
	share, limits, gateway := &ShareFlags{}, &limitFlags{}, &gatewayFlags{}
	var virtualNode, server, kind, network string
	var ranges, remoteRanges, accepted []string
	var overlapping, unchecked, unconnected bool
	command := &cobra.Command{
		Use:   "peer",
		Short: "Make another cluster a node of this one",
		Long: "Join two clusters: this one, the consumer, gets a virtual node for the other one, the provider. The consumer must run Refract,\n" +
			"the provider Refract or Liqo. Everything is checked before anything is changed. The command can be run again: it\n" +
			"resumes where it was interrupted, applies changed flags, and renews the credentials with which this cluster authenticates to the\n" +
			"provider. What no flag sets stays as it is. If you have no access to the provider, ask its administrator to run refractctl generate peering-user, and pass the\n" +
			"kubeconfig as --remote-kubeconfig.",
		Example: "  refractctl peer --context=rome --remote-context=milan --cpu=8 --memory=16Gi\n" +
			"  refractctl peer --context=rome --remote-context=milan --network=gateway\n" +
			"  refractctl peer --remote-kubeconfig=milan.yaml --remote-api-server-url=https://milan.example.com:6443\n" +
			"  refractctl peer --remote-context=milan --resource=nvidia.com/gpu=2 --dry-run",
		Args: cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			if unconnected {
				if network != "" && network != "none" {
					return invocation.UsageError(fmt.Errorf("--networking-disabled is --network=none, but --network is %q: omit one", network))
				}
				network = "none"
			}
			o, err := t.peeringOptions(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			resources, err := share.ParseResources()
			if err != nil {
				return invocation.UsageError(err)
			}
			if o.TenantLimits, err = limits.parseLimits(); err != nil {
				return invocation.UsageError(err)
			}
			if kind != "" {
				if o.Credentials, err = identity.ParseKind(kind); err != nil {
					return invocation.UsageError(fmt.Errorf("--credentials: %w", err))
				}
			}
			if o.Network.Mode, err = ParseNetwork(network); err != nil {
				return invocation.UsageError(err)
			}
			if o.Gateways, err = gateway.parseSettings(cmd.Flags()); err != nil {
				return invocation.UsageError(err)
			}
			if o.Network.ConsumerRanges, err = ParseRanges("pod-cidrs", ranges); err != nil {
				return invocation.UsageError(err)
			}
			if o.Network.ProviderRanges, err = ParseRanges("remote-pod-cidrs", remoteRanges); err != nil {
				return invocation.UsageError(err)
			}
			if o.AcceptedLabels, err = ParseAccepted(cmd.Flags(), accepted); err != nil {
				return invocation.UsageError(err)
			}
			o.Resources, o.VirtualNode, o.APIServerURL = resources, virtualNode, strings.TrimSuffix(server, "/")
			o.UncheckedURL = unchecked
			if cmd.Flags().Changed("overlapping-ranges") {
				o.Network.OverlappingRanges = &overlapping
			}
			joined, err := invocation.ResultWithin(cmd.Context(), t.timeout, o.Peer)
			if err != nil || t.dryRun {
				return err
			}
			return invocation.ResultOf(cmd).AddJoined(cmd.Context(), o.Consumer.Client, joined)
		}),
	}
	t.addFlags(command, PeerTimeout)
	flags := command.Flags()
	share.AddFlags(flags)
	limits.addFlags(command)
	flags.StringVar(&kind, "credentials", "", "how this cluster authenticates to the provider: token, which the controller manager renews, or certificate, which it renews as well if authentication.enabled is set in the provider, and this command otherwise (default token); a provider that runs Liqo gives certificates")
	flags.StringVar(&network, "network", "", "what connects the pods of the clusters: gateway (gateways of Refract or Liqo in both clusters), reachable (an existing network: a VPC or VPC peering, Submariner, Cilium) or none (default gateway if both clusters run gateways, else as this cluster is installed)")
	invocation.CompleteFlag(command, "network", "gateway", "reachable", "none")
	gateway.addFlags(command, "the gateway that waits for connections")
	flags.BoolVar(&unconnected, "networking-disabled", false, "the same as --network=none, as liqoctl calls it")
	flags.StringSliceVar(&ranges, "pod-cidrs", nil, "ranges of the pods of this cluster, by default those of its nodes: set them if the network plugin uses others")
	flags.StringSliceVar(&remoteRanges, "remote-pod-cidrs", nil, "ranges of the provider's pods, as seen from here, by default those of its nodes; if set, addresses outside of them are not shown")
	invocation.CompleteFlag(command, "credentials", string(identity.Tokens), string(identity.Certificates))
	AddAcceptFlag(flags, &accepted)
	flags.StringVar(&virtualNode, "virtual-node", "", "name of the virtual node, by default that of the only one that the provider has, or its cluster ID")
	flags.StringVar(&server, "remote-api-server-url", "", "the provider's API server as pods of this cluster reach it, by default the server of the kubeconfig")
	addUncheckedFlag(flags, &unchecked, "--remote-api-server-url")
	flags.BoolVar(&overlapping, "overlapping-ranges", false, "join clusters whose pod ranges overlap, because a network between them translates addresses")
	return command
}

// AddAcceptFlag adds the flag for the labels that a provider may offer.
func AddAcceptFlag(flags *pflag.FlagSet, accepted *[]string) {
	flags.StringSliceVar(accepted, "accept-label", nil, "label of the virtual node that the provider may set, as KEY or KEY=VALUE; a * in KEY matches any characters except / (may be repeated; by default those accepted before, or none; an empty value accepts none)")
}

// ParseAccepted parses the accepted labels. It returns nil if the flag is not set.
func ParseAccepted(flags *pflag.FlagSet, items []string) (negotiation.Acceptance, error) {
	if !flags.Changed("accept-label") {
		return nil, nil
	}
	accepted, err := negotiation.ParseAcceptance(items)
	if err != nil {
		return nil, fmt.Errorf("--accept-label: %w", err)
	}
	return accepted, nil
}

// addUncheckedFlag adds the flag for addresses that only the consumer can reach.
func addUncheckedFlag(flags *pflag.FlagSet, unchecked *bool, of string) {
	flags.BoolVar(unchecked, "skip-url-check", false, "do not check that the provider answers at "+of+": for addresses that only the consumer can reach")
}

// NewUnpeerCommand returns the command "unpeer".
func NewUnpeerCommand(access *invocation.Access) *cobra.Command {
	t := &twoClusters{access: access}
	var force, deleteData bool
	command := &cobra.Command{
		Use:   "unpeer [PROVIDER]",
		Short: "End a peering",
		Long: "Drain the virtual nodes of a provider and remove them, then the access of this cluster to the provider and what the provider has for\n" +
			"this cluster. Disruption budgets are respected. Only objects created by refractctl peer are removed;\n" +
			"--dry-run lists them. A peering with data of volumes on the provider is not ended without --delete-data, and never while the reclaim\n" +
			"policy of these volumes is Retain. A provider that never comes back is given by name, with --force: its pods are considered lost and rescheduled.",
		Example: "  refractctl unpeer --context=rome --remote-context=milan\n" +
			"  refractctl unpeer milan --context=rome --force   # milan never comes back",
		Args: cobra.MaximumNArgs(1),
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, provider []string) error {
			o, end, err := t.endPeering(provider, force, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			o.DeleteData = deleteData
			removal, err := invocation.ResultWithin(cmd.Context(), t.timeout, end)
			invocation.ResultOf(cmd).AddParted(removal)
			if err != nil {
				return err
			}
			return sayEnd(cmd.ErrOrStderr(), removal, t.dryRun)
		}),
	}
	t.addFlags(command, invocation.DrainTimeout)
	command.Flags().BoolVar(&force, "force", false, "abandon the named provider: do not wait for it, and do not clean up there")
	invocation.AddDeleteDataFlag(command, &deleteData)
	command.ValidArgsFunction = access.CompletePeers
	return command
}

// NewForceUnpeerCommand returns the command that corresponds to liqoctl unpeer --force.
func NewForceUnpeerCommand(access *invocation.Access) *cobra.Command {
	command := NewUnpeerCommand(access)
	command.Use, command.Short, command.Example = "unpeer PROVIDER", "Abandon a provider that never comes back, as unpeer --force", "  refractctl force unpeer milan --context=rome"
	_ = command.Flags().Set("force", "true")
	return command
}

// sayEnd prints the result of ending a peering. It fails if there is only a peering in the other direction. Without
// this check, a user who has mixed up the clusters would believe that the peering had ended.
func sayEnd(out io.Writer, removal *peering.Removal, dryRun bool) error {
	consumer, provider := removal.Consumer, removal.Provider
	switch found := len(removal.Removed) > 0; {
	case !found && removal.IsReverse:
		return fmt.Errorf("%s is not a consumer of %s, so nothing was removed: the peering in the other direction remains. To end that, swap the two clusters", consumer, provider)
	case !found:
		fmt.Fprintf(out, "%s is not a consumer of %s: there was nothing to remove\n", consumer, provider)
	case dryRun:
	case removal.IsReverse:
		fmt.Fprintf(out, "the peering has ended; the one in the other direction, with %s as the consumer of %s, remains\n", provider, consumer)
	default:
		fmt.Fprintln(out, "the peering has ended")
	}
	return nil
}

// endPeering returns the options of a peering, and the function that ends it. This is Unpeer if the flags select the
// provider, and GiveUp if only the name of the provider is given.
func (t *twoClusters) endPeering(provider []string, force bool, out io.Writer) (o *peering.Options, end func(context.Context) (*peering.Removal, error), err error) {
	switch {
	case force != (len(provider) == 1):
		return nil, nil, invocation.UsageError(errors.New("a provider is named only with --force: refractctl unpeer PROVIDER --force, or refractctl unpeer --remote-context=CONTEXT"))
	case !force:
		o, err := t.peeringOptions(out)
		if err != nil {
			return nil, nil, err
		}
		return o, o.Unpeer, nil
	case t.remote.IsGiven():
		return nil, nil, invocation.UsageError(errors.New("--force does not contact the provider: omit --remote-context and --remote-kubeconfig"))
	}
	absent, err := cluster.Absent(provider[0])
	if err != nil {
		return nil, nil, invocation.UsageError(err)
	}
	consumer, err := t.access.PeeringCluster()
	if err != nil {
		return nil, nil, err
	}
	o = &peering.Options{Consumer: consumer, Provider: absent, DryRun: t.dryRun, Progress: invocation.PrintTo(out)}
	return o, o.GiveUp, nil
}
