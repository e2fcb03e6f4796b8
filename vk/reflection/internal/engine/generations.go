// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// observedGeneration is the field, anywhere in a status, by which clients know whether the status is about the present spec: as it is
// in the status of the copy, it counts generations of the copy.
const observedGeneration = "observedGeneration"

// Generations translates generations of a copy into those of its object.
type Generations struct {
	// Object is the generation of the object of this cluster, 0 if it has none that a status could name: statuses then name none.
	Object int64
	// Copy is the generation of the copy that has what Object asks for, 0 if the copy has something else or that is not known.
	Copy int64
}

// Translate returns the status of the copy with the generations of the object. One that the provider has observed becomes the object's; in
// place of an earlier one stays what was true before, in the status that is present here. next is not modified.
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

// counterpart returns what stands for item i in another list, nil for nothing: the condition of the same type, the item of the same name,
// or the one at the same place.
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

// observed returns the generation of the object for one of the copy, in the same type: some kinds have it as text.
func (g Generations) observed(next, present any) any {
	generation, ok := generationOf(next)
	if !ok {
		return next // text that is no number
	}
	if g.Object == 0 {
		return nil
	}
	made := g.Object
	if generation != g.Copy || g.Copy == 0 {
		var known bool
		if made, known = generationOf(present); !known || made < 0 || made > g.Object {
			made = max(0, g.Object-1) // no earlier one is known, and a client must not take the status for one of this generation
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

// generations returns those of an object and its copy, after the copy was compared or written. Where a status is no subresource, writing
// it makes another generation of the object, which would have to be written again.
func (r *reflector) generations(w *Worker, local, remote *unstructured.Unstructured) (g Generations) {
	if r.kind.Status.Subresource {
		g.Object = local.GetGeneration()
	}
	if remote.GetGeneration() == w.matched {
		g.Copy = w.matched
	}
	return g
}
