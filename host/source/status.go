// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"slices"
	"strings"

	"github.com/refract-project/refract/internal/printable"
)

// State is the state of a module.
type State string

// States of a module.
const (
	Loaded State = "Loaded"
	Failed State = "Failed"
	// Ignored means that a file in the directory is neither a module nor options.
	Ignored State = "Ignored"
)

// Status is the status of a module.
type Status struct {
	// Name is the name of the module, and Path its file. A declared plugin has a Revision instead of a Path.
	Name, Path, Revision string
	Origin               Origin
	// State is the state of the current file.
	State State
	// Running reports whether a version of the plugin is in chains. If it is true although State is Failed, an earlier
	// version is running.
	Running bool
	// Version and Digest describe the running plugin.
	Version, Digest string
	// Kinds are the kinds whose chains contain the running plugin.
	Kinds []string
	// Hooks, Priority and Replaces are the settings of the running plugin.
	Hooks    []string
	Priority int
	Replaces string
	// Held are the kinds whose objects wait because the plugin cannot run.
	Held []string
	// Warnings are warnings about options and declarations that have no effect. They are also part of Message.
	Warnings []string
	// Message is a text for an Event or a log line. It is always a single line, even if it quotes text from a plugin.
	Message string
	// Err is the error of the module, for errors.As.
	Err error
}

func (s Status) equalsStatus(other Status) bool {
	return s.Name == other.Name && s.Path == other.Path && s.Revision == other.Revision && s.Origin == other.Origin &&
		s.State == other.State && s.Running == other.Running && s.Version == other.Version && s.Digest == other.Digest &&
		s.Priority == other.Priority && s.Replaces == other.Replaces && s.Message == other.Message &&
		slices.Equal(s.Hooks, other.Hooks) && slices.Equal(s.Kinds, other.Kinds) && slices.Equal(s.Held, other.Held)
}

func statusesOf(list []wanted, next accepted) []Status {
	out := make([]Status, 0, len(list))
	for _, w := range list {
		s := Status{Name: w.Name, Path: w.Path, Revision: w.revision, Origin: w.origin, State: Loaded, Err: next.problems[w.Name]}
		if r := next.running[w.Name]; r != nil && r.origin == w.origin {
			s.Running = len(r.kinds) > 0
			s.Version, s.Digest, s.Kinds = r.plugin().Version(), r.plugin().Digest(), r.kinds
			s.Hooks, s.Priority, s.Replaces = r.plugin().Manifest().Hooks, r.options.Priority, r.options.Replaces
			s.Warnings = r.warnings
			if r.surplus != nil {
				s.Running, s.Kinds, s.Err = false, nil, cmp.Or(s.Err, r.surplus)
				if r.holdsIfSurplus() {
					s.Held = r.kinds
				}
			}
		}
		for _, h := range next.held {
			if h.origin == w.origin && h.name == w.Name {
				s.Held = h.kinds
			}
		}
		if s.Err != nil {
			s.State = Failed
		}
		s.Message = printable.Line(s.describeStatus())
		out = append(out, s)
	}
	return out
}

func (s Status) describeStatus() string {
	switch {
	case s.Err != nil && s.Running:
		return s.Err.Error() + " (the earlier version, " + s.Version + ", runs on)"
	case s.Err != nil && len(s.Held) > 0:
		return s.Err.Error() + " (no earlier version can run, so these kinds are held, nothing of them is written: " + strings.Join(s.Held, ", ") + ")"
	case s.Err != nil:
		return s.Err.Error()
	}
	text := "loaded"
	if !s.Running {
		text += ", but no reflected kind is among its kinds"
	}
	if len(s.Warnings) > 0 {
		text += "; warning: " + strings.Join(s.Warnings, "; ")
	}
	return text
}
