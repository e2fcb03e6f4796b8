// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NewGroup returns a command that only contains other commands. An unknown argument is an error, so that a script
// does not mistake the help for success.
func NewGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: requireCommand(commands)}
	command.AddCommand(commands...)
	return command
}

// requireCommand returns the run function of a command that only contains other commands. Without arguments it prints
// the help, and for an unknown argument it returns an error.
func requireCommand(commands []*cobra.Command) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		names := make([]string, len(commands))
		for i := range commands {
			names[i] = commands[i].Name()
		}
		return UsageError(fmt.Errorf("%s has no command %q: use one of %s, or --help", cmd.CommandPath(), args[0], strings.Join(names, ", ")))
	}
}

// CommandNamed returns the command with the given name.
func CommandNamed(commands []*cobra.Command, name string) *cobra.Command {
	return commands[slices.IndexFunc(commands, func(command *cobra.Command) bool { return command.Name() == name })]
}
