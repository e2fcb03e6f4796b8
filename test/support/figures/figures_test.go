// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrint(t *testing.T) {
	table := Table{}
	table.Add("pods", "%d", 3)
	table.AtMost("latency", 1.2, 1.2, " s")
	table.AtLeast("throughput", 0.9, 0.85, "")
	var text strings.Builder
	require.NoError(t, table.Print(&text))
	require.Equal(t, []string{"FIGURE", "VALUE", "GOAL", "pods", "3", "latency", "1.20", "s", "≤", "1.2", "s", "met",
		"throughput", "0.90", "≥", "0.85", "met"}, strings.Fields(text.String()))
}

func TestMissedGoals(t *testing.T) {
	for name, add := range map[string]func(*Table){
		"too much":     func(t *Table) { t.AtMost("latency", 1.5, 1.2, "") },
		"too little":   func(t *Table) { t.AtLeast("throughput", 0.7, 0.85, "") },
		"not a number": func(t *Table) { t.AtMost("latency", math.NaN(), 1.2, "") },
	} {
		t.Run(name, func(t *testing.T) {
			table, slack := Table{}, Table{Slack: 1.3}
			add(&table)
			add(&slack)
			table.AtMost("met", 1, 2, "")
			err := table.Print(&strings.Builder{})
			require.ErrorIs(t, err, ErrGoalMissed)
			require.ErrorContains(t, err, table.Figures[0].What+": "+table.Figures[0].Value+", goal "+table.Figures[0].Goal)
			require.NotContains(t, err.Error(), "met:")
			if name != "not a number" {
				require.NoError(t, slack.Print(&strings.Builder{}))
			}
		})
	}
}
