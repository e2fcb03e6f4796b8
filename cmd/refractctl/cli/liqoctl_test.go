// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

var update = flag.Bool("update", false, "write the table of liqoctl's commands into docs/liqo.md")

// commandOf returns a command by its path.
func commandOf(t *testing.T, path string) *cobra.Command {
	t.Helper()
	root := NewCommand("refractctl")
	root.InitDefaultCompletionCmd()
	command, rest, err := root.Find(strings.Fields(path))
	require.NoError(t, err, path)
	require.Empty(t, rest, "there is no command %s", path)
	return command
}

// TestFlagsOfLiqoctl checks that each flag of liqoctl has the same meaning in this program, or has no effect, or fails
// with an error that names the replacement.
func TestFlagsOfLiqoctl(t *testing.T) {
	for i := range liqoctl {
		of := &liqoctl[i]
		if of.instead != "" {
			continue
		}
		t.Run(of.path, func(t *testing.T) {
			command := commandOf(t, of.path)
			command.InheritedFlags() // this call adds the flags of the parents
			for _, name := range of.same {
				found := command.Flags().Lookup(name)
				if assert.NotNil(t, found, "--%s", name) {
					_, refuses := found.Value.(liqoValue)
					assert.False(t, refuses, "--%s is the same only in name", name)
				}
			}
			for name, here := range of.renamed {
				found := command.Flags().Lookup(name)
				if assert.NotNil(t, found, "--%s", name) {
					assert.Equal(t, here, found.Name)
				}
			}
			for name := range of.differing {
				assert.NotNil(t, command.Flags().Lookup(name), "--%s", name)
			}
			for _, other := range of.others {
				set := "--" + other.name
				if other.takesValue {
					set += "=1400"
				}
				var refused *refusal
				err := command.ParseFlags([]string{set})
				if other.accepted != "" {
					assert.NoError(t, err, set)
				} else {
					assert.True(t, errors.As(err, &refused), "%s: %v", set, err)
				}
				if other.accepted == "true" {
					assert.True(t, errors.As(command.ParseFlags([]string{set + "=false"}), &refused), set)
				}
			}
		})
	}
}

// TestUsersOfLiqoctlAreToldWhatToUse checks that the error is a single sentence that names the replacement if this
// program lacks a command or flag of liqoctl.
func TestUsersOfLiqoctlAreToldWhatToUse(t *testing.T) {
	for args, want := range map[string]string{
		"authenticate --remote-context=milan":                                   "run refractctl peer",
		"create publickey --remote-cluster-id=milan":                            "network connect creates all objects",
		"install kind --cluster-id=rome":                                        "run refractctl install",
		"move volume data --target-node=milan":                                  "backup tool",
		"network connect --remote-context=milan --disable-sharing-keys":         "public keys are always exchanged",
		"network reset --remote-context=milan":                                  "network disconnect --release-ranges",
		"generate publickey":                                                    "network connect creates all objects",
		"peer --remote-context=milan --create-virtual-node=false":               "in one step",
		"peer --remote-context=milan --networking-disabled --network=reachable": "--networking-disabled is --network=none",
		"info --get=peers":                                                      "--output=jsonpath",
		"offload namespace a --global-labels=a=b":                               "refractctl install --global-labels",
		"generate peering-user":                                                 "give the cluster id of one consumer",
		"delete peering-user rome --consumer-cluster-id=rome":                   "give the cluster id of one consumer",
		"force unpeer": "a provider is named only with --force",
	} {
		t.Run(args, func(t *testing.T) {
			_, _, err := refractctl(t, onCluster(strings.Fields(args)...)...)
			require.ErrorContains(t, err, want)
			assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), "%v", err)
			assert.NotContains(t, err.Error(), "invalid argument", "the sentence stands alone")
		})
	}
	// The cluster was not joined by Liqo's protocol.
	_, _, problem := refractctl(t, onCluster("create", "resourceslice", "more", "--remote-cluster-id=milan")...)
	require.ErrorContains(t, problem, "run refractctl create virtualnode more --provider=milan")
	// Flags without an effect are accepted.
	_, _, err := refractctl(t, onCluster("info", "-v", "--skip-confirm")...)
	require.NoError(t, err)
	_, _, err = refractctl(t, onCluster("info", "peer", "--verbose")...)
	require.NoError(t, err)
}

// TestInstallTakesFlagsOfLiqoctl checks that flags of liqoctl install set the values of the chart.
func TestInstallTakesFlagsOfLiqoctl(t *testing.T) {
	out, _, err := refractctl(t, onCluster("install", "--dry-run", "--cluster-id=rome", "--registry=registry.example.com/refract", "--cluster-labels=topology.kubernetes.io/zone=eu-1,tier=gold",
		"--global-labels=team=shop", "--global-annotations=note=a", "--enable-metrics", "--pod-cidr=10.1.0.0/16", "--service-cidr=10.2.0.0/16", "--set=authentication.enabled=true,tenants.unlimitedResources=true",
		"--api-server-url=https://198.51.100.1:6443", "--disable-telemetry", "--skip-confirm", "--network=gateway", "--reserved-subnets=10.30.0.0/16")...)
	require.NoError(t, err)
	for _, want := range []string{"--cluster-labels=tier=gold,topology.kubernetes.io/zone=eu-1", "team: shop", "note: a", "--metrics-address=:8082", "--own-cidrs=10.1.0.0/16,10.2.0.0/16", "--reserved-cidrs=10.30.0.0/16", "--api-server-address-override=https://198.51.100.1:6443"} {
		assert.True(t, strings.Contains(out, want), "the manifest lacks %s", want)
	}
	_, _, err = refractctl(t, onCluster("install", "--dry-run", "--cluster-id=rome", "--registry=r.example.com/x", "--pod-cidr=10.1.0.0")...)
	require.ErrorContains(t, err, `--pod-cidr: "10.1.0.0" is not an address range`)
}

