// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command controller-manager runs the controllers of a cluster that takes part in peerings. On a provider, it serves
// the requests of consumers. On a consumer, it offloads namespaces.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	// The images contain no CA certificates. With this package, the program can verify API servers whose certificate
	// was issued by a public CA.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/refractctl/connectivity/probe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmdutil.SpareGC(ctx, cmdutil.MemoryShare)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "controller-manager:", err)
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:           "controller-manager --cluster-id=ID",
		Short:         "Run the controllers of a cluster that takes part in peerings",
		Args:          cobra.NoArgs,
		Version:       cmdutil.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validateOptions(); err != nil {
				return err
			}
			if err := o.logs.Install(cmd.ErrOrStderr()); err != nil {
				return err
			}
			o.inert.Warn(cmd.Flags())
			o.authentication.warnOfIdleFlags(cmd.Flags())
			return runManager(cmd.Context(), &o)
		},
	}
	o.addFlags(command.Flags())
	command.AddCommand(probe.NewCommand(), newHomeNamesCommand(os.Getenv))
	command.CompletionOptions.DisableDefaultCmd = true
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %s --help", err, c.CommandPath())
	})
	return command
}
