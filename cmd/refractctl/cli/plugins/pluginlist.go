// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/cmd/refractctl/cli/nodes"
)

// NewPluginListCommand returns the command "plugin list".
func NewPluginListCommand(access *invocation.Access) *cobra.Command {
	var kind, node string
	var output *invocation.Output
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the declared plugins, or the chain that runs for a kind",
		Long: "List the declared plugins (ReflectionPlugins), and those in the folders of virtual kubelets (--plugin-dir), as their\n" +
			"nodes report them. With --kind, --namespace or --node, list the plugins that run for these objects in their running order,\n" +
			"with the default plugin of the kind, and the plugins that do not run, with the reason. Without these flags, formats other\n" +
			"than tables have only the ReflectionPlugins.",
		Example: "  refractctl plugin list -o wide\n" +
			"  refractctl plugin list --kind=Service -n shop\n" +
			"  refractctl plugin list --kind=ingress -n shop --node=milan",
		Args: cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			if err := output.ValidateFormat(); err != nil {
				return err
			}
			c, err := access.NewClient(invocation.RequestTimeout)
			if err != nil {
				return err
			}
			declared, revisions := &plugins.ReflectionPluginList{}, &plugins.PluginRevisionList{}
			if err := readDeclaredPlugins(cmd, c, declared, revisions); err != nil {
				return err
			}
			if kind == "" && node == "" && access.NamespaceFlag() == "" {
				return printPlugins(cmd, c, output, declared)
			}
			scope, err := readChainScope(cmd, c, kind, access.NamespaceFlag(), node)
			if err != nil {
				return err
			}
			inFolders, err := readFolderPlugins(cmd.Context(), c, node, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			chain := scope.composeChain(declared.Items, revisions.Items, &inFolders)
			if output.IsTable() {
				return chain.printChain(cmd.OutOrStdout())
			}
			return output.PrintValue(cmd.OutOrStdout(), "PluginChain", chain)
		}),
	}
	command.Flags().StringVar(&kind, "kind", "", "kind of the objects, such as Service or Ingress.networking.k8s.io")
	command.Flags().StringVar(&node, "node", "", "virtual node that reflects the objects")
	invocation.CompleteFlag(command, "kind", "ConfigMap", "EndpointSlice", "Ingress", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "Secret", "Service")
	invocation.CompleteFlagBy(command, "node", access.CompleteVirtualNodes)
	output = invocation.AddOutput(command, "", "", invocation.Wide)
	return command
}

// readDeclaredPlugins reads the declared plugins and their revisions. If their kinds are not defined, there are none, as
// beside Liqo's controllers. Plugins in folders can be listed nevertheless.
func readDeclaredPlugins(cmd *cobra.Command, c client.Client, lists ...client.ObjectList) error {
	err := invocation.FillLists(cmd.Context(), c, lists...)
	if !apimeta.IsNoMatchError(err) {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(),
		"Warning: ReflectionPlugins are not defined in this cluster, so only the plugins in folders (--plugin-dir) run")
	return nil
}

