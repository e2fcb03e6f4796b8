// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/vk/app/options"
)

// helpWidth is the line width of the help text for flags.
const helpWidth = 110

// NewCommand returns the command of the virtual kubelet, which runs until its context ends. env looks up environment
// variables.
func NewCommand(env func(string) string) *cobra.Command {
	o := options.New(env)
	command := &cobra.Command{
		Use:   "virtual-kubelet --nodename=NAME --node-ip=IP --foreign-cluster-id=ID --foreign-kubeconfig-secret-name=SECRET",
		Short: "Present a provider cluster as a node of this cluster",
		Long: `Present a provider cluster as a node of this cluster.

Pods bound to the node run on the provider, together with the Services and
endpoints that they need. Plugins define how objects are mutated.`,
		Args:          cobra.NoArgs,
		Version:       cmdutil.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if err := o.Logs.Install(cmd.ErrOrStderr()); err != nil {
				return err
			}
			o.WarnInert(cmd.Flags())
			return runKubelet(cmd.Context(), o)
		},
	}
	groups := o.FlagGroups()
	for _, group := range groups.FlagSets {
		command.Flags().AddFlagSet(group)
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: see virtual-kubelet --help", err)
	})
	cliflag.SetUsageAndHelpFunc(command, groups, helpWidth)
	return command
}
