// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/internal/cmdutil"
)

// NewCommand returns the command gateway. env looks up environment variables.
func NewCommand(env func(string) string) *cobra.Command {
	command := &cobra.Command{
		Use:           "gateway",
		Short:         "Carry packets between the pods of two clusters",
		Version:       cmdutil.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.AddCommand(newRunCommand(env), newAgentCommand(env))
	command.CompletionOptions.DisableDefaultCmd = true
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %s --help", err, c.CommandPath())
	})
	return command
}

func newRunCommand(env func(string) string) *cobra.Command {
	var o runOptions
	command := &cobra.Command{
		Use:   "run --name=GATEWAY --cluster-id=ID",
		Short: "Run the gateway of one peering, in its pod",
		Long: `Run the gateway of one peering, in its pod.

The process needs the capability NET_ADMIN, and /dev/net/tun where the kernel has
no WireGuard. When it ends, the kernel keeps the configuration for the next one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.validate(), o.logs.Install(cmd.ErrOrStderr())); err != nil {
				return err
			}
			return runGateway(cmd.Context(), &o)
		},
	}
	o.addFlags(command.Flags(), env)
	return command
}

func newAgentCommand(env func(string) string) *cobra.Command {
	var o agentOptions
	command := &cobra.Command{
		Use:   "agent --node-name=NAME",
		Short: "Connect a node to the gateways of all peerings",
		Long: `Connect a node to the gateways of all peerings.

The process runs in the network namespace of the host, needs the capability
NET_ADMIN, and writes nothing to the API server. When it ends, the kernel keeps
the configuration for the next one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.validate(), o.logs.Install(cmd.ErrOrStderr())); err != nil {
				return err
			}
			return runAgent(cmd.Context(), &o)
		},
	}
	o.addFlags(command.Flags(), env)
	return command
}
