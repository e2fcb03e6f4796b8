// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// inertFlag takes any value and does nothing with it.
type inertFlag struct {
	name, missing string
	byDefault     string // the value that asks for nothing
	value         string
}

func (f *inertFlag) String() string         { return f.value }
func (f *inertFlag) Set(value string) error { f.value = value; return nil }
func (f *inertFlag) Type() string           { return "any" }

// klogFlags takes every flag of klog's with the prefix klog, as Liqo does: --klog.v
// means --v, the others say where klog's own lines go and how they look.
func (o *Options) klogFlags(flags *pflag.FlagSet) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(all)
	all.VisitAll(func(f *flag.Flag) {
		switch boolean, _ := f.Value.(interface{ IsBoolFlag() bool }); f.Name {
		case "v": // see operationFlags
		case "vmodule":
			o.addInert(flags, "klog."+f.Name, "verbosity is for all files; use --v", f.DefValue, false)
		default:
			o.addInert(flags, "klog."+f.Name, "logs go to stderr, in the format of --log-format", f.DefValue, boolean != nil && boolean.IsBoolFlag())
		}
	})
}

// addInert registers a flag; a boolean may stand alone.
func (o *Options) addInert(flags *pflag.FlagSet, name, missing, byDefault string, boolean bool) {
	inert := &inertFlag{name: name, missing: missing, byDefault: byDefault}
	o.inert = append(o.inert, inert)
	flags.Var(inert, name, missing)
	if boolean {
		flags.Lookup(name).NoOptDefVal = "true"
	}
}

// asksFor reports whether a value is meant to change something.
func (f *inertFlag) asksFor() bool {
	if f.byDefault == "" {
		return f.value != "" && f.value != "false" && f.value != "0"
	}
	return f.value != f.byDefault
}

// inVain lists the flags that were given and have no effect.
func (o *Options) inVain(flags *pflag.FlagSet) []*inertFlag {
	return slices.DeleteFunc(slices.Clone(o.inert), func(f *inertFlag) bool { return !flags.Changed(f.name) || !f.asksFor() })
}

// WarnInert names every flag that was set without effect.
func (o *Options) WarnInert(flags *pflag.FlagSet) {
	for _, inert := range o.inVain(flags) {
		log.Log.Info("Warning: a flag has no effect", "flag", "--"+inert.name, "value", inert.value, "meaning", inert.missing)
	}
}
