// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli implements the commands of refractctl, which is also installed as a kubectl plugin.
//
// Commands select their cluster as kubectl does. Results are written to standard output, and progress and warnings to
// standard error. An error names the object, the field or flag, and the remedy. The exit codes are defined in package
// invocation.
//
// This package assembles the commands, and has those that tell about a whole cluster. The others are in a package for
// each topic, such as plugins or peerings; what they share is in package invocation.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/cmd/refractctl/cli/consumers"
	"github.com/refract-project/refract/cmd/refractctl/cli/install"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/cmd/refractctl/cli/namespaces"
	"github.com/refract-project/refract/cmd/refractctl/cli/nodes"
	"github.com/refract-project/refract/cmd/refractctl/cli/peerings"
	"github.com/refract-project/refract/cmd/refractctl/cli/plugins"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/internal/refractctl/doctor"
)

// program is the name of the program in the examples.
const program = "refractctl"

// Main runs the command line of this process, and then ends the process. name is the name of the command.
func Main(name string) {
	invocation.QuietLibraries(os.Stderr)
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // with nohup, SIGHUP stays ignored
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := NewCommand(name).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, printable.Indented(printable.Shorten(err.Error(), invocation.MostError)))
		os.Exit(invocation.ExitCode(err))
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
	access := invocation.NewAccess()
	withCluster := []*cobra.Command{
		invocation.WithResult(install.NewInstallCommand(access)), invocation.WithResult(install.NewUninstallCommand(access)), invocation.WithResult(peerings.NewPeerCommand(access)), invocation.WithResult(peerings.NewUnpeerCommand(access)),
		newDoctorCommand(access), hiddenGroup("force", invocation.WithResult(peerings.NewForceUnpeerCommand(access))),
		peerings.NewTestCommand(access), invocation.NewGroup("network", "Connect the networks of clusters, and test them", peerings.NewNetworkStatusCommand(access), peerings.NewNetworkTestCommand(access),
			invocation.WithResult(peerings.NewNetworkConnectCommand(access)), invocation.WithResult(peerings.NewNetworkDisconnectCommand(access)), invocation.WithResult(peerings.NewNetworkRotateCommand(access))),
		invocation.NewGroup("offload", "Offload namespaces to other clusters", namespaces.NewOffloadCommand(access)),
		invocation.NewGroup("unoffload", "Stop offloading namespaces", invocation.WithResult(namespaces.NewUnoffloadCommand(access))),
		invocation.NewGroup("cordon", "Keep new pods off virtual nodes, or refuse those of consumers", invocation.WithResult(nodes.NewCordonCommand(access)), invocation.WithResult(consumers.NewCordonTenantCommand(access)), invocation.WithResult(consumers.NewCordonResourceSliceCommand(access))),
		invocation.NewGroup("activate", "Admit consumers again, after cordon or drain", invocation.WithResult(consumers.NewActivateTenantCommand(access))),
		invocation.NewGroup("drain", "Move pods off virtual nodes, or revoke the access of consumers", invocation.WithResult(nodes.NewDrainCommand(access)), invocation.WithResult(consumers.NewDrainTenantCommand(access))),
		invocation.NewGroup("uncordon", "Admit new pods again, after cordon or drain", invocation.WithResult(nodes.NewUncordonCommand(access)), invocation.WithResult(consumers.NewUncordonTenantCommand(access)), invocation.WithResult(consumers.NewUncordonResourceSliceCommand(access))),
		invocation.NewGroup("delete", "Delete virtual nodes, or the access of consumers", invocation.WithResult(nodes.NewDeleteCommand(access)), invocation.WithResult(consumers.NewDeleteResourceSliceCommand(access)), invocation.WithResult(peerings.NewDeletePeeringUserCommand(access))),
		invocation.NewGroup("create", "Create virtual nodes", invocation.WithResult(nodes.NewCreateVirtualNodeCommand(access)), invocation.WithResult(consumers.NewCreateResourceSliceCommand(access)), invocation.WithResult(consumers.NewCreateNonceCommand(access))),
		invocation.NewGroup("get", "Show virtual nodes", newGetVirtualNodeCommand(access), consumers.NewGetNonceCommand(access)),
		newLiqoCommand(access),
		invocation.NewGroup("generate", "Generate what another cluster needs to peer", invocation.WithResult(peerings.NewGeneratePeeringUserCommand(access)), consumers.NewGenerateTenantCommand(access), consumers.NewGenerateIdentityCommand(access)),
		newInfoCommand(access),
	}
	// The hidden commands have the same names as in liqoctl.
	addHidden(invocation.CommandNamed(withCluster, "info"), "peer [PEER...]", newInfoCommand(access))
	addHidden(invocation.CommandNamed(withCluster, "test"), "network [VIRTUAL-NODE]", peerings.NewNetworkTestCommand(access))
	declared := []*cobra.Command{
		plugins.NewPluginListCommand(access), plugins.NewPluginStatusCommand(access), invocation.WithResult(plugins.NewPluginApproveCommand(access)),
		invocation.WithResult(plugins.NewPluginRollbackCommand(access)), invocation.WithResult(plugins.NewPluginUnpinCommand(access)),
	}
	plugin := invocation.NewGroup("plugin", "Show, approve and roll back declared plugins, and try out plugins without a cluster", append(declared, plugins.NewInspectCommand(), plugins.NewRunCommand())...)
	for _, command := range append(withCluster, plugin) {
		invocation.WithPlainText(command)
	}
	for _, command := range append(declared, withCluster...) {
		invocation.WithStatusLine(command)
		invocation.WithInterruption(command, access)
		access.AddFlags(command)
	}
	root := invocation.NewGroup(strings.ReplaceAll(name, " ", "-"), "Peer clusters, offload namespaces, and try out plugins",
		append(withCluster, plugin, newVersionCommand(), invocation.NewOptionsCommand(access))...)
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
	root.SetUsageFunc(invocation.PrintUsage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if refused := refusalIn(err); refused != nil {
			return invocation.UsageError(refused)
		}
		return invocation.UsageError(fmt.Errorf("%w: see %s --help", err, cmd.CommandPath()))
	})
	speakLiqoctl(root)
	invocation.AddCompletion(root)
	invocation.ReportUsageErrors(root)
	callBy(name, root)
	return root
}

// addHidden adds a command under another name, as a hidden command for users of liqoctl.
func addHidden(to *cobra.Command, use string, command *cobra.Command) {
	command.Use, command.Hidden = use, true
	to.AddCommand(command)
}

// hiddenGroup returns a group that is hidden, for users of liqoctl.
func hiddenGroup(use string, commands ...*cobra.Command) *cobra.Command {
	command := invocation.NewGroup(use, "Commands of liqoctl", commands...)
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
	var output *invocation.Output
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.ValidateFormat(); err != nil {
				return err
			}
			if output.IsTable() {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), cmdutil.Version())
				return err
			}
			chart, err := doctor.Version()
			if err != nil {
				return err
			}
			return output.PrintValue(cmd.OutOrStdout(), "Version", &struct {
				Version string `json:"version"`
				// Installs is the version that refractctl install installs.
				Installs string `json:"installs"`
			}{cmdutil.Version(), chart})
		},
	}
	output = invocation.AddOutput(command, "", "")
	return command
}
