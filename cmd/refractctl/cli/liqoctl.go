// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// liqoCommand describes a command of liqoctl, and its counterpart or replacement in this program.
type liqoCommand struct {
	// path is the path of the command in liqoctl. If this program has the command, it has the same path.
	path string
	// instead names the replacement of the command. It is set if this program does not have the command.
	instead string
	// same lists flags that have the same name and meaning in both programs.
	same []string
	// renamed maps flags of liqoctl to the flags of this program that have the same meaning.
	renamed map[string]string
	// differing describes the flags that have a different meaning in this program.
	differing map[string]string
	// others lists the flags of liqoctl that this program does not have.
	others []liqoFlag
}

// liqoFlag is a flag of liqoctl that this program does not have.
type liqoFlag struct {
	name string
	// takesValue is false for a boolean flag.
	takesValue bool
	// accepted is the value that is accepted but has no effect. It is "" if no value is accepted.
	accepted string
	// why is the reason why the accepted value has no effect. instead names the replacement of all other values.
	why, instead string
}

// refusal is the error for a command or flag of liqoctl that this program does not have.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// liqoValue implements pflag.Value for a liqoFlag.
type liqoValue struct{ flag *liqoFlag }

func (v liqoValue) String() string   { return "" }
func (v liqoValue) IsBoolFlag() bool { return !v.flag.takesValue }

// Type returns the name of the type that the usage shows.
func (v liqoValue) Type() string {
	if v.flag.takesValue {
		return "string"
	}
	return "bool"
}

// Set refuses all values except the accepted one.
func (v liqoValue) Set(text string) error {
	if v.flag.accepted != "" && text == v.flag.accepted || v.flag.accepted == anyValue {
		return nil
	}
	return &refusal{fmt.Sprintf("--%s is a flag of liqoctl that has no meaning here: %s", v.flag.name, v.flag.instead)}
}

// anyValue is a value of liqoFlag.accepted. It means that any value is accepted.
const anyValue = "*"

// ignoredFlags returns flags that are accepted but have no effect. If a name ends with =, the flag takes a value.
func ignoredFlags(why string, names ...string) (flags []liqoFlag) {
	for _, name := range names {
		name, takesValue := strings.CutSuffix(name, "=")
		flags = append(flags, liqoFlag{name: name, takesValue: takesValue, accepted: anyValue, why: why})
	}
	return flags
}

// refusedFlags returns flags that fail with an error that names the replacement. If a name ends with =, the flag
// takes a value.
func refusedFlags(instead string, names ...string) (flags []liqoFlag) {
	for _, name := range names {
		name, takesValue := strings.CutSuffix(name, "=")
		flags = append(flags, liqoFlag{name: name, takesValue: takesValue, instead: instead})
	}
	return flags
}

// fixedFlags returns boolean flags that accept only the given value and refuse the other one.
func fixedFlags(value, instead string, names ...string) (flags []liqoFlag) {
	for _, name := range names {
		flags = append(flags, liqoFlag{name: name, accepted: value, instead: instead})
	}
	return flags
}

func joinFlags(lists ...[]liqoFlag) (all []liqoFlag) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// Reasons and replacements that several flags have in common.
const (
	noNetwork     = "refractctl network connect creates all objects of the network in both clusters"
	noConfirm     = "no command asks for a confirmation"
	noSpinner     = "progress is always printed in full"
	ownTenants    = "tenant namespaces are always named after their cluster, liqo-tenant-ID"
	oneHandshake  = "refractctl peer does what liqoctl authenticate and liqoctl create resourceslice do in one step"
	namedClusters = "name a context that has this cluster and user, with --remote-context"
	labelsOfChart = "labels and annotations of objects are set for an installation: refractctl install --global-labels=KEY=VALUE"
)

// everywhere lists the flags that every command of liqoctl has, except the flags of kubectl.
var everywhere = joinFlags(
	ignoredFlags(noConfirm, "skip-confirm"), ignoredFlags(noSpinner, "verbose"), refusedFlags(labelsOfChart, "global-labels=", "global-annotations="),
)

