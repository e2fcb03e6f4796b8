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

// output gathers what a module writes to standard output and standard error to lines: runtimes write the parts of a line one by
// one, and each line in the log counts.
type output struct {
	partial [2][]byte // of standard output, standard error
	panicky string    // the line with the text of a panic
}

const (
	// maxLineBytes of a line that is kept together.
	maxLineBytes = 4096
	// maxPanicBytes of the text of a panic in an error, which ends up in an Event.
	maxPanicBytes = 512
)

// panicPrefixes begin the line in which the runtimes of Go and TinyGo say why they stop.
var panicPrefixes = []string{"panic: ", "fatal error: "}

// write adds to the line of a file, and logs those that are complete.
func (i *instance) write(file int, part []byte) {
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
		// It may stand behind what the module put out without a newline.
		if at := strings.Index(text, prefix); at >= 0 && i.output.panicky == "" {
			level, i.output.panicky = slog.LevelWarn, text[at:]
		}
	}
	i.print(level, text)
}

// endLines logs what has no newline at its end.
func (i *instance) endLines() {
	i.endLine(0)
	i.endLine(1)
}

// withPanic adds the text of a panic to the error of the trap that follows it.
func (i *instance) withPanic(err error) error {
	if i.output.panicky == "" {
		return err
	}
	return fmt.Errorf("%s: %w", printable.Shorten(printable.Line(i.printable(i.output.panicky)), maxPanicBytes), err)
}
