// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/host"
	defaults "github.com/refract-project/refract/plugins"
)

// chainScope selects the objects to show the chain of plugins for. Empty fields do not restrict the selection.
type chainScope struct {
	// kind is written as in the manifests of plugins.
	kind           string
	namespace      *corev1.Namespace
	node, provider string
}

// Chain is the output of "plugin list" for the objects of a kind.
type Chain struct {
	Kind      string          `json:"kind,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Node      string          `json:"node,omitempty"`
	Chain     []ChainedPlugin `json:"chain"`
	LeftOut   []LeftOutPlugin `json:"leftOut"`
}

// ChainedPlugin is a plugin that runs. A chain lists its plugins in the order of execution.
type ChainedPlugin struct {
	Name     string `json:"name"`
	Origin   string `json:"origin"` // Default, Folder or Declared
	Priority int32  `json:"priority"`
	Revision string `json:"revision,omitempty"`
	// InsteadOf is the active revision, if the virtual node runs Revision because it has rolled back the active one or
	// cannot load it.
	InsteadOf string   `json:"insteadOf,omitempty"`
	Version   string   `json:"version,omitempty"`
	Hooks     []string `json:"hooks,omitempty"`
	// When lists restrictions of the plugin that the scope does not already imply.
	When []string `json:"when,omitempty"`

	replaces string
}

// LeftOutPlugin is a plugin that does not run, and the reason.
type LeftOutPlugin struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// The possible origins of a plugin.
const (
	DefaultOrigin  = "Default"
	FolderOrigin   = "Folder"
	declaredOrigin = "Declared"
)

// composeChain returns the plugins that run for the objects, in the same order as in virtual kubelets: first plugins
// with a negative priority, then the default plugin of the kind, and finally all other plugins.
func (s *chainScope) composeChain(declared []plugins.ReflectionPlugin, revisions []plugins.PluginRevision,
	inFolders *folderPlugins) *Chain {
	chain := &Chain{Kind: s.kind, Node: s.node, Chain: []ChainedPlugin{}, LeftOut: []LeftOutPlugin{}}
	if s.namespace != nil {
		chain.Namespace = s.namespace.Name
	}
	for i := range declared {
		p := newDeclaredPlugin(&declared[i], revisions)
		running := s.findRunning(p)
		if reason := s.exclude(p, running); reason != "" {
			chain.LeftOut = append(chain.LeftOut, LeftOutPlugin{p.Name, reason})
			continue
		}
		plugin := ChainedPlugin{
			Name: p.Name, Origin: declaredOrigin, Priority: running.Spec.Priority, Revision: running.Name, Version: running.Spec.Manifest.Version,
			Hooks: running.Spec.Manifest.Hooks, When: s.describeRest(p, running), replaces: running.Spec.Replaces,
		}
		if running.Name != p.Status.ActiveRevision {
			plugin.InsteadOf = p.Status.ActiveRevision
		}
		chain.Chain = append(chain.Chain, plugin)
	}
	inFolders.addToChain(s, chain)
	slices.SortFunc(chain.Chain, func(a, b ChainedPlugin) int { return compareChained(a.Priority, b.Priority, a.Name, b.Name) })
	if s.kind != "" {
		chain.insertDefault(s.kind)
	}
	return chain
}

// compareChained compares two plugins by their order in a chain: by priority, then by name.
func compareChained(priority, otherPriority int32, name, otherName string) int {
	return cmp.Or(cmp.Compare(priority, otherPriority), cmp.Compare(name, otherName))
}

// insertDefault inserts the default plugin of a kind, unless another plugin replaces it for all objects of the scope.
func (c *Chain) insertDefault(kind string) {
	name, _ := defaults.Default(kind)
	plugin := ChainedPlugin{Name: name, Origin: DefaultOrigin}
	for _, other := range c.Chain {
		switch {
		case other.replaces != name:
		case len(other.When) == 0:
			c.LeftOut = append(c.LeftOut, LeftOutPlugin{name, fmt.Sprintf("the default plugin, replaced by %s", other.Name)})
			return
		default:
			plugin.When = append(plugin.When, "where "+other.Name+", which replaces it, does not run")
		}
	}
	at := slices.IndexFunc(c.Chain, func(p ChainedPlugin) bool { return p.Priority >= 0 })
	if at < 0 {
		at = len(c.Chain)
	}
	c.Chain = slices.Insert(c.Chain, at, plugin)
}

// exclude returns the reason why a plugin does not run for the objects of the scope, or an empty text if it runs.
func (s *chainScope) exclude(p *declaredPlugin, running *plugins.PluginRevision) string {
	if running == nil {
		_, reason, message := describeCondition(p.ReflectionPlugin, plugins.ReadyCondition)
		return fmt.Sprintf("no revision is active (%s): %s", cmp.Or(reason, "not reconciled"), cmp.Or(message, "see whether the controller manager runs with plugins.enabled"))
	}
	settings := &running.Spec.PluginSettings
	if kind, group, _ := strings.Cut(s.kind, "."); s.kind != "" {
		switch {
		case !host.MatchesKind(settings.Kinds, kind, group):
			return "kinds: it is for " + joinList(settings.Kinds)
		case !host.MatchesKind(running.Spec.Manifest.Kinds, kind, group):
			return "kinds: its module is for " + joinList(running.Spec.Manifest.Kinds)
		}
	}
	if match := settings.Match; match != nil {
		switch {
		case s.node != "" && len(match.Providers) > 0 && !slices.Contains(match.Providers, s.provider):
			return fmt.Sprintf("match.providers: it is for %s, and the provider of %s is %s", joinList(match.Providers), s.node, s.provider)
		case s.namespace != nil && !selects(match.NamespaceSelector, s.namespace.Labels):
			return fmt.Sprintf("match.namespaceSelector: it is for namespaces with %s", metav1.FormatLabelSelector(match.NamespaceSelector))
		}
	}
	return s.excludeOnNode(running, p.Status.ActiveRevision)
}

// findRunning returns the revision of a plugin that the virtual node of the scope runs. This is the active revision,
// except after the virtual node has rolled it back by itself, or while it cannot load it and runs an earlier one. Without
// a virtual node in the scope, or if it runs none, the active revision is returned, or nil if no revision is active.
func (s *chainScope) findRunning(p *declaredPlugin) *plugins.PluginRevision {
	active := p.findRevision(p.Status.ActiveRevision)
	if s.node == "" || active == nil || s.runs(active) {
		return active
	}
	if entry := s.entry(active); entry != nil && entry.RunningRevision != "" {
		return cmp.Or(p.findRevision(entry.RunningRevision), active)
	}
	if i := slices.IndexFunc(p.revisions, func(r plugins.PluginRevision) bool { return s.runs(&r) }); i >= 0 {
		return &p.revisions[i]
	}
	return active
}

// entry returns the report of the virtual node of the scope about a revision, or nil if there is none.
func (s *chainScope) entry(revision *plugins.PluginRevision) *plugins.VirtualNodePlugin {
	for i := range revision.Status.VirtualNodes {
		if entry := &revision.Status.VirtualNodes[i]; entry.Name == s.node {
			return entry
		}
	}
	return nil
}

// runs reports whether the virtual node of the scope has reported that it runs the revision.
func (s *chainScope) runs(revision *plugins.PluginRevision) bool {
	entry := s.entry(revision)
	return entry != nil && entry.State == plugins.ActivePlugin
}

// excludeOnNode returns the reason why the virtual node of the scope does not run any revision of the plugin. It returns
// an empty text if the virtual node runs the given one (see findRunning), or if the scope has no virtual node.
func (s *chainScope) excludeOnNode(running *plugins.PluginRevision, active string) string {
	if s.node == "" || running.Name != active {
		return ""
	}
	entry := s.entry(running)
	switch {
	case entry == nil:
		return fmt.Sprintf("%s has not reported about revision %s", s.node, active)
	case entry.State == plugins.ActivePlugin:
		return ""
	}
	return fmt.Sprintf("%s on %s: %s", entry.State, s.node, cmp.Or(entry.Message, entry.Reason, "revision "+active))
}

// describeRest describes the restrictions of a plugin that the scope does not decide.
func (s *chainScope) describeRest(p *declaredPlugin, active *plugins.PluginRevision) (when []string) {
	if match := active.Spec.Match; match != nil {
		if s.namespace == nil && !isEmptySelector(match.NamespaceSelector) {
			when = append(when, "namespaces with "+metav1.FormatLabelSelector(match.NamespaceSelector))
		}
		if !isEmptySelector(match.ObjectSelector) {
			when = append(when, "objects with "+metav1.FormatLabelSelector(match.ObjectSelector))
		}
		if s.node == "" && len(match.Providers) > 0 {
			when = append(when, "providers "+joinList(match.Providers))
		}
	}
	if s.kind == "" {
		when = append(when, "kinds "+joinList(active.Spec.Kinds))
	}
	if runs, all, found := strings.Cut(p.Status.Nodes, "/"); s.node == "" && found && runs != all {
		when = append(when, fmt.Sprintf("%s of %s virtual nodes", runs, all))
	}
	return when
}

// isEmptySelector reports whether a selector selects all objects.
func isEmptySelector(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}

// selects reports whether a selector selects the labels. A nil selector selects everything, and an invalid selector
// selects nothing.
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

func joinList(list []string) string { return strings.Join(list, ", ") }

func (c *Chain) printChain(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	order := 0
	invocation.PrintSection(table, "ORDER\tPLUGIN\tORIGIN\tPRIORITY\tREVISION\tVERSION\tHOOKS\tWHEN", c.Chain, func(p ChainedPlugin) []string {
		order++
		priority := ""
		if p.Origin != DefaultOrigin {
			priority = fmt.Sprint(p.Priority)
		}
		revision := p.Revision
		if p.InsteadOf != "" {
			revision += " instead of " + p.InsteadOf
		}
		return []string{fmt.Sprint(order), p.Name, p.Origin, priority, revision, p.Version, joinList(p.Hooks), strings.Join(p.When, "; ")}
	})
	invocation.PrintSection(table, "LEFT OUT\tREASON", c.LeftOut, func(p LeftOutPlugin) []string { return []string{p.Name, p.Reason} })
	return table.Flush()
}
