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

// observedGeneration is the field, anywhere in a status, that shows clients whether the status belongs to the present
// spec. In the status of a copy, it is a generation of the copy.
const observedGeneration = "observedGeneration"

// Generations translates generations of a copy into generations of its object.
type Generations struct {
	// Object is the generation of the object of this cluster. It is 0 if a status must not contain it:
	// observedGeneration is then removed.
	Object int64
	// Copy is the generation of the copy that has the desired state of the generation Object, or 0 if the copy differs
	// or this is not known.
	Copy int64
}

// Translate returns the status of the copy with generations of the object. If the provider has observed the generation
// Copy, it becomes Object; otherwise the generation in the present status of the object is kept. next is not modified.
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

// counterpart returns the item of another list that corresponds to item i: the condition of the same type, the item of
// the same name, or the item at the same index. It returns nil if the other list has no such item.
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

// observed returns the generation of the object for a generation of the copy. It keeps the type, because some kinds
// have the generation as text.
func (g Generations) observed(next, present any) any {
	generation, ok := generationOf(next)
	if !ok {
		return next // not a number
	}
	if g.Object == 0 {
		return nil
	}
	made := g.Object
	if generation != g.Copy || g.Copy == 0 {
		var known bool
		if made, known = generationOf(present); !known || made < 0 || made > g.Object {
			// No earlier generation is known, and a client must not conclude that the status belongs to the present
			// one.
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

// generations returns the generations of an object and its copy after the copy was compared or written. Object is 0 for
// kinds without a status subresource: writing the status would create another generation of the object, and so require
// another write.
func (r *reflector) generations(w *Worker, local, remote *unstructured.Unstructured) (g Generations) {
	if r.kind.Status.Subresource {
		g.Object = local.GetGeneration()
	}
	if remote.GetGeneration() == w.matched {
		g.Copy = w.matched
	}
	return g
}
