// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/printable"
)

// completionTimeout limits how long a shell waits for the cluster. A longer timeout blocks the prompt for longer;
// with a shorter one, no completions are offered over a slow link.
const completionTimeout = 3 * time.Second

// AddCompletion adds cobra's command that prints the completion scripts. For an unknown shell, cobra prints the help.
func AddCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion := CommandNamed(root.Commands(), "completion")
	completion.Args, completion.RunE = cobra.ArbitraryArgs, requireCommand(completion.Commands())
}

// CompleteFlag adds completions for the values of a flag.
func CompleteFlag(command *cobra.Command, flag string, values ...string) {
	CompleteFlagBy(command, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteFlagBy completes the values of a flag with a function.
func CompleteFlagBy(command *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("completing --%s: %v", flag, err)) // the flag does not exist, which is a mistake in this package
	}
}

// completeContexts offers the contexts of the kubeconfig. It leaves out names with control characters: completions are
// not escaped like the output of commands, and no context has an escaped name.
func (a *Access) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := a.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(config.Contexts)), func(name string) bool { return !printable.IsLine(name) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteNamespaces offers the namespaces of the cluster.
func (a *Access) CompleteNamespaces(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	namespaces := &corev1.NamespaceList{}
	return a.CompleteNames(cmd.Context(), given, namespaces, func() (names []string) {
		for i := range namespaces.Items {
			names = append(names, namespaces.Items[i].Name)
		}
		return names
	})
}

// CompleteExtended offers the offloaded namespaces.
func (a *Access) CompleteExtended(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	extended := &offloading.NamespaceOffloadingList{}
	return a.CompleteNames(cmd.Context(), given, extended, func() (names []string) {
		for i := range extended.Items {
			names = append(names, extended.Items[i].Namespace)
		}
		return names
	})
}

// CompleteVirtualNodes offers the virtual nodes of the cluster.
func (a *Access) CompleteVirtualNodes(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	virtualNodes := &offloading.VirtualNodeList{}
	return a.CompleteNames(cmd.Context(), given, virtualNodes, func() (names []string) {
		for i := range virtualNodes.Items {
			names = append(names, virtualNodes.Items[i].Name)
		}
		return names
	})
}

// CompletePeers offers the IDs of the peered clusters.
func (a *Access) CompletePeers(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	clusters := &core.ForeignClusterList{}
	return a.CompleteNames(cmd.Context(), given, clusters, func() (names []string) {
		for i := range clusters.Items {
			names = append(names, string(clusters.Items[i].Spec.ClusterID))
		}
		return names
	})
}

// CompleteNames reads the list and offers the names that are not in the arguments yet.
func (a *Access) CompleteNames(ctx context.Context, given []string, list client.ObjectList, names func() []string) ([]string, cobra.ShellCompDirective) {
	c, err := a.NewClient(completionTimeout)
	if err == nil {
		err = c.List(ctx, list)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	offered := slices.DeleteFunc(names(), func(name string) bool { return slices.Contains(given, name) || !printable.IsLine(name) })
	return offered, cobra.ShellCompDirectiveNoFileComp
}

// CompleteWasm completes the only argument with file names.
func CompleteWasm(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
}