// gatewayNames lists the flags of gateways.
var gatewayNames = []string{"gw-client-address", "gw-client-port", "gw-server-service-loadbalancerip", "gw-server-service-location", "gw-server-service-nodeport", "gw-server-service-port", "gw-server-service-type", "mtu"}

// gatewayTemplates lists the flags that select the templates of gateways.
var gatewayTemplates = []string{"gw-server-type=", "gw-server-template-name=", "gw-server-template-namespace=", "gw-client-type=", "gw-client-template-name=", "gw-client-template-namespace="}

// liqoctl lists the commands of liqoctl v1.1 with their flags. The flags of kubectl (cluster, context, kubeconfig,
// namespace, user) are the same in both programs.
var liqoctl = []liqoCommand{
	{path: "activate tenant", same: []string{"timeout"}},
	{path: "authenticate", instead: oneHandshake + ": run refractctl peer"},
	{path: "completion bash", same: []string{"no-descriptions"}},
	{path: "completion fish", same: []string{"no-descriptions"}},
	{path: "completion powershell", same: []string{"no-descriptions"}},
	{path: "completion zsh", same: []string{"no-descriptions"}},
	{path: "cordon resourceslice", same: []string{"timeout", "remote-cluster-id"}},
	{path: "cordon tenant", same: []string{"timeout"}},
	{path: "create configuration", instead: noNetwork},
	{path: "create gatewayclient", instead: noNetwork},
	{path: "create gatewayserver", instead: noNetwork},
	{path: "create nonce", same: []string{"remote-cluster-id"}, differing: map[string]string{"output": "prints what was created, and does not replace it"}},
	{path: "create publickey", instead: noNetwork},
	{path: "create resourceslice", same: []string{"class", "cpu", "memory", "no-virtual-node", "pods", "remote-cluster-id", "resource"},
		differing: map[string]string{"output": "prints what was created, and does not replace it"}},
	{path: "create virtualnode", same: []string{"cpu", "memory", "node-selector", "pods", "resource", "runtime-class-name"},
		renamed:   map[string]string{"ingress-classes": "ingress-class", "labels": "label", "load-balancer-classes": "load-balancer-class", "remote-cluster-id": "provider", "storage-classes": "storage-class"},
		differing: map[string]string{"output": "prints what was created, and does not replace it"},
		others: joinFlags(
			fixedFlags("true", "set spec.createNode of the VirtualNode", "create-node"), refusedFlags("set spec.disableNetworkCheck of the VirtualNode, or join with refractctl peer --network=none", "disable-network-check"),
			refusedFlags("the virtual node has the kubeconfig of the peering", "kubeconfig-secret-name=", "resource-slice-name="),
			refusedFlags("set spec.vkOptionsTemplateRef of the VirtualNode", "vk-options-template="),
			refusedFlags("the namespace of the installation is found", "liqo-namespace="),
		)},
	{path: "delete configuration", instead: noNetwork},
	{path: "delete gatewayclient", instead: noNetwork},
	{path: "delete gatewayserver", instead: noNetwork},
	{path: "delete peering-user", same: []string{"consumer-cluster-id"}},
	{path: "delete publickey", instead: noNetwork},
	{path: "delete virtualnode"},
	{path: "drain tenant", same: []string{"timeout"}},
	{path: "force unpeer"},
	{path: "generate configuration", instead: noNetwork},
	{path: "generate identity", same: []string{"remote-cluster-id", "remote-tenant-namespace"}, others: ignoredFlags("the Identity is always printed as YAML", "output=")},
	{path: "generate peering-user", same: []string{"consumer-cluster-id"}, others: joinFlags(ignoredFlags("keys are accepted by every version of TLS", "tls-compatibility-mode="), refusedFlags("the namespace of the installation is found", "liqo-namespace="))},
	{path: "generate publickey", instead: noNetwork},
	{path: "generate tenant", same: []string{"nonce", "remote-cluster-id", "remote-tenant-namespace"},
		differing: map[string]string{"proxy-url": "is that of kubectl: a proxy between this program and this cluster"}, others: ignoredFlags("the Tenant is always printed as YAML", "output=")},
	{path: "get kubeconfig", instead: "the kubeconfig for a provider is in the Secret kubeconfig-controlplane-PROVIDER of namespace liqo-tenant-PROVIDER"},
	{path: "get nonce", same: []string{"remote-cluster-id"}},
	{path: "info", same: []string{"output"}, others: refusedFlags("use --output=jsonpath='{.FIELD}'", "get=")},
	{path: "info peer", same: []string{"output"}, others: refusedFlags("use --output=jsonpath='{.FIELD}'", "get=")},
	{path: "install", same: []string{"api-server-url", "cluster-id", "cluster-labels", "dry-run", "enable-metrics", "global-annotations", "global-labels", "pod-cidr", "reserved-subnets", "service-cidr", "set", "set-string", "timeout", "values"},
		others: joinFlags(
			ignoredFlags("there is no such check", "disable-api-server-sanity-check", "disable-kernel-version-check", "skip-validation"), ignoredFlags("there is no telemetry", "disable-telemetry"),
			refusedFlags("the values are printed by helm get values", "dump-values-path=", "only-output-values"),
			refusedFlags("the chart is part of this program: use the program of another version, or helm", "local-chart-path=", "repo-url=", "version="),
		)},
	{path: "install aks", instead: sameEverywhere}, {path: "install eks", instead: sameEverywhere}, {path: "install gke", instead: sameEverywhere}, {path: "install k3s", instead: sameEverywhere},
	{path: "install kind", instead: sameEverywhere}, {path: "install kubeadm", instead: sameEverywhere}, {path: "install openshift", instead: sameEverywhere},
	{path: "move volume", instead: "the data of a claim stays where it is: copy it with a job that mounts both claims, or with a backup tool such as Velero"},
	{path: "network connect", same: append([]string{"remote-context", "remote-kubeconfig", "timeout"}, gatewayNames...),
		differing: map[string]string{"proxy-url": "is that of kubectl: a proxy between this program and this cluster"},
		others: joinFlags(
			ignoredFlags("the command always waits", "wait"), ignoredFlags("everything is checked before anything is changed", "skip-validation"),
			refusedFlags("public keys are always exchanged", "disable-sharing-keys"), refusedFlags("the templates of the installation are used", gatewayTemplates...),
			refusedFlags(namedClusters, "remote-cluster=", "remote-user="), refusedFlags(ownTenants, "remote-namespace="), refusedFlags("the namespace of the installation is found", "remote-liqo-namespace=", "liqo-namespace="),
		)},
	{path: "network disconnect", same: []string{"remote-context", "remote-kubeconfig", "timeout"}, others: joinFlags(
		ignoredFlags("the command always waits", "wait"),
		refusedFlags(namedClusters, "remote-cluster=", "remote-user="), refusedFlags(ownTenants, "remote-namespace="), refusedFlags("the namespace of the installation is found", "remote-liqo-namespace=", "liqo-namespace="),
	)},
	{path: "network reset", instead: "run refractctl network disconnect --release-ranges"},
	{path: "offload namespace", same: []string{"namespace-mapping-strategy", "ns-selector", "output", "pod-offloading-strategy", "remote-namespace-name", "selector", "timeout"}},
	{path: "peer", same: append([]string{"cpu", "memory", "networking-disabled", "pods", "remote-context", "remote-kubeconfig", "resource", "timeout"}, gatewayNames...),
		differing: map[string]string{"proxy-url": "is that of kubectl: a proxy between this program and this cluster"},
		others: joinFlags(
			fixedFlags("true", oneHandshake, "create-resource-slice", "create-virtual-node"), refusedFlags("an address of the provider is set with --remote-api-server-url", "in-band"),
			refusedFlags(namedClusters, "remote-cluster=", "remote-user="), refusedFlags(ownTenants, "remote-namespace="), refusedFlags("the provider decides on requests of the class default", "resource-slice-class="),
			ignoredFlags("ranges that overlap are an error only where pods reach each other", "skip-validation"),
		)},
	{path: "test network", same: []string{"timeout"}, others: joinFlags(
		ignoredFlags("every check is made, and its result printed", "basic", "fail-fast", "info", "ip", "rm"), refusedFlags("ports of nodes and load balancers are not tested", "lb", "np-ext", "np-nodes=", "pod-np"),
		refusedFlags("the providers are reached with the credentials of this cluster", "remote-kubeconfigs="),
	)},
	{path: "unauthenticate", instead: oneHandshake + ", and refractctl unpeer ends it: run that"},
	{path: "uncordon resourceslice", same: []string{"timeout", "remote-cluster-id"}},
	{path: "uncordon tenant", same: []string{"timeout"}},
	{path: "uninstall", same: []string{"timeout"}, renamed: map[string]string{"purge": "crds"}},
	{path: "unoffload namespace", same: []string{"ns-selector", "timeout"}},
	{path: "unpeer", same: []string{"remote-context", "remote-kubeconfig", "timeout"}, others: joinFlags(
		ignoredFlags("the tenant namespaces that refractctl peer has created are removed", "delete-namespaces"), ignoredFlags("the command always waits", "wait"),
		refusedFlags(namedClusters, "remote-cluster=", "remote-user="), refusedFlags(ownTenants, "remote-namespace="),
	)},
	{path: "version", others: ignoredFlags("it is the version of this program; that of the installation is printed by refractctl info", "client", "namespace=")},
}

