// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/vk/app/options"
)

// unknownFlagsReason is the reason of the Event about flags that are ignored.
const unknownFlagsReason = "UnknownFlags"

// Tolerate returns the arguments without unknown flags if they contain options.IgnoreUnknown, and records the removed
// flags in options.IgnoredFlags. The controllers of another implementation may pass flags of a later version. Without
// options.IgnoreUnknown, an unknown or misspelled flag is an error.
func Tolerate(command *cobra.Command, args []string) []string {
	asked := func(arg string) bool {
		return arg == "--"+options.IgnoreUnknown || arg == "--"+options.IgnoreUnknown+"=true"
	}
	if !slices.ContainsFunc(args, asked) {
		return args
	}
	var known, ignored []string
	for i := 0; i < len(args); i++ {
		flag, isFlag := strings.CutPrefix(args[i], "--")
		name, _, hasValue := strings.Cut(flag, "=")
		if !isFlag || name == "" || name == "help" || name == "version" || command.Flags().Lookup(name) != nil {
			known = append(known, args[i])
			continue
		}
		ignored = append(ignored, "--"+name)
		if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++ // skips the value of the flag
		}
	}
	if len(ignored) == 0 {
		return known
	}
	return append(known, "--"+options.IgnoredFlags+"="+strings.Join(ignored, ","))
}
