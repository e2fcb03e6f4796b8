// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/pluginrevision"
)

// pluginStatus is the output of "plugin status" for a declared plugin.
type pluginStatus struct {
	Name      string `json:"name"`
	Active    string `json:"activeRevision,omitempty"`
	Version   string `json:"version,omitempty"`
	Previous  string `json:"previousRevision,omitempty"`
	Candidate string `json:"candidateRevision,omitempty"`
	Rejected  string `json:"rejectedRevision,omitempty"`
	Pinned    string `json:"pinnedRevision,omitempty"`
	Approved  string `json:"approvedRevision,omitempty"`
	Paused    bool   `json:"paused,omitempty"`
	Nodes     string `json:"nodes,omitempty"`
	Probation string `json:"probationUntil,omitempty"`
	// ProbationAwaits contains the virtual nodes that run the active revision, and on which its probation has not begun.
	ProbationAwaits []string           `json:"probationAwaits,omitempty"`
	Conditions      []metav1.Condition `json:"conditions,omitempty"`
	// States contains the state of the active revision on each virtual node.
	States []plugins.VirtualNodePlugin `json:"states,omitempty"`
	// Rehearsal is the rehearsal of the candidate. If there is no candidate, it is the rehearsal of the rejected
	// revision.
	Rehearsal *rehearsalReport  `json:"rehearsal,omitempty"`
	Revisions []revisionSummary `json:"revisions"`
}

