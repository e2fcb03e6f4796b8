// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// impossible lists values that no flag of a kind accepts.
var impossible = map[string][]string{
	"server": {"", "milan.example.com", "milan:6443", "10.0.0.1:6443", "//milan", "http://milan", "https://", "https://0.0.0.0:6443", "https://[::]", "https://224.0.0.1", "https://milan:65536", "https://milan:0", "https://milan:-1", "https://mi lan", "https://milan/\x1b[31m", "https://u:p@milan",
		"https://milan?a=b", "https://milan#a", "https://256.0.0.1", "https://a..b", "https://" + strings.Repeat("a", 64), "https://milan\n"},
	"server or host": {"", "mi lan", "milan:65536", "0.0.0.0", "u:p@milan", "//milan", "http://milan", "https://", "https://0.0.0.0:6443", "https://milan:0", "https://milan\n"},
	"registry": {"", "https://registry.example.com", "registry.example.com/a//b", "registry.example.com:65536/a", "registry.example.com:0/a", "registry.example.com/A", "registry.example.com/a:1.0", "registry.example.com/a@sha256:0",
		"registry.example.com/a b", "registry.example.com/a\x1b", "/a", "registry.example.com/" + strings.Repeat("a", 256)},
	"image":     {"", "registry.example.com/a//b:1", "registry.example.com:65536/a:1", "registry.example.com/A:1", "a b", "a:1\x1b", "registry.example.com/a:" + strings.Repeat("a", 129), "https://registry.example.com/a"},
	"cluster":   {"", "Rome", "rome/", "-rome", "rome.milan", "rome\x1b", strings.Repeat("a", 52)},
	"node":      {"", "Milan", "milan/", "-milan", "milan\x1b", strings.Repeat("a", 64)},
	"subdomain": {"", "Fast", "fast/", "-fast", "fast\x1b", strings.Repeat("a", 254)},
	"key":       {"", "a b", "fast/", "/fast", "a/b/c", "fast\x1b", strings.Repeat("a", 64)},
	"namespace": {"", "Shop", "shop/", "shop.a", "shop\x1b", strings.Repeat("a", 64)},
	"release":   {"", "Refract", "refract/", "refract\x1b", strings.Repeat("a", 54)},
	"quantity":  {"", "-1", "many", "1e30", "99999999999999999Gi", "1/", "1 Gi", "1\x1b", "0.0001"},
	"amount":    {"", "nvidia.com/gpu", "nvidia.com/gpu=", "=1", "nvidia.com/gpu=-1", "nvidia.com/gpu=0.5", "bad name=1", "nvidia.com/=1", "gpu=1\x1b", strings.Repeat("a", 64) + "=1"},
	"duration":  {"", "0s", "-1m", "soon", "1", "1h\x1b", "99999999999h"},
	"lifetime":  {"", "0s", "-1m", "9m", "soon", "1500000h"},
	"range":     {"", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/8/", "10.0.0/8", "ten", "10.0.0.0/8\x1b"},
	"label":     {"", "a", "=x", "a b=c", "a=b c", "a=" + strings.Repeat("b", 64), strings.Repeat("a", 64) + "=b", "/a=b", "A.b//c=d", "a=b\x1b", "a=-"},
	"pair":      {"", "a", "=x", "a b=c", "/a=b", strings.Repeat("a", 64) + "=b"},
	"accepted":  {"a b", "=x", "a=b c", "a\x1b"},
	"limit":     {"", "max-namespaces", "none=1", "max-namespaces=-1", "max-namespaces=many", "max-namespaces=1\x1b", "storage-classes=A B"},
	"selector":  {"", "=x", "a b", "a=b c", "a=\x1b", "a in b", strings.Repeat("a", 64)},
	"network":   {"", "Reachable", "none/", "none\x1b"},
	"location":  {"", "consumer", "Provider/", "Provider\x1b"},
	"service":   {"", "nodePort", "ExternalName", "NodePort\x1b"},
	"port":      {"", "0", "-1", "65536", "many"},
	"mtu":       {"", "0", "1279", "65536", "many"},
	"ip":        {"", "10.0.0", "::1", "milan.example.com", "10.0.0.1\x1b"},
	"endpoint":  {"", "0.0.0.0", "127.0.0.1", "::1", "a b", "A/", "milan\x1b"},
	"kind":      {"", "Token", "token/", "token\x1b"},
	"strategy":  {"", "local", "Local/", "Local\x1b"},
	"resource":  {"", "a b", ".apps", "Service.", "Ingress.Networking", "Service/", "1Service", "services\x1b"},
	"hook":      {"", "Outgoing", "both", "outgoing\x1b"},
	"fuel":      {"", "-1", "many", "1.5", "9223372036854775808"},
	"text":      {"", "a\x1b[31m", "a\nb", "a\u202eb"},
}

// valuesOf maps each flag to its kind of value. A key that begins with the name of a command is only for the flag of
// this command.
var valuesOf = map[string]string{
	"api-server-url": "server", "install api-server-url": "server or host", "remote-api-server-url": "server", "registry": "registry", "image": "image",
	"cluster-id": "cluster", "provider": "cluster", "remote-cluster-id": "cluster", "consumer-cluster-id": "cluster",
	"virtual-node": "node", "node": "node", "runtime-class-name": "subdomain", "storage-class": "subdomain", "ingress-class": "subdomain", "load-balancer-class": "key",
	"remote-namespace-name": "namespace", "release": "release",
	"cpu": "quantity", "memory": "quantity", "pods": "quantity", "resource": "amount", "timeout": "duration", "check-timeout": "duration", "expires-in": "lifetime",
	"pod-cidr": "range", "reserved-subnets": "range", "service-cidr": "range", "pod-cidrs": "range", "remote-pod-cidrs": "range",
	"label": "label", "node-selector": "label", "cluster-labels": "label", "global-labels": "label", "global-annotations": "pair", "accept-label": "accepted", "tenant-limit": "limit",
	"selector": "selector", "ns-selector": "selector", "network": "network", "gw-server-service-location": "location", "gw-server-service-type": "service",
	"gw-server-service-port": "port", "gw-server-service-nodeport": "port", "gw-client-port": "port", "mtu": "mtu", "gw-server-service-loadbalancerip": "ip", "gw-client-address": "endpoint", "credentials": "kind", "pod-offloading-strategy": "strategy", "namespace-mapping-strategy": "strategy",
	"remote-context": "text", "remote-kubeconfig": "text", "remote-as": "text", "remote-as-group": "text", "output-file": "text",
	"class": "text", "nonce": "text", "remote-tenant-namespace": "namespace", "revision": "subdomain", "to": "subdomain", "kind": "resource", "hook": "hook", "fuel": "fuel", "filename": "text", "context": "text", "config": "text",
}

// validArgs contains valid arguments of each command that has flags with values.
var validArgs = map[string]string{
	"install":                "--cluster-id=rome --registry=registry.example.com/refract",
	"uninstall":              "",
	"peer":                   "--remote-context=right",
	"unpeer":                 "--remote-context=right",
	"generate peering-user":  "rome",
	"delete peering-user":    "",
	"offload namespace":      "shop",
	"unoffload namespace":    "shop",
	"create virtualnode":     "milan-gpu --provider=milan",
	"create resourceslice":   "milan-gpu --remote-cluster-id=milan",
	"delete resourceslice":   "milan-gpu",
	"create nonce":           "--remote-cluster-id=rome",
	"get nonce":              "--remote-cluster-id=rome",
	"generate tenant":        "--remote-cluster-id=milan --nonce=bm9uY2U=",
	"generate identity":      "--remote-cluster-id=rome",
	"delete virtualnode":     "milan",
	"drain virtualnode":      "milan",
	"uncordon virtualnode":   "milan",
	"drain tenant":           "rome",
	"cordon tenant":          "rome",
	"uncordon tenant":        "rome",
	"activate tenant":        "rome",
	"cordon resourceslice":   "milan",
	"uncordon resourceslice": "milan",
	"info":                   "",
	"doctor":                 "",
	"test":                   "",
	"liqo adopt":             "milan --image=registry.example.com/refract/virtual-kubelet:1",
	"liqo revert":            "milan",
	"force unpeer":           "milan",
	"network test":           "",
	"network connect":        "--remote-context=right",
	"network disconnect":     "--remote-context=right",
	"network rotate":         "--remote-context=right",
	"plugin approve":         "strip-labels",
	"plugin rollback":        "strip-labels",
	"plugin list":            "",
	"plugin run":             "strip.wasm --filename=testdata/service.yaml",
}

// checkedFlags returns the flags of a command whose values are checked.
func checkedFlags(command *cobra.Command) (flags []*pflag.Flag) {
	command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && flag.Name != "help" && flag.Value.Type() != "bool" && !invocation.IsContent(flag) && flag.Name != "values" {
			flags = append(flags, flag)
		}
	})
	return flags
}

