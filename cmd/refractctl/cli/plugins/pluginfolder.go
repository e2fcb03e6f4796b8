// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/folderplugins"
)

// folderPlugin is a plugin in the folders of virtual kubelets. All nodes in the list report the same version and state
// of the plugin.
type folderPlugin struct {
	folderplugins.Plugin
	nodes []string
}

// folderPlugins are the plugins in the folders of the virtual kubelets of some nodes.
type folderPlugins struct {
	plugins []folderPlugin
	nodes   int
}

// readFolderPlugins returns the plugins that virtual kubelets have loaded from their folders, as listed in annotations
// of the Nodes. If node is empty, it returns the plugins of all virtual nodes. A missing permission and an invalid
// annotation are only written to warnings, because the declared plugins can be listed without them. Other errors are
// returned.
func readFolderPlugins(ctx context.Context, c client.Client, node string, warnings io.Writer) (found folderPlugins, err error) {
	nodes := &corev1.NodeList{}
	err = c.List(ctx, nodes, client.MatchingLabels{wire.TypeLabel: wire.VirtualNodeType})
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(warnings, "Warning: plugins in folders (--plugin-dir) are not listed: %v\n", err)
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("listing virtual nodes, %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if node != "" && n.Name != node {
			continue
		}
		found.nodes++
		list, err := folderplugins.Decode(n.Annotations)
		if err != nil {
			fmt.Fprintf(warnings, "Warning: node %s: %v\n", n.Name, err)
		}
		if list.Omitted > 0 {
			fmt.Fprintf(warnings, "Warning: node %s: %d more plugins in its folder are not listed\n", n.Name, list.Omitted)
		}
		for _, p := range list.Plugins {
			found.add(n.Name, p)
		}
	}
	slices.SortStableFunc(found.plugins, func(a, b folderPlugin) int { return compareChained(a.Priority, b.Priority, a.Name, b.Name) })
	return found, nil
}

func (f *folderPlugins) add(node string, p folderplugins.Plugin) {
	for i := range f.plugins {
		if reflect.DeepEqual(f.plugins[i].Plugin, p) {
			f.plugins[i].nodes = append(f.plugins[i].nodes, node)
			return
		}
	}
	f.plugins = append(f.plugins, folderPlugin{p, []string{node}})
}

// addToChain adds the plugins in folders to the chain of the scope, or to the plugins that are left out.
func (f *folderPlugins) addToChain(s *chainScope, chain *Chain) {
	for i := range f.plugins {
		p := &f.plugins[i]
		if reason := s.excludeFolderPlugin(p); reason != "" {
			chain.LeftOut = append(chain.LeftOut, LeftOutPlugin{p.Name, reason})
			continue
		}
		var when []string
		if s.kind == "" {
			when = append(when, "kinds "+joinList(p.Kinds))
		}
		if len(p.nodes) < f.nodes {
			when = append(when, "virtual nodes "+joinList(p.nodes))
		}
		chain.Chain = append(chain.Chain, ChainedPlugin{
			Name: p.Name, Origin: FolderOrigin, Priority: p.Priority, Version: p.Version, Hooks: p.Hooks, When: when, replaces: p.Replaces,
		})
	}
}

// excludeFolderPlugin explains why a plugin in a folder does not run for the objects. It returns an empty text if the plugin runs.
func (s *chainScope) excludeFolderPlugin(p *folderPlugin) string {
	where := fmt.Sprintf("in the folder of %s, %s", joinList(p.nodes), p.State)
	if !p.IsRunning {
		if len(p.Held) > 0 {
			where += "; objects are held: " + joinList(p.Held)
		}
		return where + ": see the Events of the VirtualNode"
	}
	if s.kind != "" && !slices.Contains(p.Kinds, s.kind) {
		return fmt.Sprintf("kinds: in the folder of %s, it is for %s", joinList(p.nodes), joinList(p.Kinds))
	}
	return ""
}

// printFolderPlugins prints the plugins in folders, unless there are none.
func (f *folderPlugins) printFolderPlugins(out io.Writer) error {
	if len(f.plugins) == 0 {
		return nil
	}
	return invocation.PrintTable(out, "FOLDER PLUGIN\tVERSION\tKINDS\tPRIORITY\tNODES\tSTATE", f.plugins, func(p folderPlugin) []string {
		return []string{p.Name, p.Version, joinList(p.Kinds), fmt.Sprint(p.Priority), joinList(p.nodes), p.describeState()}
	})
}

// describeState describes the state of a plugin in a folder, and which version runs.
func (p *folderPlugin) describeState() string {
	switch {
	case len(p.Held) > 0:
		return p.State + ", " + joinList(p.Held) + " held"
	case p.State == folderplugins.FailedState && p.IsRunning:
		return p.State + ", an earlier version runs"
	}
	return p.State
}
