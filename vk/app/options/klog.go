// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// klogFlags adds every flag of klog with the prefix klog, as Liqo does. --klog.v is an alias of --v. The other flags
// control where and how klog itself writes log lines.
func (o *Options) klogFlags(flags *pflag.FlagSet) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(all)
	all.VisitAll(func(f *flag.Flag) {
		switch boolean, _ := f.Value.(interface{ IsBoolFlag() bool }); f.Name {
		case "v": // operationFlags defines this alias
		case "vmodule":
			o.inert.Add(flags, "klog."+f.Name, "verbosity is for all files; use --v", f.DefValue, false)
		default:
			o.inert.Add(flags, "klog."+f.Name, "logs go to stderr, in the format of --log-format", f.DefValue, boolean != nil && boolean.IsBoolFlag())
		}
	})
}

// WarnInert logs a warning for each flag that was set and has no effect.
func (o *Options) WarnInert(flags *pflag.FlagSet) { o.inert.Warn(flags) }
