// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/refract-project/refract/internal/printable"
)

// statusLine shows the current state of a command on a terminal, as a line that is overwritten, with the duration of
// that state. A line replaces the previous one if it is about the same object. Otherwise the previous line stays. It
// is safe for concurrent use.
type statusLine struct {
	out   io.Writer
	width func() int
	now   func() time.Time

	mu      sync.Mutex
	rest    []byte // beginning of an incomplete line
	line    string // on display, "" if none is
	subject string // subject of the line
	since   time.Time
}

const (
	// overwrite moves the cursor to the beginning of the line, and clears it.
	overwrite = "\r\x1b[K"
	// tickInterval is how often the displayed time is updated.
	tickInterval = time.Second
)

// subjectOf returns the object that a line waits for, by kind and name: "virtual node milan". It returns "" for lines
// about steps.
func subjectOf(line string) string {
	subject, _, found := strings.Cut(line, ": ")
	if !found || !strings.Contains(subject, " ") {
		return ""
	}
	return subject
}

// Write shows the lines. The last one may be incomplete.
func (s *statusLine) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, text...)
	for {
		line, rest, complete := bytes.Cut(s.rest, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		s.rest = rest
		if err := s.showLine(string(line), subjectOf(string(line))); err != nil {
			return 0, err
		}
	}
}

// showLine displays a line in place of one about the same object, or below it.
func (s *statusLine) showLine(line, subject string) error {
	if subject == "" || subject != s.subject {
		if err := s.finishLine(); err != nil {
			return err
		}
	}
	s.line, s.subject, s.since = line, subject, s.now()
	return s.drawLine()
}

// drawLine draws the line with its time, truncated to the width.
func (s *statusLine) drawLine() error {
	text := s.line
	if took := s.elapsedText(); took != "" {
		text += took
		if room := s.width() - 1 - len(took); room > 0 && len(s.line) > room {
			text = s.line[:room] + took
		}
	} else if room := s.width() - 1; room > 0 && len(text) > room {
		text = text[:room]
	}
	_, err := io.WriteString(s.out, overwrite+strings.ToValidUTF8(text, ""))
	return err
}

// elapsedText returns how long the line has been displayed, or "" if it is less than a second.
func (s *statusLine) elapsedText() string {
	if took := s.now().Sub(s.since).Truncate(time.Second); took > 0 {
		return fmt.Sprintf(" (%s)", took)
	}
	return ""
}

// finishLine leaves the complete line on the terminal.
func (s *statusLine) finishLine() error {
	if s.line == "" {
		return nil
	}
	text := s.line + s.elapsedText()
	s.line, s.subject = "", ""
	_, err := io.WriteString(s.out, overwrite+text+"\n")
	return err
}

// runTicker updates the displayed time until done is closed, and then settles the last line.
func (s *statusLine) runTicker(done <-chan struct{}) {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			s.mu.Lock()
			if s.line != "" {
				_ = s.drawLine()
			}
			s.mu.Unlock()
		}
	}
}

// settlingWriter returns a writer for other text on the same terminal. It settles the line before each write.
func (s *statusLine) settlingWriter(out io.Writer) io.Writer { return &settling{s, out} }

type settling struct {
	line *statusLine
	out  io.Writer
}

func (s *settling) Write(text []byte) (int, error) {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	if err := s.line.finishLine(); err != nil {
		return 0, err
	}
	return s.out.Write(text)
}

// writeWaiting writes the state that the command waits for with an object. On a terminal it overwrites the previous state
// of the object.
func writeWaiting(out io.Writer, name, state string) {
	name, state = printable.Line(name), printable.Line(state)
	if w, ok := out.(waiter); ok {
		w.showWaiting(name, state)
		return
	}
	fmt.Fprintln(out, name+": "+state)
}

// waiter displays a state that the command waits for in its own way.
type waiter interface{ showWaiting(name, state string) }

func (s *statusLine) showWaiting(name, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.showLine(name+": "+state, "object "+name)
}

// withStatusLine makes a command and its subcommands show their progress in a status line if standard error is a
// terminal.
func withStatusLine(command *cobra.Command) {
	for _, child := range command.Commands() {
		withStatusLine(child)
	}
	run := command.RunE
	if run == nil {
		return
	}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		file, is := cmd.ErrOrStderr().(*os.File)
		if !is || !isTerminal(file) || os.Getenv("TERM") == "dumb" {
			return run(cmd, args)
		}
		line := &statusLine{out: file, now: time.Now, width: func() int {
			width, _, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 0
			}
			return width
		}}
		cmd.SetErr(line)
		cmd.SetOut(line.settlingWriter(cmd.OutOrStdout()))
		done, over := make(chan struct{}), make(chan struct{})
		go func() { defer close(over); line.runTicker(done) }()
		defer func() {
			close(done)
			<-over
			line.mu.Lock()
			defer line.mu.Unlock()
			_ = line.finishLine()
		}()
		return run(cmd, args)
	}
}