// printPlugins prints the ReflectionPlugins and, in a table of their own, the plugins in the folders of virtual kubelets.
func printPlugins(cmd *cobra.Command, c client.Client, output *invocation.Output, declared *plugins.ReflectionPluginList) error {
	if err := printDeclared(cmd.OutOrStdout(), output, declared); err != nil || !output.IsTable() {
		return err
	}
	inFolders, err := readFolderPlugins(cmd.Context(), c, "", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return inFolders.printFolderPlugins(cmd.OutOrStdout())
}

// printDeclared prints the ReflectionPlugins.
func printDeclared(out io.Writer, output *invocation.Output, list *plugins.ReflectionPluginList) error {
	if !output.IsTable() {
		printer, err := output.NewPrinter()
		if err != nil {
			return err
		}
		list.SetGroupVersionKind(plugins.GroupVersion.WithKind(plugins.ReflectionPluginKind + "List"))
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(plugins.GroupVersion.WithKind(plugins.ReflectionPluginKind))
			if output.GivenFormat() == "name" { // the printer of this format does not accept lists
				if err := printer.PrintObj(&list.Items[i], invocation.UnchangedWriter(out)); err != nil {
					return err
				}
			}
		}
		if output.GivenFormat() == "name" {
			return nil
		}
		return printer.PrintObj(list, invocation.UnchangedWriter(out))
	}
	header := "PLUGIN\tREVISION\tVERSION\tKINDS\tPRIORITY\tNODES\tREADY\tREASON\tCANDIDATE\tAGE"
	isWide := output.GivenFormat() == invocation.Wide
	if isWide {
		header += "\tREHEARSED\tMESSAGE"
	}
	return invocation.PrintTable(out, header, list.Items, func(p plugins.ReflectionPlugin) []string {
		status, reason, message := describeCondition(&p, plugins.ReadyCondition)
		cells := []string{
			p.Name, p.Status.ActiveRevision, p.Status.Version, strings.Join(p.Spec.Kinds, ","), fmt.Sprint(p.Spec.Priority), p.Status.Nodes, status, reason,
			p.Status.CandidateRevision, duration.HumanDuration(time.Since(p.CreationTimestamp.Time)),
		}
		if isWide {
			_, rehearsed, _ := describeCondition(&p, plugins.RehearsedCondition)
			cells = append(cells, rehearsed, message)
		}
		return cells
	})
}

// describeCondition returns the status, the reason and the message of a condition of a plugin. They are empty if the
// plugin does not have the condition.
func describeCondition(p *plugins.ReflectionPlugin, kind string) (status, reason, message string) {
	if c := apimeta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
		return string(c.Status), c.Reason, c.Message
	}
	return "", "", ""
}

// readChainScope reads the namespace and the virtual node that the flags name. Empty flags do not restrict the scope.
func readChainScope(cmd *cobra.Command, c client.Client, kind, namespace, node string) (*chainScope, error) {
	scope := &chainScope{node: node}
	if kind != "" {
		full, err := resolveKind(c.RESTMapper(), kind)
		if err != nil {
			return nil, err
		}
		scope.kind = full
	}
	if namespace != "" {
		scope.namespace = &corev1.Namespace{}
		if err := c.Get(cmd.Context(), client.ObjectKey{Name: namespace}, scope.namespace); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("--namespace: there is no namespace %s", namespace)
			}
			return nil, fmt.Errorf("getting namespace %s, %w", namespace, err)
		}
	}
	if node == "" {
		return scope, nil
	}
	registered := &corev1.Node{}
	err := c.Get(cmd.Context(), client.ObjectKey{Name: node}, registered)
	if err == nil && registered.Labels[wire.TypeLabel] == wire.VirtualNodeType {
		scope.provider = registered.Labels[wire.RemoteClusterIDLabel]
		return scope, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting node %s, %w", node, err)
	}
	vn, err := nodes.FindVirtualNode(cmd.Context(), c, node)
	if err != nil {
		return nil, fmt.Errorf("--node: %w", err)
	}
	scope.provider = string(vn.Spec.ClusterID)
	return scope, nil
}

// resolveKind returns a kind with its API group, as in the manifests of plugins. Like kubectl, it also accepts names
// of resources.
func resolveKind(mapper apimeta.RESTMapper, kind string) (string, error) {
	name, group, _ := strings.Cut(kind, ".")
	found, err := mapper.KindsFor(schema.GroupVersionResource{Group: group, Resource: strings.ToLower(name)})
	if err != nil {
		if apimeta.IsNoMatchError(err) {
			return "", invocation.UsageError(fmt.Errorf("--kind: this cluster does not serve %q: name a kind, such as Service or Ingress.networking.k8s.io", kind))
		}
		return "", fmt.Errorf("looking for the kind %s, %w", kind, err)
	}
	if i := slices.IndexFunc(found, func(k schema.GroupVersionKind) bool { return group != "" || k.Group == "" }); i > 0 {
		found = found[i:]
	}
	if found[0].Group == "" {
		return found[0].Kind, nil
	}
	return found[0].Kind + "." + found[0].Group, nil
}