// TestReplacementsOfLiqoctlExist checks that a command of liqoctl has a replacement only if this program does not have
// the command, and that each replacement is a command of this program, with the flags that are named together with it.
func TestReplacementsOfLiqoctlExist(t *testing.T) {
	texts := map[string]string{}
	for i := range liqoctl {
		of := &liqoctl[i]
		if of.instead != "" {
			assert.True(t, commandOf(t, of.path).Hidden, "%s is a command of this program, and has a replacement", of.path)
			texts[of.path] = of.instead
		}
		for _, flag := range append(slices.Clone(of.others), everywhere...) {
			texts[of.path+" --"+flag.name] = flag.why + " " + flag.instead
		}
	}
	named := 0
	for of, text := range texts {
		own, _, _ := strings.Cut(of, " --") // a flag that is named without a command is a flag of this command
		commands := []*cobra.Command{commandOf(t, own)}
		for i, part := range strings.Split(text, "refractctl ") {
			if i == 0 {
				continue
			}
			command, _, err := NewCommand("refractctl").Find(strings.Fields(part))
			require.NoError(t, err, "%s: %s", of, part)
			assert.False(t, command.Hidden || !command.HasParent(), "%s: there is no command refractctl %s", of, part)
			if commands = append(commands, command); i == 1 {
				commands = commands[1:]
			}
			named++
		}
		for _, flag := range longFlag.FindAllStringSubmatch(text, -1) {
			assert.True(t, slices.ContainsFunc(commands, func(command *cobra.Command) bool {
				command.InheritedFlags() // this call adds the flags of the parents
				found := command.Flags().Lookup(flag[1])
				return found != nil && !found.Hidden
			}), "%s: there is no flag --%s: %s", of, flag[1], text)
		}
	}
	assert.Greater(t, named, 20)
}

var longFlag = regexp.MustCompile(`--([a-z-]+)`)

const liqoctlPage = "../../../docs/liqo.md"

// TestTableOfLiqoctl checks that the documentation contains the table of this package. (make test-liqo compares the
// table with the help of liqoctl itself.)
func TestTableOfLiqoctl(t *testing.T) {
	page, err := os.ReadFile(liqoctlPage)
	require.NoError(t, err)
	const heading = "\n## Commands and flags of liqoctl\n"
	before, section, found := strings.Cut(string(page), heading)
	require.True(t, found, "the page has no section %q", heading)
	text, rest, found := strings.Cut(section, "\n| liqoctl |")
	require.True(t, found, "the section has no table")
	old, after, _ := strings.Cut(rest, "\n\n")
	table := liqoctlTable()
	if *update {
		require.NoError(t, os.WriteFile(liqoctlPage, []byte(before+heading+text+"\n"+table+"\n\n"+after), 0o644))
		return
	}
	assert.Empty(t, cmp.Diff("| liqoctl |"+old, table), "run go test ./cmd/refractctl/cli -run TestTableOfLiqoctl -update")
}

func liqoctlTable() string {
	rows := []string{"| liqoctl | the same flags | no effect | instead |", "|---|---|---|---|"}
	add := func(of *liqoCommand) {
		if of.instead != "" {
			rows = append(rows, fmt.Sprintf("| `%s` | | | %s |", of.path, of.instead))
			return
		}
		var same []string
		for _, name := range of.same {
			same = append(same, "`--"+name+"`")
		}
		for _, name := range slices.Sorted(maps.Keys(of.renamed)) {
			same = append(same, fmt.Sprintf("`--%s` is also called `--%s`", name, of.renamed[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(of.differing)) {
			same = append(same, fmt.Sprintf("`--%s` %s", name, of.differing[name]))
		}
		without, instead := described(of.others, func(f *liqoFlag) string { return f.why }), described(of.others, func(f *liqoFlag) string { return f.instead })
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", of.path, strings.Join(same, ", "), without, instead))
	}
	add(&liqoCommand{path: "(all)", same: []string{"cluster", "context", "kubeconfig", "namespace", "user"}, others: everywhere})
	for i := range liqoctl {
		add(&liqoctl[i])
	}
	return strings.ReplaceAll(strings.Join(rows, "\n"), "|  |", "| |")
}

// described lists the flags for which reason returns a text, grouped by this text.
func described(flags []liqoFlag, reason func(*liqoFlag) string) string {
	var reasons []string
	names := map[string][]string{}
	for i := range flags {
		why := reason(&flags[i])
		if why == "" {
			continue
		}
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], "`--"+flags[i].name+"`")
	}
	for i, why := range reasons {
		reasons[i] = strings.Join(names[why], ", ") + ": " + why
	}
	return strings.Join(reasons, "; ")
}
