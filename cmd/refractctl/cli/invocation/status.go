// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

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

// statusLine shows on a terminal what a command is waiting for, and for how long, in a line that is overwritten. A new
// line replaces the previous line if both are about the same object; if not, the previous line stays. It is safe for
// concurrent use.
type statusLine struct {
	out   io.Writer
	width func() int
	now   func() time.Time

	mu      sync.Mutex
	rest    []byte // beginning of an incomplete line
	line    string // the displayed line, or "" if there is none
	subject string // subject of the displayed line
	since   time.Time
}

const (
	// overwrite moves the cursor to the beginning of the line and clears the line.
	overwrite = "\r\x1b[K"
	// tickInterval is how often the displayed time is updated.
	tickInterval = time.Second
)

// subjectOf returns the kind and name of the object that a line is about, such as "virtual node milan". It returns ""
// for a line about a step.
func subjectOf(line string) string {
	subject, _, found := strings.Cut(line, ": ")
	if !found || !strings.Contains(subject, " ") {
		return ""
	}
	return subject
}

// Write displays the lines of text. The last line may be incomplete.
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

// showLine displays a line. It replaces the previous line if both have the same subject, and is displayed below it
// otherwise.
func (s *statusLine) showLine(line, subject string) error {
	if subject == "" || subject != s.subject {
		if err := s.finishLine(); err != nil {
			return err
		}
	}
	s.line, s.subject, s.since = line, subject, s.now()
	return s.drawLine()
}

// drawLine draws the line and its duration, truncated to the width of the terminal.
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

// finishLine draws the complete line once more, and leaves it on the terminal.
func (s *statusLine) finishLine() error {
	if s.line == "" {
		return nil
	}
	text := s.line + s.elapsedText()
	s.line, s.subject = "", ""
	_, err := io.WriteString(s.out, overwrite+text+"\n")
	return err
}

// runTicker updates the displayed duration until done is closed, and then finishes the last line.
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

// settlingWriter returns a writer for other text on the same terminal. Before each write, it finishes the displayed
// line.
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

// WriteWaiting writes the state of an object that the command waits for. On a terminal, it overwrites the previous
// state of the object.
func WriteWaiting(out io.Writer, name, state string) {
	name, state = printable.Line(name), printable.Line(state)
	if w, ok := out.(waiter); ok {
		w.showWaiting(name, state)
		return
	}
	fmt.Fprintln(out, name+": "+state)
}

// waiter is implemented by writers that display in their own way what a command is waiting for.
type waiter interface{ showWaiting(name, state string) }

func (s *statusLine) showWaiting(name, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.showLine(name+": "+state, "object "+name)
}

// WithStatusLine makes a command and its subcommands show their progress in a status line if standard error is a
// Terminal.
func WithStatusLine(command *cobra.Command) {
	for _, child := range command.Commands() {
		WithStatusLine(child)
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
