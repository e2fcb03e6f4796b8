// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"log/slog"
	"strings"
)

// logLevels contains the log levels for the numbers 0 to 3 of the ABI.
var logLevels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func abiLog(i *instance, stack []uint64) {
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

func (i *instance) logCharged(function string, level slog.Level, message string) {
	i.spendOutput(function, len(message)+lineBytes)
	i.chargeFuel(lineWork + int64(len(message)))
	i.printLine(level, message)
}

func (i *instance) printLine(level slog.Level, message string) {
	l := i.plugin.host.logger
	if i.env != nil && i.env.Logger != nil {
		l = i.env.Logger
	}
	ctx := context.Background()
	if !l.Enabled(ctx, level) {
		return
	}
	p := i.plugin
	if !p.lines.Allow() {
		p.dropped.Add(1)
		return
	}
	attrs := []slog.Attr{slog.String("plugin", p.name)}
	if n := p.dropped.Swap(0); n > 0 {
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
func (i *instance) printableCopy(s string) string {
	return strings.ToValidUTF8(strings.Clone(s), "\ufffd")
}

func abiWarn(i *instance, stack []uint64) {
	message := i.guestString("warn", stack[0], stack[1])
	i.spendOutput("warn", len(message)+16)
	i.chargeFuel(int64(len(message)))
	if i.env == nil {
		i.abortMisuse("warn", "there is an object to warn about in outgoing and incoming only")
	}
	i.env.out.pluginWarns(i.plugin.name, i.printableCopy(message))
}

func abiSkip(i *instance, stack []uint64) {
	reason := i.guestString("skip", stack[0], stack[1])
	i.spendOutput("skip", len(reason))
	i.chargeFuel(int64(len(reason)))
	if !i.plugin.skips {
		i.abortMisuse("skip", undeclaredSkip)
	}
	i.skipped, i.reason = true, i.printableCopy(reason)
}

const undeclaredSkip = `it keeps the object from being reflected, which the capabilities of its manifest do not say: declare "skip"`

func abiFail(i *instance, stack []uint64) {
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

func abiRemapIP(i *instance, stack []uint64) {
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
