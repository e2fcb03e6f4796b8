// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Virtual-kubelet makes a provider cluster look like a node of this cluster:
// pods bound to the node run at the provider, with the Services and endpoints
// that they need.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/refract-project/refract/internal/cmdutil"
)

// helpWidth of the flags' descriptions.
const helpWidth = 110

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmdutil.SpareGC(ctx)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand(os.Getenv).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "virtual-kubelet:", err)
		os.Exit(1)
	}
}

func newCommand(env func(string) string) *cobra.Command {
	o := newOptions(env)
	command := &cobra.Command{
		Use:   "virtual-kubelet --nodename=NAME --node-ip=IP --foreign-cluster-id=ID --foreign-kubeconfig-secret-name=SECRET",
		Short: "Make a provider cluster look like a node of this cluster",
		Long: `Make a provider cluster look like a node of this cluster.

Pods bound to the node run at the provider, together with the Services and
endpoints that they need. What is mutated on the way is up to plugins.`,
		Args:          cobra.NoArgs,
		Version:       cmdutil.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if err := o.logs.Install(cmd.ErrOrStderr()); err != nil {
				return err
			}
			o.warnInert(cmd.Flags())
			return run(cmd.Context(), o)
		},
	}
	groups := o.flagGroups()
	for _, group := range groups.FlagSets {
		command.Flags().AddFlagSet(group)
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: see virtual-kubelet --help", err)
	})
	cliflag.SetUsageAndHelpFunc(command, groups, helpWidth)
	return command
}
