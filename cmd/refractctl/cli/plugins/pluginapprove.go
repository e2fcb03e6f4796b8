// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// observeTimeout limits how long the controller manager may take to observe a change to a plugin. This normally takes
// less than a second.
const observeTimeout = time.Minute

// NewPluginApproveCommand returns the command "plugin approve".
func NewPluginApproveCommand(access *invocation.Access) *cobra.Command {
	var revision string
	var timeout time.Duration
	command := declaredPluginCommand(access, &cobra.Command{
		Use:   "approve NAME",
		Short: "Approve the revision of a declared plugin that waits for it",
		Long: "Show the rehearsal of the candidate of a declared plugin, and approve it: the controller manager makes it active whatever the rehearsal has\n" +
			"shown. A revision that was rolled back can be approved as well, and is not rolled back again by the controller manager.",
		Example: "  refractctl plugin approve strip-labels\n" +
			"  refractctl plugin approve strip-labels --revision=strip-labels-9be01c77",
	}, func(cmd *cobra.Command, c client.Client, p *declaredPlugin) error {
		name, err := p.findApprovable(revision)
		if err != nil {
			return err
		}
		if err := newRehearsalReport(p.findRevision(name)).printReport(cmd.OutOrStdout()); err != nil {
			return err
		}
		out := cmd.ErrOrStderr()
		if rehearsal := p.Spec.Rollout.Rehearsal; rehearsal != nil && rehearsal.Approved == name && p.Status.OverruledRevision != name {
			fmt.Fprintf(out, "%s: %s is %s already\n", p.Name, approvedField.path, name)
			return nil
		}
		if p.Spec.Paused {
			printWarning(out, p.Name, "spec.paused is set: the revision becomes active when it is removed")
		}
		if err := p.setField(cmd.Context(), c, out, approvedField, name, timeout); err != nil {
			return err
		}
		invocation.ResultOf(cmd).AddObject("", plugins.ReflectionPluginKind, "", p.Name)
		return nil
	})
	command.Flags().StringVar(&revision, "revision", "", "revision to approve; by default the candidate, or the one that was rolled back if there is none")
	command.Flags().DurationVar(&timeout, "timeout", observeTimeout, "how long to wait until the controller manager has observed that an approval before a rollback was removed")
	invocation.CompleteFlagBy(command, "revision", completeRevisions(access))
	return command
}

// findApprovable returns the name of the revision to approve. It is the argument wanted or, if that is empty, the
// candidate or the rejected revision. It returns an error if the approval would have no effect.
func (p *declaredPlugin) findApprovable(wanted string) (string, error) {
	status := &p.Status
	if wanted != "" {
		if err := p.requireRevision("revision", wanted); err != nil {
			return "", err
		}
	}
	name := cmp.Or(wanted, status.CandidateRevision, status.RejectedRevision)
	switch {
	case name == "":
		return "", fmt.Errorf("plugin %s has no revision to approve: none waits for it, and none was rolled back; %w", p.Name, errNothingToDo)
	case name == status.ActiveRevision:
		return "", fmt.Errorf("plugin %s has no revision to approve: %s is active; %w", p.Name, name, errNothingToDo)
	case name != status.CandidateRevision && !status.IsRejected(name):
		return "", fmt.Errorf("revision %s is not the candidate of plugin %s, and was not rolled back: to make it active, run refractctl plugin rollback %s --to=%s; %w", name, p.Name, p.Name, name, errNothingToDo)
	case p.findRevision(name) == nil:
		return "", fmt.Errorf("PluginRevision %s, which the status of plugin %s names, does not exist: see whether the controller manager runs; %w", name, p.Name, errNothingToDo)
	case p.Spec.Revision != "":
		return "", fmt.Errorf("spec.revision of plugin %s names %s, so an approval has no effect: run refractctl plugin unpin %s first; %w", p.Name, p.Spec.Revision, p.Name, errNothingToDo)
	case p.Spec.Rollout.Strategy == plugins.ImmediateRollout:
		return "", fmt.Errorf("spec.rollout.strategy of plugin %s is Immediate, which has no approvals: to make the revision active, run refractctl plugin rollback %s --to=%s; %w", p.Name, p.Name, name, errNothingToDo)
	}
	return name, nil
}
