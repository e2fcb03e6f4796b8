// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/printable"
)

// MostError is how many bytes of an error are printed, because errors from API servers can be long.
const MostError = 16 << 10

// plainText writes output for people. It escapes control characters, because other clusters have written much of the
// text.
type plainText struct {
	out  io.Writer
	text *printable.Writer
}

func newPlainText(out io.Writer) *plainText { return &plainText{out, printable.NewWriter(out)} }

// Write implements io.Writer.
func (p *plainText) Write(text []byte) (int, error) { return p.text.Write(text) }

func (p *plainText) showWaiting(name, state string) { WriteWaiting(p.out, name, state) }

// UnchangedWriter returns the writer for output that programs read. Such output is not changed, except on a terminal,
// where people read it and control characters are escaped.
func UnchangedWriter(out io.Writer) io.Writer {
	if p, ok := out.(*plainText); ok && !isTerminal(p.out) {
		return p.out
	}
	return out
}

func isTerminal(out io.Writer) bool {
	switch o := out.(type) {
	case *os.File:
		return term.IsTerminal(int(o.Fd()))
	case *settling:
		return isTerminal(o.out)
	}
	return false
}

// WithPlainText escapes control characters in all output of a command and its subcommands.
func WithPlainText(command *cobra.Command) {
	for _, child := range command.Commands() {
		WithPlainText(child)
	}
	run := command.RunE
	if run == nil {
		return
	}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SetOut(newPlainText(cmd.OutOrStdout()))
		cmd.SetErr(newPlainText(cmd.ErrOrStderr()))
		return run(cmd, args)
	}
}

// QuietLibraries suppresses the output of libraries, except warnings of API servers and the libraries' own errors and
// warnings.
func QuietLibraries(out io.Writer) {
	plain := printable.NewWriter(out)
	log.SetLogger(logr.Discard())
	logger := slog.New(slog.NewTextHandler(plain, &slog.HandlerOptions{Level: slog.LevelWarn}))
	slog.SetDefault(logger)
	klog.SetSlogLogger(logger)
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(plain, rest.WarningWriterOptions{Deduplicate: true}))
}
