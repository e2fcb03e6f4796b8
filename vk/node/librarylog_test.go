// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
)

func TestLibraryLogsAsWeDo(t *testing.T) {
	var out strings.Builder
	logger := libraryLog{Logger: logr.FromSlogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))}
	logger.Info("detail")
	logger.WithError(context.Canceled).Error("the end")
	logger.WithField("patch", "{}").WithError(errors.New("refused")).Warn("a long patch")
	logger.WithError(errors.New("refused")).WithFields(vklog.Fields{"lease": "x"}).Error("renewing")
	if got, want := out.String(), "level=ERROR msg=renewing lease=x err=refused\n"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}
