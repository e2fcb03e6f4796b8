// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"errors"
	"sort"
	"testing"

	"github.com/refract-project/refract/host"
)

// memoryNeeded returns the memory, in KiB, with which an instance of the module
// gets through all cases: the smallest limit that none of them hits.
func memoryNeeded(t testing.TB, m *Module, cases map[string]Case) int {
	t.Helper()
	const pageKiB = 64
	limit := host.DefaultLimits().MemoryPages
	return pageKiB * (1 + sort.Search(limit-1, func(i int) bool { return enough(t, m, cases, i+1) }))
}

// enough reports whether no case needs more than so many pages.
func enough(t testing.TB, m *Module, cases map[string]Case, pages int) bool {
	t.Helper()
	small := &Module{host: m.host, name: m.name, wasm: m.wasm, limits: host.Limits{MemoryPages: pages}, loaded: map[string]*host.Plugin{}}
	defer small.closePlugins(t)
	for _, c := range cases {
		out, err := small.try(t, c)
		var exceeded *host.LimitError
		var load *host.LoadError
		if errors.As(err, &load) || errors.As(out.Err, &exceeded) && exceeded.Limit == host.LimitMemory {
			return false
		}
	}
	return true
}
