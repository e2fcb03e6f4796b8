// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// InertFlags are flags without an effect. They are accepted so that command lines for another implementation continue
// to work.
type InertFlags struct{ flags []*inertFlag }

// inertFlag accepts any value and ignores it.
type inertFlag struct {
	name, missing string
	byDefault     string // default value, which has no effect in the other implementation, either
	value         string
}

func (f *inertFlag) String() string         { return f.value }
func (f *inertFlag) Set(value string) error { f.value = value; return nil }
func (f *inertFlag) Type() string           { return "any" }

// Add adds a flag. missing describes the effect that the flag does not have, or its replacement. byDefault is the value
// that has no effect in the other implementation, either. A boolean flag may be given without a value.
func (i *InertFlags) Add(flags *pflag.FlagSet, name, missing, byDefault string, boolean bool) {
	inert := &inertFlag{name: name, missing: missing, byDefault: byDefault}
	i.flags = append(i.flags, inert)
	flags.Var(inert, name, "has no effect: "+missing)
	if boolean {
		flags.Lookup(name).NoOptDefVal = "true"
	}
}

// asksFor reports whether the flag has a value that has an effect in the other implementation.
func (f *inertFlag) asksFor() bool {
	if f.byDefault == "" {
		return f.value != "" && f.value != "false" && f.value != "0"
	}
	return f.value != f.byDefault
}

// InVain returns the names of the flags that are set to a value that has an effect in the other implementation.
func (i *InertFlags) InVain(flags *pflag.FlagSet) (names []string) {
	for _, f := range i.inVain(flags) {
		names = append(names, f.name)
	}
	return names
}

func (i *InertFlags) inVain(flags *pflag.FlagSet) (given []*inertFlag) {
	for _, f := range i.flags {
		if flags.Changed(f.name) && f.asksFor() {
			given = append(given, f)
		}
	}
	return given
}

// Warn logs a warning for each flag that InVain returns.
func (i *InertFlags) Warn(flags *pflag.FlagSet) {
	for _, f := range i.inVain(flags) {
		log.Log.Info("A flag has no effect", "flag", "--"+f.name, "value", f.value, "explanation", f.missing)
	}
}
