// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"errors"
	"fmt"
	"strings"

	"github.com/refract-project/refract/host/document"
)

// Call is one run of a hook in the native build.
type Call struct {
	Hook Hook
	// Object is the input of the hook. It is not modified.
	Object map[string]any
	// Context is the content of [Context]. docs/abi.md lists the fields.
	Context map[string]any
	// Config is the plugin's configuration.
	Config map[string]any
	// RemapIP implements [Context.RemapIP]. If it is nil, no address has a translation, as in a host that does not
	// know the mapping yet.
	RemapIP func(ip string) (string, bool)
}

// Result is the outcome of a hook.
type Result struct {
	// Object is the edited object. It is nil if the object was skipped.
	Object     map[string]any
	Skipped    bool
	SkipReason string
	Warnings   []string
	Log        []LogLine
}

// LogLine is a line that the hook logged.
type LogLine struct {
	Level Level
	Text  string
}

// AccessError is the error of a call with an invalid handle, path or kind. The hook ends after such a call, as on the
// real host.
type AccessError struct{ Function, Path, Problem string }

func (e *AccessError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Function, e.Path, e.Problem)
}

// RunNative runs a hook on an in-memory object. It is safe for concurrent use
// if the hook is.
func (p *Plugin) RunNative(call Call) (result *Result, err error) {
	s := &session{document: document.New(), remap: call.RemapIP}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *AccessError:
			result, err = nil, r
		default: // other panics come from the plugin itself and are not recovered, so that a debugger stops at them
			panic(r)
		}
	}()
	s.document.Reset(copyMap(call.Object))
	out := s.run(p, call)
	switch {
	case out.failed:
		return nil, errors.New(out.reason)
	case out.skipped:
		return &Result{Skipped: true, SkipReason: out.reason, Warnings: s.warnings, Log: s.lines}, nil
	}
	return &Result{Object: s.document.Value(), Warnings: s.warnings, Log: s.lines}, nil
}

// ManifestJSON returns the manifest in the form in which the host reads it from the module.
func (p *Plugin) ManifestJSON() []byte { return p.json() }

// session is the state that a host keeps during one call.
type session struct {
	document *document.Document
	remap    func(string) (string, bool)
	warnings []string
	lines    []LogLine
}

func (s *session) run(p *Plugin, call Call) outcome {
	s.document.Mount(document.ContextRoot, copyMap(call.Context))
	s.document.Mount(document.ConfigRoot, copyMap(call.Config))
	return p.run(call.Hook, Context{root: s.root(document.ContextRoot), config: s.root(document.ConfigRoot)}, Object{Node{s.root(document.ObjectRoot)}})
}

// root returns the handle of one of the document's roots.
func (s *session) root(id int) handle {
	n, _ := s.document.Node(id, 0)
	return handle{s, n}
}

// run calls a hook and determines its outcome from the returned error.
func (p *Plugin) run(hook Hook, ctx Context, obj Object) outcome {
	f := p.hooks[hook]
	if f == nil {
		return noHook(hook)
	}
	if err := f(ctx, obj); err != nil {
		return outcomeOf(err)
	}
	return outcome{}
}

// Concat concatenates strings. In the wasm build it does not allocate, and the result is valid until the hook
// returns.
func Concat(parts ...string) string { return strings.Join(parts, "") }
