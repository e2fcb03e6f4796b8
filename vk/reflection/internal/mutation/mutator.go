// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package mutation runs the plugin chains for objects, and reports the warnings of the plugins.
package mutation

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// Runner runs plugin chains.
type Runner interface {
	Run(ctx context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error)
}

// Chains runs the plugin chains of all kinds. It is implemented by *host.Registry. Each Run uses a single generation of
// a chain, even if the chain is swapped during the run.
type Chains interface {
	Runner
	Subscribe(f func(kind string, hook host.Hook, generation uint64)) (cancel func())
}

// Mutator runs the plugin chains of one kind. It is safe for concurrent use.
type Mutator struct {
	Kind         string
	Confidential bool // see Chain.Confidential
	Chains       Chains
	Probations   *probation.Set // plugins on probation; may be nil
	// CheckOutput returns an error if the result in the worker's document is not a valid object. It is called only
	// while plugins are on probation. It may be nil.
	CheckOutput func(w *evaluation.Worker, hook host.Hook) error
	Events      *report.KindReporter
	Metrics     *metrics.Metrics
	// Remapper returns the function remap_ip that plugins can call, for a namespace and a hook.
	Remapper func(namespace string, hook host.Hook) func(ip string) (mapped string, ok bool)
}

// Input is the input of a chain: an object, and the context for its plugins. Both maps are shared and must not be
// modified.
type Input struct{ Object, Context map[string]any }

// Mutate runs the chain of the hook for an object. Only the plugins whose selectors match local, the object of this
// cluster, are called. The result is in the worker's document.
func (m *Mutator) Mutate(ctx context.Context, w *evaluation.Worker, hook host.Hook, namespace string, local map[string]any, in *Input) (*host.Outcome, error) {
	outcome, err := m.Run(ctx, m.Chains, w, hook, namespace, local, in)
	m.observe(ctx, w, hook, namespace, local, in, outcome, err)
	w.Chains.Record(hook, outcome)
	if outcome != nil {
		m.Metrics.Ran(m.Kind, hook, outcome)
	}
	return outcome, err
}

// Run runs one of the kind's chains for an object. Its only effect is the result in the worker's document.
func (m *Mutator) Run(ctx context.Context, chains Runner, w *evaluation.Worker, hook host.Hook, namespace string, local map[string]any, in *Input) (*host.Outcome, error) {
	w.Doc.Reset(in.Object)
	w.Env.Context, w.Env.RemapIP = in.Context, m.Remapper(namespace, hook)
	w.Env.Namespace, w.Env.Object = namespace, local
	switch w.Env.Domain = w.Domain + namespace; {
	case w.Fresh:
		w.Env.Domain = ""
	case m.Confidential:
		metadata, _ := in.Object["metadata"].(map[string]any)
		w.Env.Domain = fmt.Sprintf("%s%s/%v", w.Domain, namespace, metadata["uid"])
	}
	return chains.Run(ctx, m.Kind, hook, w.Doc, &w.Env)
}

// Warnings reports the warnings of plugins and of the guard as Events about local, the object of this cluster.
func (m *Mutator) Warnings(w *evaluation.Worker, local *unstructured.Unstructured, outcome *host.Outcome) {
	for _, warning := range outcome.Warnings {
		w.Warned = true
		message := warning.Message
		if warning.Plugin != "" {
			message = fmt.Sprintf("plugin %s: %s", warning.Plugin, message)
		}
		m.Events.Warn(local, failure.PluginWarningReason, message)
	}
}

// CheckAnnotations warns about annotations that have no effect because their keys are in the wrong case.
func (m *Mutator) CheckAnnotations(w *evaluation.Worker, object *unstructured.Unstructured) {
	for name := range raw.Annotations(object.Object) {
		if !strings.HasPrefix(name, "liqo.io/") {
			continue
		}
		for _, meant := range wire.UserAnnotations {
			if name != meant && strings.EqualFold(name, meant) {
				w.Warned = true
				m.Events.Warn(object, failure.InvalidObjectReason, "unknown annotation "+name+"; did you mean "+meant+"?")
			}
		}
	}
}

// IncomingStatus runs the incoming chain for a copy, and returns the resulting status with long messages truncated. It
// returns nil if a plugin skips the copy, or if the copy has no status yet, and an empty map if the chain has removed
// the status. root is the context of the hook.
func (m *Mutator) IncomingStatus(ctx context.Context, w *evaluation.Worker, root map[string]any, local, remote *unstructured.Unstructured) (map[string]any, error) {
	in := IncomingInput(root, local, remote)
	if in == nil {
		return nil, nil
	}
	outcome, err := m.Mutate(ctx, w, host.Incoming, local.GetNamespace(), local.Object, in)
	if err != nil {
		return nil, err
	}
	m.Warnings(w, local, outcome)
	if outcome.Skipped {
		return nil, nil
	}
	next, err := OutputStatus(w, false)
	if next == nil || err != nil {
		return map[string]any{}, err
	}
	return content.CutStatus(next), nil
}

// OutputStatus returns the status in the result of the incoming chain. If the result has no status, it returns nil, or
// an error if a status is required.
func OutputStatus(w *evaluation.Worker, required bool) (map[string]any, error) {
	status := w.Doc.Root().View().Field("status")
	if !status.Exists() && !required {
		return nil, nil
	}
	next, ok := status.Value().(map[string]any)
	if !ok {
		return nil, &failure.OutputError{Problem: "the incoming chain returned a status that is not an object"}
	}
	return next, nil
}

// IncomingInput returns the input of the incoming chain. It returns nil if the copy has no status. root is the context
// of the hook.
func IncomingInput(root map[string]any, local, remote *unstructured.Unstructured) *Input {
	if remote.Object["status"] == nil {
		return nil
	}
	root = maps.Clone(root)
	root["local"] = local.Object
	return &Input{remote.Object, root}
}
