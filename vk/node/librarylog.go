// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
)

// libraryLog adapts the logger of the virtual-kubelet library to our logger. Errors are logged as errors, except for
// errors that are caused by the end of the process. Patches, which are longer than a screen, are logged at verbosity 4.
type libraryLog struct {
	logr.Logger
	err   error
	patch bool
}

var _ vklog.Logger = libraryLog{}

func (l libraryLog) logMessage(level int, message string) {
	if l.patch {
		level = max(level, 4)
	}
	if l.err != nil {
		l.Logger = l.WithValues("err", l.err)
	}
	l.V(level).Info(message)
}

func (l libraryLog) logError(message string) {
	if errors.Is(l.err, context.Canceled) {
		l.logMessage(4, message)
		return
	}
	l.Logger.Error(l.err, message)
}

func (l libraryLog) Debug(args ...any)            { l.logMessage(4, fmt.Sprint(args...)) }
func (l libraryLog) Debugf(f string, args ...any) { l.logMessage(4, fmt.Sprintf(f, args...)) }
func (l libraryLog) Info(args ...any)             { l.logMessage(1, fmt.Sprint(args...)) }
func (l libraryLog) Infof(f string, args ...any)  { l.logMessage(1, fmt.Sprintf(f, args...)) }
func (l libraryLog) Warn(args ...any)             { l.logMessage(0, fmt.Sprint(args...)) }
func (l libraryLog) Warnf(f string, args ...any)  { l.logMessage(0, fmt.Sprintf(f, args...)) }
func (l libraryLog) Error(args ...any)            { l.logError(fmt.Sprint(args...)) }
func (l libraryLog) Errorf(f string, args ...any) { l.logError(fmt.Sprintf(f, args...)) }
func (l libraryLog) Fatal(args ...any)            { l.logError(fmt.Sprint(args...)) }
func (l libraryLog) Fatalf(f string, args ...any) { l.logError(fmt.Sprintf(f, args...)) }

// WithField implements vklog.Logger.
func (l libraryLog) WithField(key string, value any) vklog.Logger {
	l.patch = l.patch || key == "patch"
	l.Logger = l.WithValues(key, value)
	return l
}

// WithFields implements vklog.Logger.
func (l libraryLog) WithFields(fields vklog.Fields) vklog.Logger {
	var logger vklog.Logger = l
	for key, value := range fields {
		logger = logger.WithField(key, value)
	}
	return logger
}

// WithError implements vklog.Logger.
func (l libraryLog) WithError(err error) vklog.Logger {
	l.err = err
	return l
}
