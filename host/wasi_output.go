// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"

	"github.com/refract-project/refract/internal/printable"
)

// output assembles the lines that a module writes to standard output and standard error: runtimes write the parts of a
// line one by one, and each line in the log counts.
type output struct {
	partial [2][]byte // standard output, standard error
	panicky string    // line with the text of a panic
}

const (
	// maxLineBytes is the length above which a line is split.
	maxLineBytes = 4096
	// maxPanicBytes limits the text of a panic in an error, because the error becomes an Event.
	maxPanicBytes = 512
)

// panicPrefixes begin the line of a fatal error in the runtimes of Go and TinyGo.
var panicPrefixes = []string{"panic: ", "fatal error: "}

// writeOutput appends to the line of a file, and logs complete lines.
func (i *instance) writeOutput(file int, part []byte) {
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

func (i *instance) endLine(file int) {
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
		// The prefix may follow output that has no newline.
		if at := strings.Index(text, prefix); at >= 0 && i.output.panicky == "" {
			level, i.output.panicky = slog.LevelWarn, text[at:]
		}
	}
	i.printLine(level, text)
}

// endLines logs incomplete lines.
func (i *instance) endLines() {
	i.endLine(0)
	i.endLine(1)
}

// withPanic adds the text of a panic to the error of the trap that follows it.
func (i *instance) withPanic(err error) error {
	if i.output.panicky == "" {
		return err
	}
	return fmt.Errorf("%s: %w", printable.Shorten(printable.Line(i.printableCopy(i.output.panicky)), maxPanicBytes), err)
}
