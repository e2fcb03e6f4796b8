// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fromKubectl is an annotation of flags that commands have in common with kubectl: flags that select the cluster, and
// flags for output templates.
const fromKubectl = "refract.io/from-kubectl"

// usageWidth wraps the descriptions of flags at this width.
const usageWidth = 120

// markFromKubectl marks a flag as one that kubectl has, too.
func markFromKubectl(flag *pflag.Flag) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[fromKubectl] = []string{"true"}
}

// flagsOf returns the flags of a command. If kubectl is true, it returns only the flags that kubectl has, too, and
// otherwise only the remaining ones.
func flagsOf(command *cobra.Command, kubectl bool) *pflag.FlagSet {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	add := func(flag *pflag.Flag) {
		if _, is := flag.Annotations[fromKubectl]; is == kubectl && !flag.Hidden && some.Lookup(flag.Name) == nil {
			some.AddFlag(flag)
		}
	}
	command.LocalFlags().VisitAll(add)
	command.InheritedFlags().VisitAll(add)
	return some
}

// PrintUsage writes the usage of a command. The two dozen flags of kubectl are listed only by the command options,
// because the command's own flags would be hard to find otherwise.
func PrintUsage(command *cobra.Command) error {
	var text strings.Builder
	text.WriteString("Usage:\n")
	if command.Runnable() && !command.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "  %s\n", command.UseLine())
	}
	if command.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "  %s COMMAND\n", command.CommandPath())
	}
	if len(command.Aliases) > 0 {
		fmt.Fprintf(&text, "\nAliases:\n  %s\n", command.NameAndAliases())
	}
	if command.HasExample() {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", command.Example)
	}
	if command.HasAvailableSubCommands() {
		text.WriteString("\nCommands:\n")
		for _, child := range command.Commands() {
			if child.IsAvailableCommand() || child.Name() == "help" {
				fmt.Fprintf(&text, "  %-*s %s\n", child.NamePadding(), child.Name(), child.Short)
			}
		}
	}
	if own := flagsOf(command, false); own.HasAvailableFlags() {
		fmt.Fprintf(&text, "\nFlags:\n%s", own.FlagUsagesWrapped(usageWidth))
	}
	switch common := flagsOf(command, true); {
	case common.Lookup("kubeconfig") != nil:
		fmt.Fprintf(&text, "\nUse \"%s options\" for the flags that select the cluster and the user, such as --context and --kubeconfig.\n", command.Root().CommandPath())
	case common.HasAvailableFlags():
		fmt.Fprintf(&text, "\nUse \"%s options\" for the flags of output templates.\n", command.Root().CommandPath())
	}
	if command.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "\nUse \"%s COMMAND --help\" for more about a command.\n", command.CommandPath())
	}
	_, err := fmt.Fprint(command.OutOrStderr(), text.String())
	return err
}

// NewOptionsCommand returns the command "options".
func NewOptionsCommand(access *Access) *cobra.Command {
	all := &cobra.Command{} // all contains the flags that kubectl does not have
	access.AddFlags(all)
	AddOutput(all, "")
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that commands have in common with kubectl",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Commands that access a cluster accept these flags of kubectl; commands with -o also accept those of output templates:\n\n%s", flagsOf(all, true).FlagUsagesWrapped(usageWidth))
			return err
		},
	}
}
