// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/peering"
)

// networkTimeout limits how long it may take until gateways are connected. It includes pulling their images and creating a
// load balancer.
const networkTimeout = 3 * time.Minute

// gatewayFlags are the flags of gateways. Their names are those of liqoctl.
type gatewayFlags struct {
	location, serviceType, loadBalancerIP, address string
	port, nodePort, clientPort, mtu                int
}

func (g *gatewayFlags) addFlags(command *cobra.Command, server string) {
	flags := command.Flags()
	g.addServerFlags(command, server)
	flags.StringVar(&g.location, "gw-server-service-location", "", "cluster whose gateway waits for connections, the one that the other one can reach: Consumer or Provider (default Provider)")
	invocation.CompleteFlag(command, "gw-server-service-location", string(gateways.Consumer), string(gateways.Provider))
}

// addServerFlags adds the flags for the gateway that waits for connections.
func (g *gatewayFlags) addServerFlags(command *cobra.Command, server string) {
	flags := command.Flags()
	flags.StringVar(&g.serviceType, "gw-server-service-type", "", "type of the Service of "+server+": LoadBalancer, NodePort or ClusterIP (default LoadBalancer)")
	invocation.CompleteFlag(command, "gw-server-service-type", string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeClusterIP))
	flags.IntVar(&g.port, "gw-server-service-port", 0, "UDP port of that Service (default 51840)")
	flags.IntVar(&g.nodePort, "gw-server-service-nodeport", 0, "node port of that Service, by default chosen by Kubernetes")
	flags.StringVar(&g.loadBalancerIP, "gw-server-service-loadbalancerip", "", "address of the load balancer of that Service, if its provider accepts a request for one")
	flags.StringVar(&g.address, "gw-client-address", "", "address or name at which the other gateway reaches "+server+", by default that of its Service")
	flags.IntVar(&g.clientPort, "gw-client-port", 0, "UDP port at that address, by default that of the Service")
	flags.IntVar(&g.mtu, "mtu", 0, "MTU of the tunnel in bytes (default 1340)")
}

// serviceTypes are the types of Services that a gateway may have.
var serviceTypes = []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP}

// minMTU and maxMTU are the limits of the MTU of a tunnel: IPv6 hosts and many applications expect 1280 bytes, and an IP packet has at
// most 65535.
const minMTU, maxMTU = 1280, 65535

// parseSettings returns the settings of the gateways.
func (g *gatewayFlags) parseSettings(flags *pflag.FlagSet) (s gateways.Settings, err error) {
	s = gateways.Settings{
		Server: gateways.Location(g.location), ServiceType: corev1.ServiceType(g.serviceType), Port: int32(g.port), NodePort: int32(g.nodePort), //nolint:gosec // checked below
		LoadBalancerIP: g.loadBalancerIP, ClientAddress: g.address, ClientPort: int32(g.clientPort), MTU: g.mtu, //nolint:gosec // likewise
	}
	if flags.Changed("gw-server-service-location") && s.Server != gateways.Consumer && s.Server != gateways.Provider {
		return s, fmt.Errorf("--gw-server-service-location is %q: use Consumer or Provider", g.location)
	}
	if flags.Changed("gw-server-service-type") && !slices.Contains(serviceTypes, s.ServiceType) {
		return s, fmt.Errorf("--gw-server-service-type is %q: use LoadBalancer, NodePort or ClusterIP", g.serviceType)
	}
	for name, port := range map[string]int{"gw-server-service-port": g.port, "gw-server-service-nodeport": g.nodePort, "gw-client-port": g.clientPort} {
		if flags.Changed(name) && (port < 1 || port > 65535) {
			return s, fmt.Errorf("--%s is %d, which is not a UDP port: use 1 to 65535", name, port)
		}
	}
	if flags.Changed("mtu") && (g.mtu < minMTU || g.mtu > maxMTU) {
		return s, fmt.Errorf("--mtu is %d: use %d to %d", g.mtu, minMTU, maxMTU)
	}
	if ip, err := netip.ParseAddr(g.loadBalancerIP); flags.Changed("gw-server-service-loadbalancerip") && (err != nil || !ip.Is4()) {
		return s, fmt.Errorf("--gw-server-service-loadbalancerip is %q: use an IPv4 address", g.loadBalancerIP)
	}
	if flags.Changed("gw-client-address") {
		if ip, err := netip.ParseAddr(g.address); err == nil && ip.Is4() && !ip.IsUnspecified() && !ip.IsLoopback() {
			return s, nil
		}
		if _, err := netip.ParseAddr(g.address); err == nil || len(validation.IsDNS1123Subdomain(g.address)) > 0 {
			return s, fmt.Errorf("--gw-client-address is %q: use an IPv4 address that the other cluster reaches, or a name", g.address)
		}
	}
	return s, nil
}

