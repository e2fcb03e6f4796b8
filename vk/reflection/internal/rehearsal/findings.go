// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document/fieldpath"
	defaults "github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// The maximum lengths of the lists in the API type PluginRehearsalResult.
const (
	mostPaths      = 20
	mostConflicts  = 10
	mostExamples   = 5
	longestPath    = 256
	longestMessage = 256
)

// mostCounted is the maximum number of different paths that are counted. It limits the memory, because every object may
// have different keys.
const mostCounted = 4096

// findings collects the differences that the rehearsal of a candidate has found.
type findings struct {
	candidate Candidate
	// declared contains the paths in Candidate.Declared, written as join writes them.
	declared  map[string]bool
	counts    plugins.PluginRehearsalResult
	paths     map[plugins.RehearsedPath]int64
	conflicts map[plugins.RehearsedConflict]int64
	examples  map[plugins.RehearsalOutcome][]plugins.RehearsedObject
}

func newFindings(c Candidate) *findings {
	declared := map[string]bool{}
	for _, text := range c.Declared {
		segments, _ := fieldpath.Parse(text) // a manifest with an invalid path is refused
		path := ""
		for _, s := range segments {
			path = join(path, s.Key)
		}
		declared[path] = true
	}
	return &findings{candidate: c, declared: declared, counts: plugins.PluginRehearsalResult{Against: c.Against},
		paths: map[plugins.RehearsedPath]int64{}, conflicts: map[plugins.RehearsedConflict]int64{}, examples: map[plugins.RehearsalOutcome][]plugins.RehearsedObject{}}
}

// add adds the comparison of an object, unless the plugin does not touch the object; see touches.
func (f *findings) add(kind string, c *engine.Comparison) {
	if held := heldError(c); held != nil {
		f.counts.Objects++
		f.counts.Errors++
		f.addExample(kind, c.Key, plugins.ErrorOutcome, f.describeError(held, c.Object))
		return
	}
	if !f.touches(c.Outgoing) && !f.touches(c.Incoming) {
		return
	}
	f.counts.Objects++
	f.addConflicts(kind, c)
	if c.Varies {
		f.counts.NotDeterministic++
		f.addExample(kind, c.Key, plugins.NotDeterministicOutcome, "")
	}
	changed := false
	for _, pair := range []*engine.Pair{c.Outgoing, c.Incoming} {
		if pair == nil {
			continue
		}
		if err := failureOf(pair); err != nil {
			f.counts.Errors++
			f.addExample(kind, c.Key, plugins.ErrorOutcome, f.describeError(err, c.Object))
			return
		}
		switch {
		case !pair.Differs():
		case pair == c.Outgoing && pair.After.Skipped && c.HasCopy:
			f.counts.Removed++
			f.addExample(kind, c.Key, plugins.RemovedOutcome, "")
			return
		case pair == c.Outgoing && pair.After.Skipped: // the object has no copy, and the candidate skips it
		default:
			changed = f.addPaths(kind, pair, c) || changed
		}
	}
	if !changed {
		f.counts.Unchanged++
		return
	}
	f.counts.Changed++
	f.addExample(kind, c.Key, plugins.ChangedOutcome, "")
}

// failureOf returns the error of the next chain if the current chain does not have one, or nil. An ignored failure
// counts as an error, because the object would be reflected without the plugin's changes.
func failureOf(pair *engine.Pair) error {
	if pair.After.Err != nil && pair.Differs() {
		return pair.After.Err
	}
	return pair.NewFailure()
}

// heldError returns the error of an object that the next chains hold, or nil. No plugin runs for such an object, so the
// effect of the candidate is unknown. If this were not an error, a candidate could be promoted without being tested on
// a single object.
func heldError(c *engine.Comparison) error {
	for _, pair := range []*engine.Pair{c.Outgoing, c.Incoming} {
		var held *host.HeldError
		if pair != nil && errors.As(pair.After.Err, &held) {
			return held
		}
	}
	return nil
}

// selectorError returns the error of an object for which the next chains cannot select plugins yet, or nil.
func selectorError(c *engine.Comparison) error {
	for _, pair := range []*engine.Pair{c.Outgoing, c.Incoming} {
		var unknown *host.SelectorError
		if pair != nil && errors.As(pair.After.Err, &unknown) {
			return unknown
		}
	}
	return nil
}

// touches reports whether the plugin ran in at least one of the two evaluations.
func (f *findings) touches(pair *engine.Pair) bool {
	return pair != nil && (slices.Contains(pair.Before.Ran, f.candidate.Plugin) || slices.Contains(pair.After.Ran, f.candidate.Plugin))
}

