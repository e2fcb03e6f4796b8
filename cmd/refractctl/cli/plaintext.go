// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

// mostError is the maximum number of bytes that are printed of an error, because API servers send long ones.
const mostError = 16 << 10

// plainText writes output for people. Other clusters have written much of it, so control characters are escaped.
type plainText struct {
	out  io.Writer
	text *printable.Writer
}

func newPlainText(out io.Writer) *plainText { return &plainText{out, printable.NewWriter(out)} }

// Write implements io.Writer.
func (p *plainText) Write(text []byte) (int, error) { return p.text.Write(text) }

func (p *plainText) showWaiting(name, state string) { writeWaiting(p.out, name, state) }

// unchangedWriter returns the writer for output that programs read, without any change. On a terminal the output is escaped,
// because people read it there.
func unchangedWriter(out io.Writer) io.Writer {
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

// withPlainText makes a command and its subcommands write only text without control characters.
func withPlainText(command *cobra.Command) {
	for _, child := range command.Commands() {
		withPlainText(child)
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

// quietLibraries limits the output of libraries to warnings of API servers and to errors and warnings of their own.
func quietLibraries(out io.Writer) {
	plain := printable.NewWriter(out)
	log.SetLogger(logr.Discard())
	logger := slog.New(slog.NewTextHandler(plain, &slog.HandlerOptions{Level: slog.LevelWarn}))
	slog.SetDefault(logger)
	klog.SetSlogLogger(logger)
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(plain, rest.WarningWriterOptions{Deduplicate: true}))
}
