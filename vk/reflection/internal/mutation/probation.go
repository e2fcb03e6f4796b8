// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
)

// PreviewDomain is the prefix of the state domains that are used in previews. It prevents plugins from sharing state
// between previews and actual reflection.
const PreviewDomain = "preview/"

// observe counts a run of a chain for each of its plugins that is on probation.
func (m *Mutator) observe(ctx context.Context, w *evaluation.Worker, hook host.Hook, namespace string, local map[string]any, in *Input, outcome *host.Outcome, err error) {
	if len(m.Probations.Current()) > 0 && ctx.Err() == nil {
		err = m.withOutput(w, hook, outcome, err)
		m.Probations.Evaluated(m.onProbation(in.Object), outcome, err, func(previous probation.Runner) (*host.Outcome, error) {
			return m.runPrevious(ctx, previous, w, hook, namespace, local, in)
		})
	}
}

// withOutput returns the error of a run or, if the run succeeded, of the check of its result. Reflection itself checks
// the result only later.
func (m *Mutator) withOutput(w *evaluation.Worker, hook host.Hook, outcome *host.Outcome, err error) error {
	if err != nil || outcome == nil || outcome.Skipped || m.CheckOutput == nil {
		return err
	}
	if invalid := m.CheckOutput(w, hook); invalid != nil {
		return &probation.InvalidOutputError{Err: invalid}
	}
	return nil
}

// Release records that an object no longer needs a copy for a reason other than a skip. A probation then no longer
// reports its copy as held.
func (m *Mutator) Release(namespace, name string) {
	m.Probations.Release(probation.Object{Kind: m.Kind, Namespace: namespace, Name: name})
}

// ReleaseNamespace calls Release for all objects of a namespace.
func (m *Mutator) ReleaseNamespace(namespace string) {
	m.Probations.ReleaseNamespace(m.Kind, namespace)
}

// MayRemove returns a *probation.HeldError if the copy of a skipped object must be kept because the plugin that skipped
// the object is on probation.
func (m *Mutator) MayRemove(ctx context.Context, w *evaluation.Worker, hook host.Hook, namespace string, local map[string]any, in *Input) error {
	return m.Probations.MayRemove(m.onProbation(in.Object), func(previous probation.Runner) (*host.Outcome, error) {
		return m.runPrevious(ctx, previous, w, hook, namespace, local, in)
	})
}

func (m *Mutator) onProbation(object map[string]any) probation.Object {
	u := unstructured.Unstructured{Object: object}
	return probation.Object{Kind: m.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
}

// runPrevious runs the chain from before a promotion on the same input. It does not change the result of the worker's
// own chain.
func (m *Mutator) runPrevious(ctx context.Context, previous probation.Runner, w *evaluation.Worker, hook host.Hook, namespace string, local map[string]any, in *Input) (*host.Outcome, error) {
	if w.Previous == nil {
		w.Previous = evaluation.NewWorker(w.Env.Logger)
		w.Previous.Domain = PreviewDomain
	}
	outcome, err := m.Run(ctx, previous, w.Previous, hook, namespace, local, in)
	return outcome, m.withOutput(w.Previous, hook, outcome, err)
}
