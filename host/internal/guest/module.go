// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"log/slog"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"golang.org/x/time/rate"
)

// Module is what all instances of a plugin's module share. The exported fields must not change while a call is running.
type Module struct {
	Name   string // name of the plugin
	Config map[string]any
	Limits Limits
	// Logger is for the log lines of calls without a logger.
	Logger *slog.Logger

	Compiled wazero.CompiledModule
	Runtime  wazero.Runtime // runtime that has compiled the module
	// Portable means that the module belongs to the portable tier.
	Portable bool
	// MaySkip means that the plugin may exclude objects from reflection.
	MaySkip bool

	initial *state // initial state of every instance; nil if instances cannot be reset

	lines   *rate.Limiter // limits the rate of log lines
	dropped atomic.Int64  // number of log lines that were dropped since the last written line
}

// NewModule returns a Module that is not compiled yet.
func NewModule(name string, config map[string]any, limits Limits, logger *slog.Logger) *Module {
	return &Module{Name: name, Config: config, Limits: limits, Logger: logger, lines: rate.NewLimiter(logLinesPerSecond, logBurst)}
}