// networkPair contains the flags of commands that connect two networks.
type networkPair struct {
	twoClusters
	gateways             gatewayFlags
	ranges, remoteRanges []string
}

// options returns the options for the two clusters.
func (n *networkPair) options(cmd *cobra.Command) (*peering.Options, error) {
	o, err := n.peeringOptions(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	if o.Gateways, err = n.gateways.parseSettings(cmd.Flags()); err != nil {
		return nil, invocation.UsageError(err)
	}
	if o.Network.ConsumerRanges, err = ParseRanges("pod-cidrs", n.ranges); err != nil {
		return nil, invocation.UsageError(err)
	}
	if o.Network.ProviderRanges, err = ParseRanges("remote-pod-cidrs", n.remoteRanges); err != nil {
		return nil, invocation.UsageError(err)
	}
	return o, nil
}

// NewNetworkConnectCommand returns the command "network connect".
func NewNetworkConnectCommand(access *invocation.Access) *cobra.Command {
	n := &networkPair{twoClusters: twoClusters{access: access}}
	command := &cobra.Command{
		Use:   "connect",
		Short: "Connect the networks of two clusters through gateways",
		Long: "Create the gateways of two clusters, exchange their ranges and public keys, and wait until they are connected. refractctl peer\n" +
			"--network=gateway does the same. The clusters may have the same ranges. The objects are those of liqoctl, and either cluster may\n" +
			"run Liqo. The command can be run again, also after an address has changed.",
		Example: "  refractctl network connect --context=rome --remote-context=milan\n" +
			"  refractctl network connect --remote-context=milan --gw-server-service-type=NodePort",
		Args: cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			o, err := n.options(cmd)
			if err != nil {
				return err
			}
			return invocation.RunWithin(cmd.Context(), n.timeout, o.ConnectNetworks)
		}),
	}
	n.addFlags(command, networkTimeout)
	n.gateways.addFlags(command, "the gateway that waits for connections")
	flags := command.Flags()
	flags.StringSliceVar(&n.ranges, "pod-cidrs", nil, "ranges of the pods of this cluster, by default found in it")
	flags.StringSliceVar(&n.remoteRanges, "remote-pod-cidrs", nil, "ranges of the pods of the other cluster, by default found in it")
	return command
}

// NewNetworkDisconnectCommand returns the command "network disconnect".
func NewNetworkDisconnectCommand(access *invocation.Access) *cobra.Command {
	t := &twoClusters{access: access}
	var release bool
	command := &cobra.Command{
		Use:   "disconnect [PEER]",
		Short: "Remove the gateways between two clusters",
		Long: "Remove the gateways that connect the networks of two clusters, and the public keys. Pods of the clusters no longer reach each\n" +
			"other, and their endpoints become not ready. The ranges by which the clusters reach each other stay reserved for the next connection,\n" +
			"unless --release-ranges is set. A peer that cannot be accessed is given by its ID: then only the objects in this cluster are removed.",
		Example: "  refractctl network disconnect --context=rome --remote-context=milan\n" +
			"  refractctl network disconnect milan --context=rome   # milan cannot be accessed",
		Args: cobra.MaximumNArgs(1),
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, peer []string) error {
			o, err := disconnectOptions(t, peer, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			removal, err := invocation.ResultWithin(cmd.Context(), t.timeout, func(ctx context.Context) (*peering.Removal, error) {
				return o.DisconnectNetworks(ctx, release)
			})
			invocation.ResultOf(cmd).AddParted(removal)
			if err != nil {
				return err
			}
			switch {
			case len(removal.Removed) == 0:
				fmt.Fprintf(cmd.ErrOrStderr(), "no gateways connect %s and %s: there was nothing to remove\n", removal.Consumer, removal.Provider)
			case !t.dryRun:
				fmt.Fprintf(cmd.ErrOrStderr(), "the networks of %s and %s are disconnected\n", removal.Consumer, removal.Provider)
			}
			return nil
		}),
	}
	t.addFlags(command, networkTimeout)
	command.Flags().BoolVar(&release, "release-ranges", false, "also remove the Configurations, so that other peers can get their ranges")
	command.ValidArgsFunction = access.CompletePeers
	return command
}