const sameEverywhere = "the installation is the same everywhere: run refractctl install"

// shorthands maps flags of liqoctl to their shorthands.
var shorthands = map[string]string{"verbose": "v", "namespace": "n", "get": "g", "remote-kubeconfigs": "p"}

// speakLiqoctl adds the commands and flags of liqoctl to root that this program does not have. They either have no
// effect, or fail with an error that names the replacement.
func speakLiqoctl(root *cobra.Command) {
	for i := range liqoctl {
		of := &liqoctl[i]
		command := ensureCommand(root, strings.Fields(of.path), of.instead)
		if of.instead == "" {
			of.addFlags(command)
		}
	}
}

// ensureCommand returns the command with the given path. If it does not exist, a hidden command is added that fails
// with an error that names the replacement. For the command completion, which cobra adds later, ensureCommand returns
// nil.
func ensureCommand(from *cobra.Command, path []string, instead string) *cobra.Command {
	if len(path) == 0 {
		return from
	}
	for _, child := range from.Commands() {
		if child.Name() == path[0] {
			return ensureCommand(child, path[1:], instead)
		}
	}
	if path[0] == "completion" { // cobra adds this command when the root command is executed
		return nil
	}
	child := &cobra.Command{Use: path[0], Hidden: true}
	if len(path) == 1 {
		child.DisableFlagParsing = true
		child.RunE = func(cmd *cobra.Command, _ []string) error {
			return invocation.UsageError(&refusal{fmt.Sprintf("%s is a command of liqoctl that has no meaning here: %s", cmd.CommandPath(), instead)})
		}
	} else {
		child = hiddenGroup(path[0])
	}
	from.AddCommand(child)
	return ensureCommand(child, path[1:], instead)
}

// addFlags adds the flags of liqoctl that the command does not have, and the names that its own flags have in liqoctl.
func (l *liqoCommand) addFlags(command *cobra.Command) {
	if command == nil {
		return
	}
	flags := command.Flags()
	if len(l.renamed) > 0 {
		flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			return pflag.NormalizedName(cmp.Or(l.renamed[name], name))
		})
	}
	for _, list := range [][]liqoFlag{l.others, everywhere} {
		for i := range list {
			flag := &list[i]
			if flags.Lookup(flag.name) != nil || command.InheritedFlags().Lookup(flag.name) != nil {
				continue
			}
			added := flags.VarPF(liqoValue{flag}, flag.name, shorthands[flag.name], cmp.Or(flag.why, flag.instead))
			added.Hidden = true
			if !flag.takesValue {
				added.NoOptDefVal = "true"
			}
		}
	}
}

// refusalIn returns the refusal that has caused the error of a flag, or nil if there is none.
func refusalIn(err error) error {
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return refused
	}
	return nil
}
