// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"maps"
	"slices"
	"strconv"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// observedGeneration is the name of a field, anywhere in a status, that tells clients which generation of the spec the
// status belongs to. In the status of a copy, it contains a generation of the copy.
const observedGeneration = "observedGeneration"

// Generations translates generations of a copy into generations of the local object.
type Generations struct {
	// Object is the generation of the local object. If it is 0, observedGeneration is removed from the status.
	Object int64
	// Copy is the generation of the copy that corresponds to Object. It is 0 if the copy differs from the desired
	// state, or if this is unknown.
	Copy int64
}

// Translate returns the status of the copy, next, with generations of the local object. If the provider has observed
// the generation Copy, the result contains the generation Object. Otherwise it contains the generation that is in the
// object's present status. next is not modified.
func (g Generations) Translate(next, present map[string]any) map[string]any {
	next, _ = g.fields(next, present)
	return next
}

func (g Generations) fields(next, present map[string]any) (translated map[string]any, changed bool) {
	translated = next
	for key, value := range next {
		made, differs := g.value(key, value, present[key])
		if !differs {
			continue
		}
		if !changed {
			translated, changed = maps.Clone(next), true
		}
		if made == nil {
			delete(translated, key)
		} else {
			translated[key] = made
		}
	}
	return translated, changed
}

func (g Generations) value(key string, next, present any) (translated any, changed bool) {
	switch value := next.(type) {
	case map[string]any:
		return g.fields(value, raw.Map(present))
	case []any:
		had, _ := present.([]any)
		return g.items(value, had)
	}
	if key != observedGeneration {
		return next, false
	}
	translated = g.observed(next, present)
	return translated, translated != next
}

func (g Generations) items(next, present []any) (translated []any, changed bool) {
	translated = next
	for i, item := range next {
		made, differs := g.value("", item, counterpart(next, present, i))
		if !differs {
			continue
		}
		if !changed {
			translated, changed = slices.Clone(next), true
		}
		translated[i] = made
	}
	return translated, changed
}

// counterpart returns the item in another list that corresponds to item i of list: the condition with the same type,
// the item with the same name, or the item with the same index. It returns nil if there is none.
func counterpart(list, other []any, i int) any {
	for _, key := range []string{"type", "name"} {
		name, named := raw.Map(list[i])[key].(string)
		if !named {
			continue
		}
		found := slices.IndexFunc(other, func(item any) bool { return raw.Map(item)[key] == name })
		if found < 0 {
			return nil
		}
		return other[found]
	}
	if len(list) != len(other) {
		return nil
	}
	return other[i]
}

// observed returns the generation of the object that corresponds to a generation of the copy. The result has the type
// of next, because some kinds store the generation as text.
func (g Generations) observed(next, present any) any {
	generation, ok := generationOf(next)
	if !ok {
		return next // next is not a number, so it is not a generation
	}
	if g.Object == 0 {
		return nil
	}
	made := g.Object
	if generation != g.Copy || g.Copy == 0 {
		var known bool
		if made, known = generationOf(present); !known || made < 0 || made > g.Object {
			// No earlier generation is known. The result must be lower than the current generation, so that clients do
			// not take the status for current.
			made = max(0, g.Object-1)
		}
	}
	if _, text := next.(string); text {
		return strconv.FormatInt(made, 10)
	}
	return made
}

func generationOf(value any) (generation int64, ok bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), v == float64(int64(v))
	case string:
		generation, err := strconv.ParseInt(v, 10, 64)
		return generation, err == nil
	}
	return 0, false
}
