// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
)

// Reporter is called with one line for each step of a command, and for each condition that the command waits for. Lines
// do not end with a newline. A nil Reporter discards all lines.
type Reporter func(line string)

// Report formats a line and passes it to the Reporter.
func (r Reporter) Report(format string, arguments ...any) {
	if r != nil {
		r(fmt.Sprintf(format, arguments...))
	}
}

// Await waits like the function Await, and reports what it is waiting for.
func (r Reporter) Await(ctx context.Context, what string, look func(context.Context) (missing string, err error)) error {
	return Await(ctx, func(line string) { r.Report("%s", line) }, what, look)
}
