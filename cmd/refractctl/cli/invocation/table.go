// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/refract-project/refract/internal/printable"
)

// PrintTable writes a single table.
func PrintTable[T any](out io.Writer, header string, rows []T, cells func(T) []string) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	PrintSection(table, header, rows, cells)
	return table.Flush()
}

// MostCell is the maximum number of bytes that are shown in a cell of a table.
const MostCell = 4 << 10

// PrintSection writes one table. Empty cells are shown as a dash, so that the columns line up. Text of other parties
// in cells cannot add rows.
func PrintSection[T any](out io.Writer, header string, rows []T, cells func(T) []string) {
	fmt.Fprintln(out, header)
	if len(rows) == 0 {
		fmt.Fprintln(out, "(none)")
	}
	for _, row := range rows {
		values := cells(row)
		for i := range values {
			if values[i] = printable.Shorten(printable.Line(values[i]), MostCell); values[i] == "" {
				values[i] = "-"
			}
		}
		fmt.Fprintln(out, strings.Join(values, "\t"))
	}
	fmt.Fprintln(out)
}

// PrintTo returns a function that prints lines to out. Quoted text of other parties cannot add lines.
func PrintTo(out io.Writer) func(string) {
	return func(line string) { fmt.Fprintln(out, printable.Line(line)) }
}
