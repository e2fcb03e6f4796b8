// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package figures prints what a benchmark has measured as a table, and compares it with goals.
package figures

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// ErrGoalMissed is the error of Print if a figure misses its goal.
var ErrGoalMissed = errors.New("a goal was missed")

// Figure is a line of a table. Goal is empty if there is none.
type Figure struct {
	What, Value, Goal string
	Missed            bool
}

// Table contains figures in the order in which they are printed. It must not be used concurrently.
type Table struct {
	Figures []Figure
	// Slack is the factor by which figures may miss their goals, for machines that are busy. The default is 1.
	Slack float64
}

// Add adds a figure without a goal.
func (t *Table) Add(what, format string, args ...any) {
	t.Figures = append(t.Figures, Figure{What: what, Value: fmt.Sprintf(format, args...)})
}

// AtMost adds a figure that should not exceed its goal.
func (t *Table) AtMost(what string, value, goal float64, unit string) {
	// The condition is negated so that NaN counts as missed.
	t.Figures = append(t.Figures, Figure{What: what, Value: fmt.Sprintf("%.2f%s", value, unit), Goal: fmt.Sprintf("≤ %g%s", goal, unit),
		Missed: !(value <= goal*t.slack())})
}

// AtLeast adds a figure that should reach its goal.
func (t *Table) AtLeast(what string, value, goal float64, unit string) {
	t.Figures = append(t.Figures, Figure{What: what, Value: fmt.Sprintf("%.2f%s", value, unit), Goal: fmt.Sprintf("≥ %g%s", goal, unit),
		Missed: !(value >= goal/t.slack())})
}

func (t *Table) slack() float64 {
	if t.Slack == 0 {
		return 1
	}
	return t.Slack
}

// Print writes the table. The error names the figures that miss their goals, and contains ErrGoalMissed.
func (t *Table) Print(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(columns, "FIGURE\tVALUE\tGOAL\t\n")
	var err error
	for _, f := range t.Figures {
		verdict := ""
		switch {
		case f.Missed:
			verdict = "missed"
			err = errors.Join(err, fmt.Errorf("%w: %s: %s, goal %s", ErrGoalMissed, strings.TrimSpace(f.What), f.Value, f.Goal))
		case f.Goal != "":
			verdict = "met"
		}
		_, _ = fmt.Fprintf(columns, "%s\t%s\t%s\t%s\n", f.What, f.Value, f.Goal, verdict)
	}
	return errors.Join(err, columns.Flush())
}
