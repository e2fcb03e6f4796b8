// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/printable"
)

// Logs contains the settings of the logs.
type Logs struct {
	// Format is text or json.
	Format string
	// Verbosity is the level of detail: 0 is for operators, 4 and more for debugging.
	Verbosity int
}

// AddFlags registers --log-format and --v.
func (l *Logs) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.Format, "log-format", "text", "format of log lines: text or json")
	flags.IntVarP(&l.Verbosity, "v", "v", 0, "verbosity of logs: 0 for operators, 4 and more for debugging")
}

// Validate returns an error that names the invalid flag.
func (l *Logs) Validate() error {
	if l.Verbosity < 0 {
		return fmt.Errorf("--v=%d: use 0 or more", l.Verbosity)
	}
	if l.Format != "text" && l.Format != "json" {
		return fmt.Errorf("--log-format is %q: use text or json", l.Format)
	}
	return nil
}

// mostLogged is the maximum length of a logged value in bytes. The responses of other clusters may have any length.
const mostLogged = 16 << 10

// Install makes controller-runtime, klog and slog write their logs to out. It escapes control characters and shortens
// long values.
func (l *Logs) Install(out io.Writer) error {
	if err := l.Validate(); err != nil {
		return err
	}
	options := &slog.HandlerOptions{Level: slog.Level(-l.Verbosity), ReplaceAttr: shortenValue}
	out = printable.NewWriter(out)
	var handler slog.Handler = slog.NewTextHandler(out, options)
	if l.Format == "json" {
		handler = slog.NewJSONHandler(out, options)
	}
	logger := logr.FromSlogHandler(handler)
	log.SetLogger(logger)
	klog.SetSlogLogger(slog.New(handler))
	slog.SetDefault(slog.New(handler))
	return nil
}

// shortenValue limits the length of strings and errors in a log line.
func shortenValue(_ []string, attr slog.Attr) slog.Attr {
	text := ""
	switch value := attr.Value.Any().(type) {
	case string:
		text = value
	case error:
		text = value.Error()
	}
	if len(text) > mostLogged {
		attr.Value = slog.StringValue(printable.Shorten(text, mostLogged))
	}
	return attr
}
