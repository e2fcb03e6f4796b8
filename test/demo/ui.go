// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// screen prints the story. On a terminal, it uses colors, and its last line, which is overwritten, shows what the story
// is waiting for. In a file or a pipe, it prints plain lines. It is safe for concurrent use.
type screen struct {
	mu      sync.Mutex
	out     io.Writer
	live    bool
	step    int
	waiting string
}

func newScreen(out *os.File) *screen {
	live := term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
	return &screen{out: out, live: live}
}

const (
	bold, dim, green, red, cyan, reset = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[36m", "\x1b[0m"
	clearLine                          = "\r\x1b[K"
)

// paint colors the text if the screen supports colors and NO_COLOR is not set.
func (s *screen) paint(colour, text string) string {
	if !s.live || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return colour + text + reset
}

// heading prints the title and the purpose of the next step.
func (s *screen) heading(title, why string) {
	s.step++
	s.print("\n%s\n%s\n", s.paint(bold, fmt.Sprintf("%d. %s", s.step, title)), s.paint(dim, wrap(why, 100, "   ")))
}

// during shows what the story is waiting for until work returns. It then shows how long this took, or the error.
func (s *screen) during(what string, work func() error) error {
	begun := time.Now()
	stop := s.spin(what, begun)
	err := work()
	stop()
	elapsed := fmt.Sprintf("(%.1f s)", time.Since(begun).Seconds())
	if err != nil {
		s.print("   %s %s %s\n", s.paint(red, "✗"), what, s.paint(dim, elapsed))
		return fmt.Errorf("%s: %w", what, err)
	}
	s.print("   %s %s %s\n", s.paint(green, "✓"), what, s.paint(dim, elapsed))
	return nil
}

// holds prints a fact that has been verified.
func (s *screen) holds(format string, args ...any) {
	s.print("   %s %s\n", s.paint(green, "✓"), fmt.Sprintf(format, args...))
}

// note prints a remark.
func (s *screen) note(format string, args ...any) {
	s.print("   %s\n", s.paint(dim, fmt.Sprintf(format, args...)))
}

// shell prints a command and its output.
func (s *screen) shell(command, output string) {
	s.print("   %s\n%s", s.paint(cyan, "$ "+command), indent(output, "     "))
}

// text prints lines with an indentation, but otherwise unchanged.
func (s *screen) text(lines string) { s.print("%s", indent(lines, "     ")) }

func (s *screen) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != "" {
		_, _ = io.WriteString(s.out, clearLine)
	}
	_, _ = fmt.Fprintf(s.out, format, args...)
	_, _ = io.WriteString(s.out, s.waiting)
}

// spin redraws the last line of a terminal until stop is called.
func (s *screen) spin(what string, begun time.Time) (stop func()) {
	if !s.live {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			s.wait(fmt.Sprintf("   %s %s %s", s.paint(cyan, string(frames[i%len(frames)])), what, s.paint(dim, fmt.Sprintf("%.0f s", time.Since(begun).Seconds()))))
			select {
			case <-done:
				s.wait("")
				return
			case <-ticker.C:
			}
		}
	}()
	return func() { close(done); <-gone }
}

// wait shows what the story is waiting for, in the last line.
func (s *screen) wait(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = line
	_, _ = io.WriteString(s.out, clearLine+line)
}

func indent(text, by string) string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return ""
	}
	return by + strings.ReplaceAll(text, "\n", "\n"+by) + "\n"
}

// wrap breaks a text into lines of at most width characters. Each line begins with the string by, which does not count.
func wrap(text string, width int, by string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			b.WriteString(by)
		case column+1+len(word) > width:
			b.WriteString("\n" + by)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
