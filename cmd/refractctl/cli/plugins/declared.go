// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// declaredPlugin is a ReflectionPlugin with its revisions, the newest first.
type declaredPlugin struct {
	*plugins.ReflectionPlugin
	revisions []plugins.PluginRevision
}

// pluginNameArgs requires one argument, the name of a ReflectionPlugin.
func pluginNameArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one plugin, not %d: %s NAME (list them with: refractctl plugin list)", len(args), cmd.CommandPath())
	}
	return nil
}

// declaredPluginCommand returns a command for one ReflectionPlugin.
func declaredPluginCommand(access *invocation.Access, command *cobra.Command, do func(cmd *cobra.Command, c client.Client, p *declaredPlugin) error) *cobra.Command {
	command.Args = pluginNameArgs
	command.ValidArgsFunction = completePlugins(access)
	command.RunE = invocation.ExplainErrors(func(cmd *cobra.Command, args []string) error {
		c, err := access.NewClient(invocation.RequestTimeout)
		if err != nil {
			return err
		}
		p, err := getDeclaredPlugin(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return do(cmd, c, p)
	})
	return command
}

// getDeclaredPlugin reads a ReflectionPlugin and its revisions from the cluster.
func getDeclaredPlugin(ctx context.Context, c client.Client, name string) (*declaredPlugin, error) {
	p := &plugins.ReflectionPlugin{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no ReflectionPlugin %s (list them with: refractctl plugin list)", name)
		}
		return nil, fmt.Errorf("getting ReflectionPlugin %s, %w", name, err)
	}
	all := &plugins.PluginRevisionList{}
	if err := invocation.FillLists(ctx, c, all); err != nil {
		return nil, err
	}
	return newDeclaredPlugin(p, all.Items), nil
}

// newDeclaredPlugin returns a plugin with its own revisions out of all revisions.
func newDeclaredPlugin(p *plugins.ReflectionPlugin, all []plugins.PluginRevision) *declaredPlugin {
	d := &declaredPlugin{ReflectionPlugin: p}
	for i := range all {
		if metav1.IsControlledBy(&all[i], p) {
			d.revisions = append(d.revisions, all[i])
		}
	}
	slices.SortFunc(d.revisions, func(a, b plugins.PluginRevision) int { return cmp.Compare(b.Spec.Number, a.Spec.Number) })
	return d
}

// findRevision returns the revision with the given name, or nil if the plugin has no such revision.
func (p *declaredPlugin) findRevision(name string) *plugins.PluginRevision {
	for i := range p.revisions {
		if p.revisions[i].Name == name {
			return &p.revisions[i]
		}
	}
	return nil
}

// requireRevision returns an error if the plugin has no revision with the given name.
func (p *declaredPlugin) requireRevision(flag, name string) error {
	if p.findRevision(name) != nil {
		return nil
	}
	names := make([]string, 0, len(p.revisions))
	for i := range p.revisions {
		names = append(names, p.revisions[i].Name)
	}
	return fmt.Errorf("--%s: plugin %s has no revision %s, it has %s", flag, p.Name, name, cmp.Or(joinList(names), "none"))
}

// setField sets a field of the spec of a plugin to the name of a revision, or removes it, and prints the path of the
// field. If a rollback has overruled the revision, the field is removed first, because it has no effect until the
// controller manager has observed the removal.
func (p *declaredPlugin) setField(ctx context.Context, c client.Client, out io.Writer, field specField, revision string, timeout time.Duration) error {
	if p.Status.OverruledRevision == revision && revision != "" {
		if err := p.removeChoices(ctx, c, out, timeout); err != nil {
			return err
		}
	}
	value := "null"
	if revision != "" {
		value = fmt.Sprintf("%q", revision)
	}
	if err := p.patch(ctx, c, fmt.Sprintf(field.patch, value)); err != nil {
		return err
	}
	done := fmt.Sprintf("set to %s", revision)
	if revision == "" {
		done = "removed"
	}
	fmt.Fprintf(out, "%s: %s of the ReflectionPlugin was %s. If the object comes from Git, change it there, too.\n", p.Name, field.path, done)
	return nil
}

// specField is a field of a ReflectionPlugin, with the merge patch that sets it.
type specField struct{ path, patch string }

var (
	pinField      = specField{"spec.revision", `{"spec":{"revision":%s}}`}
	approvedField = specField{"spec.rollout.rehearsal.approved", `{"spec":{"rollout":{"rehearsal":{"approved":%s}}}}`}
)

func (p *declaredPlugin) patch(ctx context.Context, c client.Client, patch string) error {
	if err := c.Patch(ctx, p.ReflectionPlugin.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("patching ReflectionPlugin %s, %w", p.Name, err)
	}
	return nil
}

// removeChoices removes the fields that name the overruled revision, and waits until the controller manager has
// observed the removal.
func (p *declaredPlugin) removeChoices(ctx context.Context, c client.Client, out io.Writer, timeout time.Duration) error {
	overruled := p.Status.OverruledRevision
	if p.Spec.Revision == overruled {
		if err := p.patch(ctx, c, fmt.Sprintf(pinField.patch, "null")); err != nil {
			return err
		}
	}
	if rehearsal := p.Spec.Rollout.Rehearsal; rehearsal != nil && rehearsal.Approved == overruled {
		if err := p.patch(ctx, c, fmt.Sprintf(approvedField.patch, "null")); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return invocation.AwaitOne(ctx, out, "plugin", p.Name, timeout, func(ctx context.Context) (bool, string, error) {
		now := &plugins.ReflectionPlugin{}
		if err := c.Get(ctx, client.ObjectKey{Name: p.Name}, now); err != nil {
			return false, "", fmt.Errorf("getting ReflectionPlugin %s, %w", p.Name, err)
		}
		return now.Status.OverruledRevision == "", "waiting for the controller manager to observe that the choice before the rollback was removed", nil
	})
}

// errNothingToDo is wrapped by the error of a command that has nothing to change.
var errNothingToDo = errors.New("nothing was changed")

// completePlugins completes the only argument with the names of ReflectionPlugins.
func completePlugins(access *invocation.Access) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := &plugins.ReflectionPluginList{}
		return access.CompleteNames(cmd.Context(), given, all, func() (names []string) {
			for i := range all.Items {
				names = append(names, all.Items[i].Name)
			}
			return names
		})
	}
}

// completeRevisions offers the revisions of the plugin that the argument names.
func completeRevisions(access *invocation.Access) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		all := &plugins.PluginRevisionList{}
		return access.CompleteNames(cmd.Context(), nil, all, func() (names []string) {
			for i := range all.Items {
				if len(given) == 0 || all.Items[i].Spec.Plugin == given[0] {
					names = append(names, all.Items[i].Name)
				}
			}
			return names
		})
	}
}