// revisionSummary describes a revision in one line.
type revisionSummary struct {
	Name    string   `json:"name"`
	Number  int64    `json:"number"`
	Version string   `json:"version,omitempty"`
	Source  string   `json:"source"`
	Signer  string   `json:"signer,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Created string   `json:"created"`

	age time.Duration
}

// NewPluginStatusCommand returns the command "plugin status".
func NewPluginStatusCommand(access *invocation.Access) *cobra.Command {
	var output *invocation.Output
	command := declaredPluginCommand(access, &cobra.Command{
		Use:     "status NAME",
		Aliases: []string{"describe", "history"},
		Short:   "Show the revisions of a declared plugin and the rehearsal of its candidate",
		Long: "Show the conditions of a declared plugin, the state of its active revision on each virtual node, the rehearsal of its candidate (what it would\n" +
			"change, without values of objects), and its revisions.",
		Example: "  refractctl plugin status strip-labels\n" +
			"  refractctl plugin status strip-labels -o yaml",
	}, func(cmd *cobra.Command, _ client.Client, p *declaredPlugin) error {
		if err := output.ValidateFormat(); err != nil {
			return err
		}
		status := describePlugin(p, time.Now())
		if output.IsTable() {
			return status.printStatus(cmd.OutOrStdout())
		}
		return output.PrintValue(cmd.OutOrStdout(), "PluginStatus", status)
	})
	output = invocation.AddOutput(command, "", "")
	return command
}

// describePlugin returns the status of a plugin.
func describePlugin(p *declaredPlugin, now time.Time) *pluginStatus {
	s := &pluginStatus{
		Name: p.Name, Active: p.Status.ActiveRevision, Version: p.Status.Version, Previous: p.Status.PreviousRevision, Candidate: p.Status.CandidateRevision,
		Rejected: p.Status.RejectedRevision, Pinned: p.Spec.Revision, Paused: p.Spec.Paused, Nodes: p.Status.Nodes, Conditions: p.Status.Conditions,
		Revisions: []revisionSummary{},
	}
	if rehearsal := p.Spec.Rollout.Rehearsal; rehearsal != nil {
		s.Approved = rehearsal.Approved
	}
	if active := p.findRevision(s.Active); active != nil {
		s.setProbation(p, active, now)
		for _, entry := range active.Status.VirtualNodes {
			entry.Rehearsal = nil
			s.States = append(s.States, entry)
		}
	}
	if rehearsed := p.findRevision(cmp.Or(s.Candidate, s.Rejected)); rehearsed != nil && rehearsed.Name != s.Active {
		s.Rehearsal = newRehearsalReport(rehearsed)
	}
	for i := range p.revisions {
		s.Revisions = append(s.Revisions, s.summarizeRevision(&p.revisions[i], now))
	}
	return s
}

// setProbation sets the time until which the probation of the active revision lasts on at least one virtual node, unless
// it is over. The probation begins on each virtual node by itself. As long as it has not begun on a virtual node that
// runs the revision, its end is not known.
func (s *pluginStatus) setProbation(p *declaredPlugin, active *plugins.PluginRevision, now time.Time) {
	promoted, period := p.Status.PromotedAt, pluginrevision.ProbationPeriod(p.ReflectionPlugin)
	if promoted == nil || period == 0 {
		return
	}
	until := promoted.Add(period)
	for _, entry := range active.Status.VirtualNodes {
		switch {
		case entry.State != plugins.ActivePlugin || !entry.PromotedAt.Equal(promoted):
		case entry.ActiveSince == nil:
			s.ProbationAwaits = append(s.ProbationAwaits, entry.Name)
		case entry.ActiveSince.Add(period).After(until):
			until = entry.ActiveSince.Add(period)
		}
	}
	if len(s.ProbationAwaits) == 0 && now.Before(until) {
		s.Probation = until.UTC().Format(time.RFC3339)
	}
}

func (s *pluginStatus) summarizeRevision(r *plugins.PluginRevision, now time.Time) revisionSummary {
	summary := revisionSummary{
		Name: r.Name, Number: r.Spec.Number, Version: r.Spec.Manifest.Version, Source: r.Spec.Source, Signer: r.Spec.Signer,
		Created: r.CreationTimestamp.UTC().Format(time.RFC3339), age: now.Sub(r.CreationTimestamp.Time),
	}
	for _, role := range []struct{ name, revision string }{
		{"active", s.Active}, {"candidate", s.Candidate}, {"previous", s.Previous}, {"rolled back", s.Rejected}, {"pinned", s.Pinned}, {"approved", s.Approved},
	} {
		if role.revision == r.Name {
			summary.Roles = append(summary.Roles, role.name)
		}
	}
	return summary
}

func (s *pluginStatus) printStatus(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	var rows [][]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("Active revision", cmp.Or(s.Active, "none"))
	add("Version", s.Version)
	add("In its probation until", s.Probation)
	add("Its probation has not begun on", joinList(s.ProbationAwaits))
	add("Virtual nodes", s.Nodes)
	add("Candidate", s.Candidate)
	add("Rolled back", s.Rejected)
	add("Pinned (spec.revision)", s.Pinned)
	add("Approved", s.Approved)
	if s.Paused {
		add("Paused (spec.paused)", "true")
	}
	invocation.PrintSection(table, "PLUGIN\t"+s.Name, rows, func(row []string) []string { return row })
	invocation.PrintSection(table, "CONDITION\tSTATUS\tREASON\tMESSAGE", s.Conditions, func(c metav1.Condition) []string {
		return []string{c.Type, string(c.Status), c.Reason, c.Message}
	})
	if s.Active != "" {
		invocation.PrintSection(table, "VIRTUAL NODE\tSTATE\tREASON\tMESSAGE", s.States, func(e plugins.VirtualNodePlugin) []string {
			return []string{e.Name, string(e.State), e.Reason, e.Message}
		})
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if s.Rehearsal != nil {
		if err := s.Rehearsal.printReport(out); err != nil {
			return err
		}
	}
	return invocation.PrintTable(out, "REVISION\tNUMBER\tVERSION\tSTATE\tAGE\tSOURCE", s.Revisions, func(r revisionSummary) []string {
		return []string{r.Name, fmt.Sprint(r.Number), r.Version, strings.Join(r.Roles, ", "), duration.HumanDuration(r.age), r.Source}
	})
}

// rehearsalReport combines the reports of all virtual nodes about a revision.
type rehearsalReport struct {
	Plugin    string                      `json:"plugin"`
	Revision  string                      `json:"revision"`
	Nodes     []plugins.VirtualNodePlugin `json:"nodes"`
	Paths     []plugins.RehearsedPath     `json:"paths,omitempty"`
	Conflicts []plugins.RehearsedConflict `json:"conflicts,omitempty"`
	Examples  []nodeExample               `json:"examples,omitempty"`
}

// nodeExample is an example object together with the virtual node that reported it.
type nodeExample struct {
	Node                    string `json:"node"`
	plugins.RehearsedObject `json:",inline"`
}

// newRehearsalReport returns the sum of the reports of all virtual nodes about a revision.
func newRehearsalReport(revision *plugins.PluginRevision) *rehearsalReport {
	report := &rehearsalReport{Plugin: revision.Spec.Plugin, Revision: revision.Name, Nodes: []plugins.VirtualNodePlugin{}}
	paths, conflicts := map[[2]string]*plugins.RehearsedPath{}, map[plugins.RehearsedConflict]*plugins.RehearsedConflict{}
	for _, entry := range revision.Status.VirtualNodes {
		report.Nodes = append(report.Nodes, entry)
		if entry.Rehearsal == nil {
			continue
		}
		for _, path := range entry.Rehearsal.Paths {
			sum := getOrPut(paths, [2]string{path.Kind, path.Path}, plugins.RehearsedPath{Kind: path.Kind, Path: path.Path, NewPodsOnly: path.NewPodsOnly})
			sum.Objects += path.Objects
		}
		for _, conflict := range entry.Rehearsal.Conflicts {
			key := conflict
			key.Objects = 0
			getOrPut(conflicts, key, key).Objects += conflict.Objects
		}
		for _, example := range entry.Rehearsal.Examples {
			report.Examples = append(report.Examples, nodeExample{entry.Name, example})
		}
	}
	for path := range maps.Values(paths) {
		report.Paths = append(report.Paths, *path)
	}
	for conflict := range maps.Values(conflicts) {
		report.Conflicts = append(report.Conflicts, *conflict)
	}
	slices.SortFunc(report.Paths, func(a, b plugins.RehearsedPath) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(report.Conflicts, func(a, b plugins.RehearsedConflict) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Earlier, b.Earlier), cmp.Compare(a.Plugin, b.Plugin))
	})
	return report
}

func getOrPut[K comparable, V any](m map[K]*V, key K, otherwise V) *V {
	if m[key] == nil {
		m[key] = &otherwise
	}
	return m[key]
}

// printReport prints the counts, paths, conflicts and examples of a rehearsal.
func (r *rehearsalReport) printReport(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "Rehearsal of %s\n\n", r.Revision)
	invocation.PrintSection(table, "REHEARSED ON\tAGAINST\tSTATE\tOBJECTS\tUNCHANGED\tCHANGED\tREMOVED\tERRORS\tNOT DETERMINISTIC\tMESSAGE", r.Nodes, func(e plugins.VirtualNodePlugin) []string {
		if e.Rehearsal == nil {
			return []string{e.Name, "", string(e.State), "", "", "", "", "", "", e.Message}
		}
		cells := []string{e.Name, e.Rehearsal.Against, string(e.State)}
		for _, n := range []int64{e.Rehearsal.Objects, e.Rehearsal.Unchanged, e.Rehearsal.Changed, e.Rehearsal.Removed, e.Rehearsal.Errors, e.Rehearsal.NotDeterministic} {
			cells = append(cells, fmt.Sprint(n))
		}
		return append(cells, e.Message)
	})
	if len(r.Paths) > 0 {
		invocation.PrintSection(table, "CHANGES\tOF\tIN OBJECTS\tNOTE", r.Paths, func(p plugins.RehearsedPath) []string {
			note := ""
			if p.NewPodsOnly {
				note = "new pods only"
			}
			return []string{p.Path, p.Kind, fmt.Sprint(p.Objects), note}
		})
	}
	if len(r.Conflicts) > 0 {
		invocation.PrintSection(table, "CONFLICT\tOF\tIN OBJECTS\tSET BY\tOVERWRITTEN BY", r.Conflicts, func(c plugins.RehearsedConflict) []string {
			return []string{c.Path, c.Kind, fmt.Sprint(c.Objects), cmp.Or(c.Earlier, r.Plugin), c.Plugin}
		})
	}
	if len(r.Examples) > 0 {
		invocation.PrintSection(table, "EXAMPLE\tKIND\tOUTCOME\tON\tMESSAGE", r.Examples, func(e nodeExample) []string {
			return []string{e.Namespace + "/" + e.Name, e.Kind, string(e.Outcome), e.Node, e.Message}
		})
	}
	return table.Flush()
}
