// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// The exit codes. Scripts depend on them, and docs/operators.md ("Scripts") documents them.
const (
	ExitFailed   = 1 // the command failed, or was interrupted
	ExitUsage    = 2 // a command, an argument or a flag is wrong, and nothing was done
	ExitFindings = 3 // the command completed and found problems
	ExitTimedOut = 4 // a timeout ended the command, and something is still in progress
)

// exitError is an error with an exit code that is not ExitFailed.
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// WithCode adds an exit code to an error. It returns nil if err is nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{err, code}
}

// UsageError marks an error as a usage error.
func UsageError(err error) error { return WithCode(ExitUsage, err) }

// FindingsError marks an error as the summary of a check that has found problems.
func FindingsError(err error) error { return WithCode(ExitFindings, err) }

// ExitCode returns the exit code of the process for an error. If there are several errors, a usage error has the
// highest priority and a timeout the lowest, because running the command again does not help if something else has
// failed.
func ExitCode(err error) int {
	codes := codesOf(err)
	for _, code := range []int{ExitUsage, ExitFailed, ExitFindings, ExitTimedOut} {
		if slices.Contains(codes, code) {
			return code
		}
	}
	return 0
}

func codesOf(err error) []int {
	switch e := err.(type) { //nolint:errorlint // the tree of errors is walked
	case nil:
		return nil
	case *exitError:
		return []int{e.code}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return codesOf(inner)
		}
	case interface{ Unwrap() []error }:
		var codes []int
		for _, inner := range e.Unwrap() {
			codes = append(codes, codesOf(inner)...)
		}
		return codes
	}
	return []int{ExitFailed}
}

// RunWithin runs do with a timeout. If the timeout ends, the returned error has the exit code ExitTimedOut.
func RunWithin(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := do(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return WithCode(ExitTimedOut, err)
	}
	return err
}

// ResultWithin runs a command as RunWithin does, and returns its result.
func ResultWithin[T any](ctx context.Context, timeout time.Duration, do func(context.Context) (T, error)) (result T, err error) {
	err = RunWithin(ctx, timeout, func(ctx context.Context) (err error) {
		result, err = do(ctx)
		return err
	})
	return result, err
}

// ReportUsageErrors makes a command and its subcommands return usage errors for wrong arguments, missing flags, and
// impossible values.
func ReportUsageErrors(command *cobra.Command) {
	check := command.Args
	command.Args = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return UsageError(err)
			}
		}
		if err := cmd.ValidateRequiredFlags(); err != nil {
			return UsageError(fmt.Errorf("%w: see %s --help", err, cmd.CommandPath()))
		}
		return UsageError(checkValues(cmd, args))
	}
	for _, child := range command.Commands() {
		ReportUsageErrors(child)
	}
}
