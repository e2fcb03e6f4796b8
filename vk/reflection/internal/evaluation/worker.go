// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// Direction is a direction of reflection between the clusters.
type Direction string

const (
	// Out is the direction to the provider.
	Out Direction = "out"
	// Back is the direction to this cluster.
	Back Direction = "back"
)

// Wrote records that an object was written in the given direction.
func (w *Worker) Wrote(to Direction) { w.crossed(to, "written") }

// Deleted records that an object was deleted in the given direction.
func (w *Worker) Deleted(to Direction) { w.crossed(to, "deleted") }

func (w *Worker) crossed(to Direction, result string) {
	w.Result = result
	if to == Out {
		w.Out = true
	} else {
		w.Back = true
	}
}

// Unchanged is the result of a Worker that has written no object.
const Unchanged = "unchanged"

// Worker has the state that one goroutine reuses for every object it evaluates.
type Worker struct {
	Doc    *document.Document // document that the plugins mutate
	Result string             // result for the metrics: unchanged, written or deleted
	Warned bool               // a warning about the object was written
	Env    host.Env
	Keys   []string
	Out    bool // an object was written on the provider
	Back   bool // an object was written in this cluster
	// Matched is the generation of the copy that was found, or has been written, in the desired state. It is 0 if no
	// copy was compared or written.
	Matched int64

	steps    Steps  // steps of the object's scope, nil unless the kind is tracked
	turn     uint64 // turn that Steps.Begin returned when the evaluation began
	inStep   bool   // set if the copy is up to date
	excluded string // why the object deliberately has no copy, "" if it has one or does not exist
	Chains   ChainRuns

	Domain string // prefix of the state domains of plugins
	Fresh  bool   // set if plugins must not keep state from one object to the next
	// Previous is the Worker that evaluates objects with the chains from before a promotion. It is nil until it is
	// needed.
	Previous *Worker
}

// Steps records which objects have copies that are not up to date.
type Steps interface {
	// Begin records that the evaluation of an object begins, and returns the turn of the object for Settle.
	Begin(name string) uint64
	// Settle records that the copy of an object is up to date, unless the object was enqueued again after the turn
	// began. exclusion is why the object deliberately has no copy, or "".
	Settle(name string, turn uint64, exclusion string)
}

// Reset removes the results of the last object, so that the Worker can evaluate the next object.
func (w *Worker) Reset() {
	w.Result, w.Warned, w.Out, w.Back, w.Matched = Unchanged, false, false, false, 0
	w.steps, w.inStep, w.excluded, w.Chains = nil, false, "", ChainRuns{}
}

// Track records the beginning of the evaluation of an object whose kind is tracked.
func (w *Worker) Track(s Steps, name string) { w.steps, w.turn = s, s.Begin(name) }

// NewWorker returns a Worker with its own document.
func NewWorker(log *slog.Logger) *Worker {
	return &Worker{Doc: document.New(), Env: host.Env{Measure: true, Logger: log}}
}

// Removed records that the object should have no copy and has none, unless err is set, the error of removing the copy.
// It returns err. exclusion is why the object deliberately has no copy, or "" if the object does not exist.
func (w *Worker) Removed(err error, exclusion string) error {
	w.inStep, w.excluded = err == nil, exclusion
	return err
}

// Converged records that the copy of an object is up to date. remote is the copy before the write, or nil for a new
// copy. If the copy is being deleted or recreated, the call has no effect.
func (w *Worker) Converged(remote *unstructured.Unstructured) {
	w.inStep = w.Result != "deleted" && (remote == nil || remote.GetDeletionTimestamp() == nil)
}

// Settle records that the copy of the evaluated object is up to date. It must be called after Done of the queue,
// because Done marks objects that were enqueued in the meantime as behind.
func (w *Worker) Settle(name string) {
	if w.steps != nil && w.inStep {
		w.steps.Settle(name, w.turn, w.excluded)
	}
	w.steps = nil
}

// ChainRun records whether the chain of one direction ran in an evaluation, and whether a plugin with ignoreFailure
// failed in this run. The object is then reflected without this plugin's changes.
type ChainRun struct{ Ran, Ignored bool }

// ChainRuns has the ChainRun of each direction.
type ChainRuns struct{ Outgoing, Incoming ChainRun }

// Direction returns the ChainRun of a direction.
func (c *ChainRuns) Direction(d Direction) *ChainRun {
	if d == Back {
		return &c.Incoming
	}
	return &c.Outgoing
}

// Record records a run of the chain of a hook.
func (c *ChainRuns) Record(hook host.Hook, outcome *host.Outcome) {
	run := c.Direction(Out)
	if hook == host.Incoming {
		run = c.Direction(Back)
	}
	run.Ran = true
	if outcome == nil {
		return
	}
	for i := range outcome.Calls {
		run.Ignored = run.Ignored || outcome.Calls[i].Err != nil
	}
}

// IgnoredPluginFailure reports whether a plugin with ignoreFailure has failed in this evaluation.
func (w *Worker) IgnoredPluginFailure() bool {
	return w.Chains.Outgoing.Ignored || w.Chains.Incoming.Ignored
}
