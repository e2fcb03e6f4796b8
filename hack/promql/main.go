// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Promql parses PromQL expressions, one per line of standard input, with Prometheus' own parser. For each expression
// it prints a line with the metrics that the expression selects. It exits with status 1 if an expression cannot be
// parsed. The test of the chart's alerts and dashboards runs this command.
package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	if err := parse(); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func parse() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(lines.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		var metrics []string
		for _, selectors := range parser.ExtractSelectors(expression) {
			for _, selector := range selectors {
				if selector.Name == "__name__" {
					metrics = append(metrics, selector.Value)
				}
			}
		}
		slices.Sort(metrics)
		fmt.Println(strings.Join(slices.Compact(metrics), " "))
	}
	return lines.Err()
}
