// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// corpus contains the values that objects are generated from.
type corpus struct {
	cases   []Case
	scalars map[string][]any // scalar values in the cases, by type
}

// generator generates unusual objects from the objects in the cases. It combines cases; removes, repeats and reorders
// values; and adds fields that no plugin knows.
type generator struct {
	*corpus
	rng *rand.Rand
}

func newCorpus(cases map[string]Case) *corpus {
	c := &corpus{scalars: map[string][]any{}}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c.cases = append(c.cases, cases[name])
		c.collect(cases[name].Object)
		c.collect(cases[name].Context)
	}
	return c
}

// collect adds the scalars and the keys in a value to the corpus. Keys are added because strings elsewhere often refer
// to keys.
func (c *corpus) collect(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.remember(key)
			c.collect(v[key])
		}
	case []any:
		for _, element := range v {
			c.collect(element)
		}
	default:
		c.remember(v)
	}
}

func (c *corpus) remember(v any) {
	kind := fmt.Sprintf("%T", v)
	c.scalars[kind] = append(c.scalars[kind], v)
}

// make generates a case. The same seed always gives the same case.
func (c *corpus) make(seed uint64) Case {
	g := &generator{corpus: c, rng: rand.New(rand.NewPCG(seed, 0))}
	return g.next()
}

func (g *generator) next() Case {
	c := g.pick()
	other := g.pick()
	for range g.rng.IntN(8) {
		c.Object = g.mutate(c.Object, other.Object).(map[string]any)
	}
	if g.rng.IntN(2) == 0 {
		hook := c.Context["hook"]
		for range g.rng.IntN(3) {
			c.Context, _ = g.mutate(c.Context, other.Context).(map[string]any)
		}
		if hook != nil && c.Context != nil {
			c.Context["hook"] = hook
		}
	}
	return c
}

func (g *generator) pick() Case { return g.cases[g.rng.IntN(len(g.cases))].clone() }

// mutate changes a random part of v. donor is the value at the same path in another case.
func (g *generator) mutate(v, donor any) any {
	switch v := v.(type) {
	case map[string]any:
		other, _ := donor.(map[string]any)
		return g.mutateMap(v, other)
	case []any:
		other, _ := donor.([]any)
		return g.mutateList(v, other)
	}
	return g.scalar(v)
}

func (g *generator) mutateMap(m, donor map[string]any) any {
	if m == nil {
		return donor
	}
	switch g.rng.IntN(10) {
	case 0:
		m[fmt.Sprintf("x-unknown-%d", g.rng.IntN(5))] = g.unknown(3)
	case 1:
		delete(m, g.key(m))
	case 2:
		if key := g.key(donor); key != "" {
			m[key] = donor[key]
		}
	default: // otherwise, a value at a lower level is changed
		if key := g.key(m); key != "" {
			m[key] = g.mutate(m[key], donor[key])
		}
	}
	return m
}

func (g *generator) mutateList(l, donor []any) any {
	if len(l) == 0 {
		return append(l, donor...)
	}
	i := g.rng.IntN(len(l))
	switch g.rng.IntN(8) {
	case 0:
		return slices.Delete(l, i, i+1)
	case 1:
		return append(l, clone(l[i]))
	case 2:
		slices.Reverse(l)
	case 3:
		return append(l, donor...)
	default:
		var other any
		if len(donor) > 0 {
			other = donor[g.rng.IntN(len(donor))]
		}
		l[i] = g.mutate(l[i], other)
	}
	return l
}

// scalar returns another value, usually of the same type.
func (g *generator) scalar(v any) any {
	if g.rng.IntN(20) == 0 {
		return g.unknown(1)
	}
	if same := g.scalars[fmt.Sprintf("%T", v)]; len(same) > 0 {
		return same[g.rng.IntN(len(same))]
	}
	return v
}

func (g *generator) key(m map[string]any) string {
	if len(m) == 0 {
		return ""
	}
	keys := slices.Sorted(maps.Keys(m))
	return keys[g.rng.IntN(len(keys))]
}

// unknown returns a random value of any type.
func (g *generator) unknown(depth int) any {
	kinds := 9
	if depth == 0 {
		kinds = 7 // only scalars, without maps and lists
	}
	switch g.rng.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return g.rng.IntN(2) == 0
	case 2:
		return g.rng.Int64() - g.rng.Int64()
	case 3:
		return g.rng.NormFloat64() * 1e6
	case 4:
		return ""
	case 5:
		return "ünbekannt\n\"\\\t<>&\u2028 日本"
	case 6:
		return int64(0)
	case 7:
		return []any{g.unknown(depth - 1), g.unknown(depth - 1)}
	}
	return map[string]any{"": g.unknown(depth - 1), "a.b/c[d]": g.unknown(depth - 1)}
}
