// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refract-project/refract/internal/lab"
	"github.com/refract-project/refract/internal/testenv"
)

// cpu is what each process of both clusters, ours among them, has used so far.
type cpu map[string]time.Duration

func (b *bench) cpu() (cpu, error) {
	used := cpu{}
	for _, side := range []*lab.Side{b.Consumer, b.Provider} {
		for name, pid := range side.Processes() {
			usage, err := testenv.ProcessUsage(pid)
			if err != nil {
				return nil, fmt.Errorf("measuring %s of %s, %w", name, side.ID, err)
			}
			used[side.ID+" "+name] = usage.CPU
		}
	}
	return used, nil
}

// since returns the sum of what was used after an earlier reading, and the largest parts of it.
func (c cpu) since(earlier cpu) (sum time.Duration, parts string) {
	const most = 5
	var names []string
	spent := cpu{}
	for name, used := range c {
		spent[name] = used - earlier[name]
		sum += spent[name]
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(spent[b] - spent[a]) })
	var largest []string
	for _, name := range names[:min(most, len(names))] {
		largest = append(largest, fmt.Sprintf("%s %.1f", name, spent[name].Seconds()))
	}
	return sum, strings.Join(largest, ", ")
}
