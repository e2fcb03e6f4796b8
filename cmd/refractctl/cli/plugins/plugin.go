// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
)

// loaded is a plugin that was loaded into its own host.
type loaded struct {
	*host.Plugin
	chains *trialChains
	module source.Module
}

// newHost returns a host whose plugins log to standard error.
func newHost(ctx context.Context) (*host.Host, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h, err := host.New(ctx, host.NewConfig().WithLogger(logger))
	if err != nil {
		return nil, fmt.Errorf("starting the plugin host, %w", err)
	}
	return h, nil
}

// loadPlugin reads a module and loads it as a virtual kubelet would, with the options in the .yaml file next to the
// module.
func loadPlugin(ctx context.Context, file string) (*loaded, error) {
	module := source.ReadFile(file)
	if module.Err != nil {
		return nil, fmt.Errorf("reading plugin %s, %w", file, module.Err)
	}
	chains, err := newTrialChains(ctx, []source.Module{module}, nil, host.Outgoing, false)
	if err != nil {
		return nil, err
	}
	return &loaded{Plugin: chains.pluginOf(module), chains: chains, module: module}, nil
}

// oneModule requires exactly one argument, the file of a module.
func oneModule(cmd *cobra.Command, args []string) error {
	usage := cmd.Parent().CommandPath() + " " + cmd.Use
	switch {
	case len(args) == 0:
		return fmt.Errorf("name a module: %s", usage)
	case len(args) > 1:
		return fmt.Errorf("name one module, not %d: %s", len(args), usage)
	}
	return nil
}

func (l *loaded) closeChains(ctx context.Context) error { return l.chains.closeHost(ctx) }
