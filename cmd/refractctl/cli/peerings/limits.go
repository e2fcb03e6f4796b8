// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// limitFlags contains the flags with limits of a consumer on its provider.
type limitFlags struct {
	texts []string
}

func (l *limitFlags) addFlags(command *cobra.Command) {
	var names []string
	for _, setting := range tenantlimits.Settings() {
		names = append(names, setting.Name+"=")
	}
	command.Flags().StringArrayVar(&l.texts, "tenant-limit", nil, "limit of the consumer on the provider, as NAME=VALUE, or NAME- to return to the provider's default (may be repeated): "+
		strings.ReplaceAll(strings.Join(names, ", "), "=", "")+"; see docs/operators.md")
	invocation.CompleteFlag(command, "tenant-limit", names...)
}

// parseLimits returns the limits of the flags. The value of a limit that is to be removed is nil.
func (l *limitFlags) parseLimits() (map[string]*string, error) {
	limits := map[string]*string{}
	for _, text := range l.texts {
		name, value, assigned := strings.Cut(text, "=")
		name, removed := strings.CutSuffix(name, "-")
		if assigned == removed {
			return nil, fmt.Errorf("--tenant-limit is %q: use NAME=VALUE, or NAME- to return to the default", text)
		}
		setting, err := tenantlimits.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("--tenant-limit: %w", err)
		}
		if removed {
			limits[name] = nil
			continue
		}
		if err := setting.Check(value); err != nil {
			return nil, fmt.Errorf("--tenant-limit: %w", err)
		}
		limits[name] = &value
	}
	return limits, nil
}
