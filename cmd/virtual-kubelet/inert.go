// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// inertFlag takes any value and does nothing with it.
type inertFlag struct{ name, value string }

func (f *inertFlag) String() string         { return f.value }
func (f *inertFlag) Set(value string) error { f.value = value; return nil }
func (f *inertFlag) Type() string           { return "any" }

// inertFlags are those of Liqo's virtual kubelet whose features are not there
// yet. Templates that give them keep working; a warning tells what is missing.
var inertFlags = []struct{ name, missing string }{
	{"enable-ingress", "the VirtualNode's ingress classes are followed instead"},
	{"remote-real-ingress-class-name", "the VirtualNode's ingress classes are followed instead"},
	{"enable-load-balancer", "the VirtualNode's load balancer classes are followed instead"},
	{"remote-real-load-balancer-class-name", "the VirtualNode's load balancer classes are followed instead"},
	{"klog.logtostderr", "logs go to stderr"},
	{"klog.alsologtostderr", "logs go to stderr"},
	{"klog.stderrthreshold", "logs go to stderr"},
	{"klog.log_file", "logs go to stderr"},
	{"klog.log_dir", "logs go to stderr"},
	{"klog.vmodule", "use --v"},
}

func (o *options) inertFlags(flags *pflag.FlagSet) {
	for _, known := range inertFlags {
		inert := &inertFlag{name: known.name}
		o.inert = append(o.inert, inert)
		flags.Var(inert, known.name, known.missing)
		if strings.HasPrefix(known.name, "enable-") || strings.HasSuffix(known.name, "logtostderr") {
			flags.Lookup(known.name).NoOptDefVal = "true" // a boolean may stand alone
		}
	}
}

// warnInert names every flag that was given in vain.
func (o *options) warnInert(flags *pflag.FlagSet) {
	for _, known := range inertFlags {
		if flag := flags.Lookup(known.name); flag != nil && flag.Changed && flag.Value.String() != "false" && flag.Value.String() != "0" {
			log.Log.Info("Warning: a flag has no effect", "flag", "--"+known.name, "value", flag.Value.String(), "meaning", known.missing)
		}
	}
}