// addPaths counts the paths that differ, and reports whether the copy would change. Fields that are immutable in a
// running pod do not count as a change of its copy.
func (f *findings) addPaths(kind string, pair *engine.Pair, c *engine.Comparison) (changes bool) {
	before, after := &pair.Before, &pair.After
	if before.Content == nil || after.Content == nil {
		return true // all fields differ if the object failed or was skipped in one evaluation
	}
	changeable := f.differingPaths(before.Changeable, after.Changeable, c.Object)
	for path := range f.differingPaths(before.Content, after.Content, c.Object) {
		_, can := changeable[path]
		counted := plugins.RehearsedPath{Kind: kind, Path: cut(path, longestPath), NewPodsOnly: !can}
		if f.paths[counted] > 0 || len(f.paths) < mostCounted {
			f.paths[counted]++
		}
		changes = changes || can || !c.HasCopy
	}
	return changes
}

// addConflicts counts the candidate's changes that a later plugin overwrites, and the changes of earlier plugins that the
// candidate overwrites. Each path counts once per object. Overwriting a default plugin is no conflict, because this is
// what later plugins are for.
func (f *findings) addConflicts(kind string, compared *engine.Comparison) {
	seen := map[plugins.RehearsedConflict]bool{}
	for _, c := range compared.Conflicts {
		counted := plugins.RehearsedConflict{Kind: kind, Path: cut(f.publicPath(c.Path, compared.Object), longestPath), Plugin: c.Then}
		switch name, _ := defaults.Default(kind); {
		case c.First == f.candidate.Plugin:
		case c.Then == f.candidate.Plugin && c.First != name:
			counted.Earlier = c.First
		default:
			continue
		}
		if !seen[counted] && (f.conflicts[counted] > 0 || len(f.conflicts) < mostCounted) {
			seen[counted] = true
			f.conflicts[counted]++
		}
	}
}

func (f *findings) addExample(kind string, key queue.Key, outcome plugins.RehearsalOutcome, message string) {
	if known := f.examples[outcome]; len(known) < mostExamples {
		f.examples[outcome] = append(known, plugins.RehearsedObject{Kind: kind, Namespace: key.Namespace, Name: key.Name, Outcome: outcome, Message: cut(message, longestMessage)})
	}
}

// result returns the counts, the paths that differ most often, and examples, beginning with the worst outcomes. The
// result is always the same for the same objects.
func (f *findings) result() *plugins.PluginRehearsalResult {
	result := f.counts
	for path, objects := range f.paths {
		path.Objects = objects
		result.Paths = append(result.Paths, path)
	}
	slices.SortFunc(result.Paths, func(a, b plugins.RehearsedPath) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Path, b.Path))
	})
	result.Paths = result.Paths[:min(len(result.Paths), mostPaths)]
	for conflict, objects := range f.conflicts {
		conflict.Objects = objects
		result.Conflicts = append(result.Conflicts, conflict)
	}
	slices.SortFunc(result.Conflicts, func(a, b plugins.RehearsedConflict) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Path, b.Path),
			strings.Compare(a.Earlier, b.Earlier), strings.Compare(a.Plugin, b.Plugin))
	})
	result.Conflicts = result.Conflicts[:min(len(result.Conflicts), mostConflicts)]
	for n := range mostExamples { // take the n-th example of every outcome, so that every outcome has an example
		for _, outcome := range []plugins.RehearsalOutcome{plugins.RemovedOutcome, plugins.ErrorOutcome, plugins.NotDeterministicOutcome, plugins.ChangedOutcome} {
			if known := f.examples[outcome]; n < len(known) && len(result.Examples) < mostExamples {
				result.Examples = append(result.Examples, known[n])
			}
		}
	}
	return &result
}

// differingPaths returns the paths at which the values differ, without the indices of list elements, as a report may show them; see
// publicKey. If two lists have different lengths, each additional element is compared with a missing value. object is the object
// before any plugin runs.
func (f *findings) differingPaths(before, after, object any) map[string]struct{} {
	found := map[string]struct{}{}
	f.addDiffering(found, "", before, after, object)
	return found
}

func (f *findings) addDiffering(found map[string]struct{}, path string, before, after, object any) {
	a, mapBefore := before.(map[string]any)
	b, mapAfter := after.(map[string]any)
	if (mapBefore || before == nil) && (mapAfter || after == nil) && (mapBefore || mapAfter) && len(a)+len(b) > 0 {
		keys := maps.Clone(a)
		if keys == nil {
			keys = map[string]any{}
		}
		maps.Copy(keys, b)
		for key := range keys {
			value, isOfObject := fieldOf(object, key)
			f.addDiffering(found, join(path, f.publicKey(path, key, isOfObject)), a[key], b[key], value)
		}
		return
	}
	c, listBefore := before.([]any)
	d, listAfter := after.([]any)
	if (listBefore || before == nil) && (listAfter || after == nil) && (listBefore || listAfter) && len(c)+len(d) > 0 {
		elements, _ := object.([]any)
		for i := range max(len(c), len(d)) {
			f.addDiffering(found, path+"[]", element(c, i), element(d, i), element(elements, i))
		}
		return
	}
	if !equal(before, after) {
		found[path] = struct{}{}
	}
}

func element(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}
