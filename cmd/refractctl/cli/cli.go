// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli holds the commands of refractctl, which is also installed as a
// plugin of kubectl.
//
// Commands that talk to a cluster find it as kubectl does. What a program would
// read goes to the standard output, progress and warnings to the standard
// error. An error names the object, the field or flag, and the remedy.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/internal/cmdutil"
)

// Main runs the command line of this process under the given name and ends it.
func Main(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := NewCommand(name).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// NewCommand returns the root command; name is how users call it.
func NewCommand(name string) *cobra.Command {
	access := &clusterAccess{}
	root := &cobra.Command{
		Use:           strings.ReplaceAll(name, " ", "-"),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:         "Extend namespaces to other clusters, and try plugins out",
		Version:       cmdutil.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	withCluster := []*cobra.Command{newOffloadCommand(access), newUnoffloadCommand(access), newInfoCommand(access)}
	for _, command := range withCluster {
		access.addFlags(command.PersistentFlags())
	}
	root.AddCommand(withCluster...)
	root.AddCommand(newPluginCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmdutil.Version())
			return err
		},
	}
}