// disconnectOptions returns the options for two clusters, or for this cluster and the ID of a peer.
func disconnectOptions(t *twoClusters, peer []string, out io.Writer) (*peering.Options, error) {
	switch {
	case len(peer) == 0:
		return t.peeringOptions(out)
	case t.remote.IsGiven():
		return nil, invocation.UsageError(errors.New("a peer is named only if it cannot be accessed: omit its name, or --remote-context and --remote-kubeconfig"))
	}
	absent, err := cluster.Absent(peer[0])
	if err != nil {
		return nil, invocation.UsageError(err)
	}
	consumer, err := t.access.PeeringCluster()
	if err != nil {
		return nil, err
	}
	return &peering.Options{Consumer: consumer, Provider: absent, DryRun: t.dryRun, Progress: invocation.PrintTo(out)}, nil
}

// NewNetworkRotateCommand returns the command "network rotate".
func NewNetworkRotateCommand(access *invocation.Access) *cobra.Command {
	n := &networkPair{twoClusters: twoClusters{access: access}}
	command := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the keys of the gateways of two clusters",
		Long: "Replace the keys of the gateways that connect two clusters, because others may know them. New keys are made in each cluster, and only\n" +
			"public keys are exchanged. The connection is down until the gateways run with the new keys.",
		Example: "  refractctl network rotate --context=rome --remote-context=milan",
		Args:    cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			o, err := n.peeringOptions(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return invocation.RunWithin(cmd.Context(), n.timeout, o.RotateKeys)
		}),
	}
	n.addFlags(command, networkTimeout)
	return command
}

// NewNetworkStatusCommand returns the command "network status".
func NewNetworkStatusCommand(access *invocation.Access) *cobra.Command {
	var output *invocation.Output
	command := &cobra.Command{
		Use:   "status [PEER...]",
		Short: "Show the gateways of a cluster and their connections",
		Long: "Show the gateways of this cluster, whether they are connected, and the ranges of their peers. A translated range is shown with the\n" +
			"range by which this cluster reaches it, as RANGE=LOCAL-RANGE. The exit code is 3 if a gateway is not connected.",
		Example: "  refractctl network status --context=rome\n" +
			"  refractctl network status milan -o json",
		ValidArgsFunction: access.CompletePeers,
	}
	command.RunE = invocation.ExplainErrors(func(cmd *cobra.Command, peers []string) error {
		if err := output.ValidateFormat(); err != nil {
			return err
		}
		c, err := access.PeeringCluster()
		if err != nil {
			return err
		}
		side, err := c.InspectAsProvider(cmd.Context())
		if err != nil {
			return err
		}
		states, err := gateways.List(cmd.Context(), side)
		if err != nil {
			return err
		}
		if states, err = selectStates(states, peers, side.ID()); err != nil {
			return err
		}
		return printStates(cmd, output, states)
	})
	output = invocation.AddOutput(command, "", "", invocation.Wide)
	return command
}

// selectStates returns the states of the given peers, or all states if no peers are given.
func selectStates(states []gateways.State, peers []string, cluster string) (selected []gateways.State, err error) {
	if len(peers) == 0 {
		return states, nil
	}
	for _, peer := range peers {
		at := slices.IndexFunc(states, func(s gateways.State) bool { return s.Peer == peer })
		if at < 0 {
			return nil, fmt.Errorf("no gateway connects %s and %s: connect them with refractctl network connect", cluster, peer)
		}
		selected = append(selected, states[at])
	}
	return selected, nil
}

// printStates prints the states. It returns an error if a gateway is not connected.
func printStates(cmd *cobra.Command, output *invocation.Output, states []gateways.State) (err error) {
	switch {
	case !output.IsTable():
		err = output.PrintValue(cmd.OutOrStdout(), "Gateways", &struct {
			Gateways []gateways.State `json:"gateways"`
		}{states})
	case len(states) == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "no gateways connect this cluster with others")
	default:
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		invocation.PrintSection(table, "PEER\tROLE\tSTATE\tLATENCY\tPODS\tENDPOINT\tRANGES\tMESSAGE", states, func(s gateways.State) []string {
			return []string{s.Peer, string(s.Role), string(s.Value), s.Latency, s.Pods, s.Endpoint, strings.Join(s.Ranges, " "), s.Problem}
		})
		err = table.Flush()
	}
	var down []string
	for i := range states {
		if !states[i].IsConnected() {
			down = append(down, states[i].Peer)
		}
	}
	if err == nil && len(down) > 0 {
		err = invocation.FindingsError(fmt.Errorf("not connected: %s", strings.Join(down, ", ")))
	}
	return err
}
