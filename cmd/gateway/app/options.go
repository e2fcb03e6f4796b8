// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/gateway/tunnel"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
)

// options contains the flags that both commands have.
type options struct {
	kubeconfig, installation      string
	mtu                           int
	metricsAddress, healthAddress string
	profiling                     bool
	logs                          cmdutil.Logs
}

func (o *options) addFlags(flags *pflag.FlagSet, env func(string) string, metricsAddress, healthAddress string) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", env("KUBECONFIG"), "kubeconfig of this cluster; by default $KUBECONFIG, or the cluster that this process runs in")
	flags.StringVar(&o.installation, "liqo-namespace", cmp.Or(env("LIQO_NAMESPACE"), "liqo"), "namespace of this installation, with the IPs of nodes and the templates of gateways; by default $LIQO_NAMESPACE, or liqo")
	flags.StringVar(&o.metricsAddress, "metrics-address", metricsAddress, "address of the Prometheus metrics; 0 disables them")
	flags.StringVar(&o.healthAddress, "health-probe-address", healthAddress, "address of /healthz and /readyz; 0 disables them")
	flags.BoolVar(&o.profiling, "enable-profiling", false, "serve pprof on "+cmdutil.ProfilingAddress)
	o.logs.AddFlags(flags)
}

func (o *options) validate() error {
	if o.mtu < 0 {
		return fmt.Errorf("--mtu=%d: use 0 or more", o.mtu)
	}
	return nil
}

// runOptions contains the flags of the command run.
type runOptions struct {
	options
	clusterID, namespace, name, podIP, pod, node string
	keysDir, alternateKeysDir                    string
	implementation                               string
	standby, podRoutes                           bool
}

func (o *runOptions) addFlags(flags *pflag.FlagSet, env func(string) string) {
	o.options.addFlags(flags, env, ":8082", ":8081")
	flags.StringVar(&o.clusterID, "cluster-id", env("CLUSTER_ID"), "id of this cluster, by which its peers know it; by default $CLUSTER_ID")
	flags.StringVar(&o.namespace, "namespace", env("POD_NAMESPACE"), "tenant namespace of the peer, with the objects of the gateway; by default $POD_NAMESPACE")
	flags.StringVar(&o.name, "name", "", "name of the GatewayServer or GatewayClient")
	flags.StringVar(&o.keysDir, "keys-dir", "/etc/wireguard/keys", "directory where the Secret with the keys of this gateway is mounted; changes are followed")
	flags.StringVar(&o.alternateKeysDir, "alternate-keys-dir", "",
		"directory where the second Secret with keys is mounted while the keys are replaced; "+
			"it is in use once status.secretRef of the gateway names it")
	flags.StringVar(&o.podIP, "pod-ip", env("POD_IP"), "addresses of this pod, separated by commas; "+
		"the first one of IPv4 is used, and its link has the MTU of the pod network; by default $POD_IP")
	flags.IntVar(&o.mtu, "mtu", 0, "MTU of the pod network in bytes; 0 for the MTU of the link with --pod-ip")
	flags.BoolVar(&o.standby, "standby", false, "elect the active one of several pods, which share one key: this pod carries no packets before status.internalEndpoint of the gateway has its address")
	flags.BoolVar(&o.podRoutes, "pod-routes", false,
		"read the addresses of all pods, and send packets to the node of the pod, "+
			"where addresses of pods are outside of spec.podCIDRs of their Nodes")
	flags.StringVar(&o.pod, "pod-name", env("POD_NAME"), "name of this pod, for the EndpointSlice of the Service; by default $POD_NAME")
	flags.StringVar(&o.node, "node-name", env("NODE_NAME"), "name of the node of this pod, for status.internalEndpoint of the gateway; by default $NODE_NAME")
	flags.StringVar(&o.implementation, "wireguard", string(tunnel.Auto), "implementation of WireGuard: auto, kernel or userspace; auto uses the kernel if it has WireGuard")
}

// validate checks the flags, and reduces --pod-ip to one address.
func (o *runOptions) validate() error {
	if err := o.options.validate(); err != nil {
		return err
	}
	for flag, value := range map[string]string{"--cluster-id": o.clusterID, "--namespace": o.namespace, "--name": o.name} {
		if value == "" {
			return fmt.Errorf("%s is not set", flag)
		}
	}
	switch {
	case o.podIP == "" && o.standby:
		return errors.New("--standby needs the address of this pod: set --pod-ip")
	case o.podIP == "" && o.mtu == 0:
		return errors.New("--pod-ip is not set: set it, or --mtu")
	case o.podIP != "":
		address, err := findIPv4(o.podIP)
		if err != nil {
			return fmt.Errorf("--pod-ip=%q: %w", o.podIP, err)
		}
		o.podIP = address.String()
	}
	if !slices.Contains([]tunnel.Implementation{tunnel.Auto, tunnel.Kernel, tunnel.Userspace}, tunnel.Implementation(o.implementation)) {
		return fmt.Errorf("--wireguard is %q: use auto, kernel or userspace", o.implementation)
	}
	return nil
}

// findIPv4 returns the first IPv4 address in a list that is separated by commas. In a cluster with both families, the list begins with an
// address of the family that the cluster prefers.
func findIPv4(list string) (netip.Addr, error) {
	for text := range strings.SplitSeq(list, ",") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("%q is not an address", text)
		}
		if address.Is4() {
			return address, nil
		}
	}
	return netip.Addr{}, errors.New("the pod has no IPv4 address, which gateways need: " +
		"enable IPv4 for the pods and nodes of this cluster, or connect it without gateways (refractctl peer --network=none)")
}

// agentOptions contains the flags of the command agent.
type agentOptions struct {
	options
	node string
	// homeAddressesOf are the cluster IDs of the consumers whose pods reach Services by the cluster IPs of their own cluster.
	homeAddressesOf []string
}

// addFlags adds the flags. The agent's servers listen on the loopback interface, because other hosts can reach the
// ports of a node.
func (o *agentOptions) addFlags(flags *pflag.FlagSet, env func(string) string) {
	o.options.addFlags(flags, env, "127.0.0.1:6095", "127.0.0.1:6094")
	flags.StringVar(&o.node, "node-name", env("NODE_NAME"), "name of this node; by default $NODE_NAME")
	flags.IntVar(&o.mtu, "mtu", 0, "MTU of the network between nodes and pods in bytes; 0 for the smallest MTU of the links to the gateways")
	flags.StringSliceVar(&o.homeAddressesOf, "home-addresses-of", nil,
		"ids of consumers, separated by commas: their pods on this node reach Services by the cluster IPs of the consumer's cluster")
}

func (o *agentOptions) validate() error {
	if err := o.options.validate(); err != nil {
		return err
	}
	if o.node == "" {
		return errors.New("--node-name is not set")
	}
	return validateConsumers(o.homeAddressesOf)
}

// userAgent identifies the process to the API server.
const userAgent = "refract-gateway"

// restConfig returns the client configuration for this cluster.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := connection.LoadLocal("--kubeconfig", "--kubeconfig", o.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = userAgent + "/" + cmdutil.Version()
	return config, nil
}
