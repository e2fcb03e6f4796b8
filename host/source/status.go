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
	// Ignored is a file of the directory that is neither a module nor options.
	Ignored State = "Ignored"
)

// Status is the status of a module.
type Status struct {
	// Name and Path are the name and file of the module.
	Name, Path string
	// State is the state of the current file.
	State State
	// Running reports whether the plugin is in chains. If State is Failed, it is an earlier version.
	Running bool
	// Version and Digest describe the running plugin.
	Version, Digest string
	// Kinds are the kinds whose chains contain the running plugin.
	Kinds []string
	// Warnings are about options and declarations without effect. Message contains them, too.
	Warnings []string
	// Message is human-readable, for an Event or a log line. It is one line, even if it quotes text of a plugin.
	Message string
	// Err is the error of the module, for errors.As.
	Err error
}

func (s Status) equalsStatus(other Status) bool {
	return s.Name == other.Name && s.Path == other.Path && s.State == other.State && s.Running == other.Running &&
		s.Version == other.Version && s.Digest == other.Digest && s.Message == other.Message && slices.Equal(s.Kinds, other.Kinds)
}

func statusesOf(modules []Module, next map[string]*running, problems map[string]error) []Status {
	out := make([]Status, 0, len(modules))
	for _, m := range modules {
		s := Status{Name: m.Name, Path: m.Path, State: Loaded, Err: problems[m.Name]}
		if r := next[m.Name]; r != nil {
			s.Running = len(r.kinds) > 0
			s.Version, s.Digest, s.Kinds = r.plugin.Version(), r.plugin.Digest(), r.kinds
			s.Warnings = r.warnings
			if r.surplus != nil {
				s.Running, s.Kinds, s.Err = false, nil, cmp.Or(s.Err, r.surplus)
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