// TestImpossibleValuesOfEveryCommand checks that validArgs has an entry for every command whose flags take values.
func TestImpossibleValuesOfEveryCommand(t *testing.T) {
	t.Parallel()
	root := NewCommand("refractctl")
	var visit func(command *cobra.Command)
	visit = func(command *cobra.Command) {
		name := strings.TrimPrefix(command.CommandPath(), root.Name()+" ")
		if _, tested := validArgs[name]; command.Runnable() && !command.Hidden && len(checkedFlags(command)) > 0 {
			assert.True(t, tested, "add %q to validArgs", name)
		}
		for _, child := range command.Commands() {
			visit(child)
		}
	}
	visit(root)
}

// TestImpossibleValues checks for every flag with a value that impossible values are rejected as wrong usage before a
// cluster is accessed, with and without --dry-run, and that the error names the flag.
func TestImpossibleValues(t *testing.T) {
	t.Parallel()
	for command, valid := range validArgs {
		found, _, err := NewCommand("refractctl").Find(strings.Fields(command))
		require.NoError(t, err)
		for _, flag := range checkedFlags(found) {
			kind, known := valuesOf[found.Name()+" "+flag.Name]
			if !known {
				kind, known = valuesOf[flag.Name]
			}
			if !assert.True(t, known, "add --%s of %s to this test", flag.Name, command) {
				continue
			}
			for _, value := range impossible[kind] {
				for _, dryRun := range []string{"", "--dry-run"} {
					if dryRun != "" && found.Flags().Lookup("dry-run") == nil {
						continue
					}
					args := strings.Fields(command + " " + valid + " " + dryRun)
					if flag.Name == "ns-selector" || flag.Name == "consumer-cluster-id" {
						args = slices.DeleteFunc(args, func(arg string) bool { return arg == "shop" || arg == "rome" })
					}
					if flag.Name == "remote-namespace-name" {
						args = append(args, "--namespace-mapping-strategy=SelectedName")
					}
					if flag.Name == "remote-kubeconfig" {
						args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--remote-context") })
					}
					args = append(args, "--"+flag.Name+"="+value)
					if found.Flags().Lookup("kubeconfig") != nil {
						args = append(args, "--kubeconfig=testdata/unreachable.yaml")
					}
					out, _, err := refractctl(t, args...)
					if !assert.Error(t, err, "%q", args) {
						continue
					}
					assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), "%q: %v", args, err)
					assert.Contains(t, err.Error(), "--"+flag.Name, "%q", args)
					assert.Empty(t, out, "%q", args)
				}
			}
		}
	}
}

