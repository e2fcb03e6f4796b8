// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// logLevels contains the log levels for the numbers 0 to 3 of the ABI.
var logLevels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func abiLog(i *Instance, stack []uint64) {
	level := uint32(stack[0])
	if level >= uint32(len(logLevels)) {
		i.abortMisuse("log", "levels are 0 (debug) to 3 (error)")
	}
	i.logCharged("log", logLevels[level], i.guestString("log", stack[1], stack[2]))
}

// lineBytes is the number of bytes that each log line counts against Limits.OutputBytes in addition to its message.
const lineBytes = 64

// lineWork is the work that is charged for each log line in addition to its bytes.
const lineWork = 1024

func (i *Instance) logCharged(function string, level slog.Level, message string) {
	i.spendOutput(function, len(message)+lineBytes)
	i.chargeFuel(lineWork + int64(len(message)))
	i.printLine(level, message)
}

func (i *Instance) printLine(level slog.Level, message string) {
	l := i.module.Logger
	if i.env != nil && i.env.Logger != nil {
		l = i.env.Logger
	}
	ctx := context.Background()
	if !l.Enabled(ctx, level) {
		return
	}
	m := i.module
	if !m.lines.Allow() {
		m.dropped.Add(1)
		return
	}
	attrs := []slog.Attr{slog.String("plugin", m.Name)}
	if n := m.dropped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("linesDroppedBefore", n))
	}
	l.LogAttrs(ctx, level, i.printableCopy(message), attrs...)
}

// Limits on what a plugin may log in all of its calls together, so that a plugin cannot flood the log.
const (
	logLinesPerSecond = 10
	logBurst          = 200
)

// printableCopy copies a text of the guest as valid UTF-8, so that it can be stored and logged.
func (i *Instance) printableCopy(s string) string {
	return strings.ToValidUTF8(strings.Clone(s), "\ufffd")
}

func abiWarn(i *Instance, stack []uint64) {
	message := i.guestString("warn", stack[0], stack[1])
	i.spendOutput("warn", len(message)+16)
	i.chargeFuel(int64(len(message)))
	if i.env == nil {
		i.abortMisuse("warn", "there is an object to warn about in outgoing and incoming only")
	}
	i.addWarning(i.printableCopy(message))
}

// maxWarnings limits the warnings of a call. If a plugin warns about each of a thousand endpoints, the first few
// warnings are sufficient.
const maxWarnings = 16

// addWarning adds a warning of the call. Above maxWarnings, it only counts the warning.
func (i *Instance) addWarning(message string) {
	if i.warned++; i.warned <= maxWarnings {
		i.warnings = append(i.warnings, message)
	}
}

// Warnings returns the warnings of the last call of a hook, and a last one with the number of further warnings if there
// were too many. The slice is valid until the next call.
func (i *Instance) Warnings() []string {
	if more := i.warned - maxWarnings; more > 0 {
		return append(i.warnings, fmt.Sprintf("and %d more warnings", more))
	}
	return i.warnings
}

func abiSkip(i *Instance, stack []uint64) {
	reason := i.guestString("skip", stack[0], stack[1])
	i.spendOutput("skip", len(reason))
	i.chargeFuel(int64(len(reason)))
	if !i.module.MaySkip {
		i.abortMisuse("skip", undeclaredSkip)
	}
	i.skipped, i.reason = true, i.printableCopy(reason)
}

const undeclaredSkip = `it keeps the object from being reflected, which the capabilities of its manifest do not say: declare "skip"`

func abiFail(i *Instance, stack []uint64) {
	reason := i.guestString("fail", stack[0], stack[1])
	i.spendOutput("fail", len(reason))
	i.chargeFuel(int64(len(reason)))
	i.failed, i.reason = true, i.printableCopy(reason)
}

// remapWork is the work that is charged for an address lookup.
const remapWork = 256

// maxAddress is the maximum length of an address in bytes. The text of a valid IP address is shorter, even with a
// zone.
const maxAddress = 64

func abiRemapIP(i *Instance, stack []uint64) {
	ip := i.guestString("remap_ip", stack[0], stack[1])
	if len(ip) > maxAddress {
		i.abortMisuse("remap_ip", "an address has at most 64 bytes")
	}
	buffer, capacity := stack[2], stack[3]
	stack[0] = absent
	if i.env == nil || i.env.RemapIP == nil {
		return
	}
	i.chargeFuel(remapWork)
	if mapped, ok := i.env.RemapIP(strings.Clone(ip)); ok {
		i.giveString("remap_ip", mapped, buffer, capacity)
		stack[0] = uint64(len(mapped))
	}
}
