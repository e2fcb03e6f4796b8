// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli implements the commands of refractctl, which is also installed as a kubectl plugin.
//
// Commands select their cluster as kubectl does. Results are written to standard output, and progress and warnings to
// standard error. An error names the object, the field or flag, and the remedy. The exit codes are defined in exit.go.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/internal/refractctl/doctor"
)

// program is the name of the program in the examples.
const program = "refractctl"

// Main runs the command line of this process, and then ends the process. name is the name of the command.
func Main(name string) {
	quietLibraries(os.Stderr)
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // with nohup, SIGHUP stays ignored
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := NewCommand(name).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, printable.Indented(printable.Shorten(err.Error(), mostError)))
		os.Exit(exitCode(err))
	}
}

// MainOf runs the command line according to the name of the executable file. kubectl runs kubectl-refract for
// "kubectl refract", and kubectl_complete-refract to complete the arguments. Both files are links to refractctl.
func MainOf(executable string) {
	switch strings.TrimSuffix(filepath.Base(executable), ".exe") {
	case "kubectl-refract":
		Main("kubectl refract")
	case "kubectl_complete-refract":
		os.Args = append([]string{os.Args[0], cobra.ShellCompRequestCmd}, os.Args[1:]...)
		Main("kubectl refract")
	default:
		Main("refractctl")
	}
}

// NewCommand returns the root command. name is the command that users type.
func NewCommand(name string) *cobra.Command {
	access := newClusterAccess()
	withCluster := []*cobra.Command{
		withResult(newInstallCommand(access)), withResult(newUninstallCommand(access)), withResult(newPeerCommand(access)), withResult(newUnpeerCommand(access)),
		newDoctorCommand(access), hiddenGroup("force", withResult(newForceUnpeerCommand(access))),
		newTestCommand(access), newGroup("network", "Connect the networks of clusters, and test them", newNetworkStatusCommand(access), newNetworkTestCommand(access),
			withResult(newNetworkConnectCommand(access)), withResult(newNetworkDisconnectCommand(access)), withResult(newNetworkRotateCommand(access))),
		newGroup("offload", "Offload namespaces to other clusters", newOffloadCommand(access)),
		newGroup("unoffload", "Stop offloading namespaces", withResult(newUnoffloadCommand(access))),
		newGroup("cordon", "Keep new pods off virtual nodes, or refuse those of consumers", withResult(newCordonCommand(access)), withResult(newCordonTenantCommand(access)), withResult(newCordonResourceSliceCommand(access))),
		newGroup("activate", "Admit consumers again, after cordon or drain", withResult(newActivateTenantCommand(access))),
		newGroup("drain", "Move pods off virtual nodes, or revoke the access of consumers", withResult(newDrainCommand(access)), withResult(newDrainTenantCommand(access))),
		newGroup("uncordon", "Admit new pods again, after cordon or drain", withResult(newUncordonCommand(access)), withResult(newUncordonTenantCommand(access)), withResult(newUncordonResourceSliceCommand(access))),
		newGroup("delete", "Delete virtual nodes, or the access of consumers", withResult(newDeleteCommand(access)), withResult(newDeleteResourceSliceCommand(access)), withResult(newDeletePeeringUserCommand(access))),
		newGroup("create", "Create virtual nodes", withResult(newCreateVirtualNodeCommand(access)), withResult(newCreateResourceSliceCommand(access)), withResult(newCreateNonceCommand(access))),
		newGroup("get", "Show virtual nodes", newGetVirtualNodeCommand(access), newGetNonceCommand(access)),
		newLiqoCommand(access),
		newGroup("generate", "Generate what another cluster needs to peer", withResult(newGeneratePeeringUserCommand(access)), newGenerateTenantCommand(access), newGenerateIdentityCommand(access)),
		newInfoCommand(access),
	}
	// The hidden commands have the same names as in liqoctl.
	addHidden(commandNamed(withCluster, "info"), "peer [PEER...]", newInfoCommand(access))
	addHidden(commandNamed(withCluster, "test"), "network [VIRTUAL-NODE]", newNetworkTestCommand(access))
	declared := []*cobra.Command{
		newPluginListCommand(access), newPluginStatusCommand(access), withResult(newPluginApproveCommand(access)),
		withResult(newPluginRollbackCommand(access)), withResult(newPluginUnpinCommand(access)),
	}
	plugin := newGroup("plugin", "Show, approve and roll back declared plugins, and try out plugins without a cluster", append(declared, newInspectCommand(), newRunCommand())...)
	for _, command := range append(withCluster, plugin) {
		withPlainText(command)
	}
	for _, command := range append(declared, withCluster...) {
		withStatusLine(command)
		withInterruption(command, access)
		access.addFlags(command)
	}
	root := newGroup(strings.ReplaceAll(name, " ", "-"), "Peer clusters, offload namespaces, and try out plugins",
		append(withCluster, plugin, newVersionCommand(), newOptionsCommand(access))...)
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	root.Example = "  refractctl install --cluster-id=rome --registry=registry.example.com/refract\n" +
		"  refractctl peer --remote-context=milan\n" +
		"  refractctl info\n" +
		"  refractctl offload namespace shop\n" +
		"  refractctl plugin run strip.wasm -f service.yaml --diff"
	root.Long = root.Short + ".\n\n" +
		"The exit code is 0 on success, 1 if the command failed, 2 if its usage was invalid, 3 if checks found errors, and 4 if the timeout\n" +
		"expired while something was still in progress: run the command again to wait longer."
	root.Version = cmdutil.Version()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if refused := refusalIn(err); refused != nil {
			return usageError(refused)
		}
		return usageError(fmt.Errorf("%w: see %s --help", err, cmd.CommandPath()))
	})
	speakLiqoctl(root)
	addCompletion(root)
	reportUsageErrors(root)
	callBy(name, root)
	return root
}

// newGroup returns a command that only contains other commands. An unknown argument is an error, so that a script
// does not mistake the help for success.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
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
		return usageError(fmt.Errorf("%s has no command %q: use one of %s, or --help", cmd.CommandPath(), args[0], strings.Join(names, ", ")))
	}
}

// commandNamed returns the command with the given name.
func commandNamed(commands []*cobra.Command, name string) *cobra.Command {
	return commands[slices.IndexFunc(commands, func(command *cobra.Command) bool { return command.Name() == name })]
}

// addHidden adds a command under another name, as a hidden command for users of liqoctl.
func addHidden(to *cobra.Command, use string, command *cobra.Command) {
	command.Use, command.Hidden = use, true
	to.AddCommand(command)
}

// hiddenGroup returns a group that is hidden, for users of liqoctl.
func hiddenGroup(use string, commands ...*cobra.Command) *cobra.Command {
	command := newGroup(use, "Commands of liqoctl", commands...)
	command.Hidden = true
	return command
}

// callBy inserts the name of the program into the examples of all commands.
func callBy(name string, command *cobra.Command) {
	command.Example = strings.ReplaceAll(command.Example, program, name)
	for _, child := range command.Commands() {
		callBy(name, child)
	}
}

func newVersionCommand() *cobra.Command {
	var output *output
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.validateFormat(); err != nil {
				return err
			}
			if output.isTable() {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), cmdutil.Version())
				return err
			}
			chart, err := doctor.Version()
			if err != nil {
				return err
			}
			return output.printValue(cmd.OutOrStdout(), "Version", &struct {
				Version string `json:"version"`
				// Installs is the version that refractctl install installs.
				Installs string `json:"installs"`
			}{cmdutil.Version(), chart})
		},
	}
	output = addOutput(command, "", "")
	return command
}