// TestAddressWithoutAScheme checks that only install accepts an API server address without a scheme. The chart adds the
// scheme.
func TestAddressWithoutAScheme(t *testing.T) {
	t.Parallel()
	for address, accepted := range map[string]string{
		"milan.example.com": "install", "milan:6443": "install", "10.0.0.1:6443": "install", "https://milan": "install, peer, generate peering-user",
	} {
		for command, flag := range map[string]string{"install": "--api-server-url", "peer": "--remote-api-server-url", "generate peering-user": "--api-server-url"} {
			_, _, err := refractctl(t, append(strings.Fields(command+" "+validArgs[command]), flag+"="+address, "--kubeconfig=testdata/unreachable.yaml")...)
			require.Error(t, err, "no cluster is reachable")
			assert.Equal(t, !strings.Contains(accepted, command), invocation.ExitCode(err) == invocation.ExitUsage, "%s %s: %v", command, address, err)
		}
	}
}

// TestImpossibleArguments checks that impossible names in arguments are rejected as wrong usage.
func TestImpossibleArguments(t *testing.T) {
	t.Parallel()
	for command, kind := range map[string]string{
		"generate peering-user": "cluster", "offload namespace": "namespace", "offload namespace -o yaml": "namespace", "unoffload namespace": "namespace", "create virtualnode --provider=milan": "node",
		"create virtualnode --provider=milan --dry-run": "node", "create resourceslice --remote-cluster-id=milan": "node", "unpeer --force": "cluster", "delete peering-user": "cluster", "drain tenant": "text", "cordon tenant": "text", "drain virtualnode": "text", "delete virtualnode": "text", "info": "text",
	} {
		for _, value := range impossible[kind] {
			if strings.HasPrefix(value, "-") {
				continue // it would be parsed as a flag
			}
			args := append(strings.Fields(command), value, "--kubeconfig=testdata/unreachable.yaml")
			out, _, err := refractctl(t, args...)
			if assert.Error(t, err, "%q", args) {
				assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), "%q: %v", args, err)
				assert.Empty(t, out, "%q", args)
			}
		}
	}
}
