// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"

	"github.com/refract-project/refract/internal/printable"
)

// output assembles the lines that a module writes to standard output and standard error, because runtimes write a
// line in several parts and each log line counts against a limit.
type output struct {
	partial [2][]byte // incomplete lines of standard output and standard error
	panicky string    // line that contains the text of a panic
}

const (
	// maxLineBytes is the maximum length of a log line. Longer lines are split.
	maxLineBytes = 4096
	// maxPanicBytes limits the text of a panic in an error, because the error becomes an Event.
	maxPanicBytes = 512
)

// panicPrefixes are the beginnings of a line with a fatal error in the runtimes of Go and TinyGo.
var panicPrefixes = []string{"panic: ", "fatal error: "}

// writeOutput appends a part of a line to a file, and logs complete lines.
func (i *Instance) writeOutput(file int, part []byte) {
	for len(part) > 0 {
		line := &i.output.partial[file]
		end := bytes.IndexByte(part, '\n')
		switch {
		case end >= 0:
			*line = append(*line, part[:end]...)
			part = part[end+1:]
		default:
			room := max(maxLineBytes-len(*line), 0)
			n := min(room, len(part))
			*line = append(*line, part[:n]...)
			if part = part[n:]; len(*line) < maxLineBytes {
				return
			}
		}
		i.endLine(file)
	}
}

func (i *Instance) endLine(file int) {
	line := i.output.partial[file]
	i.output.partial[file] = line[:0]
	if len(line) == 0 {
		return
	}
	level := slog.LevelInfo
	if file == 1 {
		level = slog.LevelError
	}
	text := string(line)
	for _, prefix := range panicPrefixes {
		// The prefix is searched in the whole line, because the panic may follow output that does not end with a
		// newline.
		if at := strings.Index(text, prefix); at >= 0 && i.output.panicky == "" {
			level, i.output.panicky = slog.LevelWarn, text[at:]
		}
	}
	i.printLine(level, text)
}

// endLines logs the incomplete lines.
func (i *Instance) endLines() {
	i.endLine(0)
	i.endLine(1)
}

// withPanic adds the text of a panic to the error of the trap that the panic has caused.
func (i *Instance) withPanic(err error) error {
	if i.output.panicky == "" {
		return err
	}
	return fmt.Errorf("%s: %w", printable.Shorten(printable.Line(i.printableCopy(i.output.panicky)), maxPanicBytes), err)
}
