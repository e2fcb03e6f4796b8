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

// Unchanged is the result of an evaluation that has not written anything.
const Unchanged = "unchanged"

// Worker contains the state that a goroutine reuses for all objects that it evaluates.
type Worker struct {
	Doc    *document.Document // document that the plugins mutate
	Result string             // result for the metrics: unchanged, written or deleted
	Warned bool               // whether a warning about the object was reported
	Env    host.Env
	Keys   []string
	Out    bool // whether an object was written on the provider
	Back   bool // whether an object was written in this cluster
	// Matched is the generation of the copy that was found or written in the desired state. It is 0 if there was none.
	Matched int64

	steps    Steps  // steps of the object's scope, or nil if the kind is not tracked
	turn     uint64 // the turn that Steps.Begin returned for this evaluation
	inStep   bool   // whether the copy is up to date
	excluded string // why the object deliberately has no copy; empty if it has a copy or does not exist
	Chains   ChainRuns

	Domain string // prefix of the domains in which plugins keep state
	Fresh  bool   // whether plugins must not keep state from one object to the next
	// Previous is the Worker for the chains from before a promotion. It is created when it is first needed.
	Previous *Worker
}

// Steps records which objects have copies that are not up to date.
type Steps interface {
	// Begin records that the evaluation of an object has begun. It returns the object's turn, which is passed to
	// Settle.
	Begin(name string) uint64
	// Settle records that the copy of an object is up to date, unless the object was enqueued again after this turn had
	// begun. exclusion is the reason why the object deliberately has no copy, or "".
	Settle(name string, turn uint64, exclusion string)
}

// Reset discards the results for the previous object, so that the Worker can evaluate the next one.
func (w *Worker) Reset() {
	w.Result, w.Warned, w.Out, w.Back, w.Matched = Unchanged, false, false, false, 0
	w.steps, w.inStep, w.excluded, w.Chains = nil, false, "", ChainRuns{}
}

// Track records that the evaluation of an object has begun. It is called only for objects of tracked kinds.
func (w *Worker) Track(s Steps, name string) { w.steps, w.turn = s, s.Begin(name) }

// NewWorker returns a Worker with its own document.
func NewWorker(log *slog.Logger) *Worker {
	return &Worker{Doc: document.New(), Env: host.Env{Measure: true, Logger: log}}
}

// Removed records the result of removing the copy of an object that should have none. If err is nil, the object is up
// to date. exclusion is the reason why the object deliberately has no copy, or "" if the object does not exist. Removed
// returns err.
func (w *Worker) Removed(err error, exclusion string) error {
	w.inStep, w.excluded = err == nil, exclusion
	return err
}

// Converged records that the copy of an object is up to date. remote is the copy before the write, or nil if the copy
// is new. A copy that is being deleted or recreated, however, does not count as up to date.
func (w *Worker) Converged(remote *unstructured.Unstructured) {
	w.inStep = w.Result != "deleted" && (remote == nil || remote.GetDeletionTimestamp() == nil)
}

// Settle passes the result to the steps of the scope: the copy of the object is up to date, if this was recorded. It
// must be called after the queue's Done, because Done marks objects that were enqueued in the meantime as behind.
func (w *Worker) Settle(name string) {
	if w.steps != nil && w.inStep {
		w.steps.Settle(name, w.turn, w.excluded)
	}
	w.steps = nil
}

// ChainRun records whether the chain of one direction ran during an evaluation, and whether a plugin with ignoreFailure
// failed. If so, the object was reflected without the changes of this plugin.
type ChainRun struct{ Ran, Ignored bool }

// ChainRuns contains the ChainRun of each direction.
type ChainRuns struct{ Outgoing, Incoming ChainRun }

// Direction returns the ChainRun of a direction.
func (c *ChainRuns) Direction(d Direction) *ChainRun {
	if d == Back {
		return &c.Incoming
	}
	return &c.Outgoing
}

// Record records that the chain of a hook ran.
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

// IgnoredPluginFailure reports whether a plugin with ignoreFailure failed in this evaluation.
func (w *Worker) IgnoredPluginFailure() bool {
	return w.Chains.Outgoing.Ignored || w.Chains.Incoming.Ignored
}
