// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"log/slog"
	"strings"
)

// logLevels are the levels 0 to 3 of the ABI.
var logLevels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func abiLog(i *instance, stack []uint64) {
	level := uint32(stack[0])
	if level >= uint32(len(logLevels)) {
		i.misuse("log", "levels are 0 (debug) to 3 (error)")
	}
	i.log("log", logLevels[level], i.text("log", stack[1], stack[2]))
}

// lineBytes is the number of output bytes that a log line costs in addition to its message.
const lineBytes = 64

// lineWork is the work charged for a log line in addition to its bytes.
const lineWork = 1024

func (i *instance) log(function string, level slog.Level, message string) {
	i.spend(function, len(message)+lineBytes)
	i.charge(lineWork + int64(len(message)))
	i.print(level, message)
}

func (i *instance) print(level slog.Level, message string) {
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
	l.LogAttrs(ctx, level, i.printable(message), attrs...)
}

// A plugin may log this much over all its calls, so that one plugin cannot flood the log.
const (
	logLinesPerSecond = 10
	logBurst          = 200
)

// printable copies text of the guest as valid UTF-8, so that it can be kept and logged.
func (i *instance) printable(s string) string { return strings.ToValidUTF8(strings.Clone(s), "\ufffd") }

func abiWarn(i *instance, stack []uint64) {
	message := i.text("warn", stack[0], stack[1])
	i.spend("warn", len(message)+16)
	i.charge(int64(len(message)))
	if i.env == nil {
		i.misuse("warn", "there is an object to warn about in outgoing and incoming only")
	}
	i.env.out.pluginWarns(i.plugin.name, i.printable(message))
}

func abiSkip(i *instance, stack []uint64) {
	reason := i.text("skip", stack[0], stack[1])
	i.spend("skip", len(reason))
	i.charge(int64(len(reason)))
	if !i.plugin.skips {
		i.misuse("skip", undeclaredSkip)
	}
	i.skipped, i.reason = true, i.printable(reason)
}

const undeclaredSkip = `it keeps the object from being reflected, which the capabilities of its manifest do not say: declare "skip"`

func abiFail(i *instance, stack []uint64) {
	reason := i.text("fail", stack[0], stack[1])
	i.spend("fail", len(reason))
	i.charge(int64(len(reason)))
	i.failed, i.reason = true, i.printable(reason)
}

// remapWork is the work charged for an address lookup.
const remapWork = 256

// maxAddress is longer than any textual IP address with a zone.
const maxAddress = 64

func abiRemapIP(i *instance, stack []uint64) {
	ip := i.text("remap_ip", stack[0], stack[1])
	if len(ip) > maxAddress {
		i.misuse("remap_ip", "an address has at most 64 bytes")
	}
	buffer, capacity := stack[2], stack[3]
	stack[0] = absent
	if i.env == nil || i.env.RemapIP == nil {
		return
	}
	i.charge(remapWork)
	if mapped, ok := i.env.RemapIP(strings.Clone(ip)); ok {
		i.give("remap_ip", mapped, buffer, capacity)
		stack[0] = uint64(len(mapped))
	}
}
