// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// NewPluginRollbackCommand returns the command "plugin rollback".
func NewPluginRollbackCommand(access *invocation.Access) *cobra.Command {
	var to string
	var timeout time.Duration
	command := declaredPluginCommand(access, &cobra.Command{
		Use:     "rollback NAME",
		Aliases: []string{"undo"},
		Short:   "Make an earlier revision of a declared plugin active",
		Long: "Make an earlier revision of a declared plugin active, by default the last one before the active revision whose\n" +
			"probation was over on all virtual nodes, and pin it. Its module is stored in the cluster: the source is not needed.\n" +
			"The plugin follows its source again after refractctl plugin unpin.",
		Example: "  refractctl plugin rollback strip-labels\n" +
			"  refractctl plugin rollback strip-labels --to=strip-labels-4f2c9a1b",
	}, func(cmd *cobra.Command, c client.Client, p *declaredPlugin) error {
		name, err := p.findTarget(to)
		if err != nil {
			return err
		}
		out := cmd.ErrOrStderr()
		if p.Spec.Revision == name && p.Status.OverruledRevision != name {
			fmt.Fprintf(out, "%s: %s is %s already\n", p.Name, pinField.path, name)
			return nil
		}
		if p.Spec.Paused {
			printWarning(out, p.Name, "spec.paused is set: the revision becomes active when it is removed")
		}
		if p.Status.IsRejected(name) {
			printWarning(out, p.Name, fmt.Sprintf("revision %s was rolled back, and the controller manager does not roll it back again", name))
		}
		if err := p.setField(cmd.Context(), c, out, pinField, name, timeout); err != nil {
			return err
		}
		invocation.ResultOf(cmd).AddObject("", plugins.ReflectionPluginKind, "", p.Name)
		return nil
	})
	command.Flags().StringVar(&to, "to", "", "revision to make active (list them with: refractctl plugin status NAME); "+
		"by default status.previousRevision, the last one that has passed its probation")
	command.Flags().DurationVar(&timeout, "timeout", observeTimeout, "how long to wait until the controller manager has observed that a pin before an automatic rollback was removed")
	invocation.CompleteFlagBy(command, "to", completeRevisions(access))
	return command
}

// findTarget returns the name of the revision to roll back to. It is the argument wanted or, if that is empty, the
// previous revision. Any other revision must be named, because it may never have been active.
func (p *declaredPlugin) findTarget(wanted string) (string, error) {
	status := &p.Status
	if wanted != "" {
		return wanted, p.requireRevision("to", wanted)
	}
	if previous := status.PreviousRevision; previous != "" && !status.IsRejected(previous) && p.findRevision(previous) != nil {
		return previous, nil
	}
	return "", fmt.Errorf("plugin %s has no previous revision to go back to: name one with --to (list them with: refractctl plugin status %s), or set spec.paused; %w", p.Name, p.Name, errNothingToDo)
}

// NewPluginUnpinCommand returns the command "plugin unpin".
func NewPluginUnpinCommand(access *invocation.Access) *cobra.Command {
	return declaredPluginCommand(access, &cobra.Command{
		Use:   "unpin NAME",
		Short: "Have a declared plugin follow its source again, after rollback",
		Long: "Remove the pin of a declared plugin, which rollback sets: the plugin follows its source again. The revision that the source and the settings\n" +
			"make is rehearsed and promoted as before, also the one that was active before the rollback. Correct the plugin first.",
		Example: "  refractctl plugin unpin strip-labels",
	}, func(cmd *cobra.Command, c client.Client, p *declaredPlugin) error {
		if p.Spec.Revision == "" {
			return fmt.Errorf("spec.revision of plugin %s is not set; %w", p.Name, errNothingToDo)
		}
		if err := p.setField(cmd.Context(), c, cmd.ErrOrStderr(), pinField, "", 0); err != nil {
			return err
		}
		invocation.ResultOf(cmd).AddObject("", plugins.ReflectionPluginKind, "", p.Name)
		return nil
	})
}
