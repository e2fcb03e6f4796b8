// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"hash/maphash"
	"math"
	"math/bits"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Parts makes equal parts of objects one value: the pods of a Deployment differ in little, and a map of one entry takes over 300
// bytes. Cached objects are never modified, so they can share. nil shares nothing. Safe for concurrent use.
type Parts struct {
	mu    sync.Mutex
	seed  maphash.Seed
	known map[uint64]any
	bytes int // of known, roughly
}

const (
	// partsMost bounds, in bytes, what is remembered. With more, everything is forgotten: objects that are there keep sharing,
	// those to come share among themselves.
	partsMost = 4 << 20
	// partMost is the largest part, in bytes, that is worth remembering, textMost the longest string.
	partMost, textMost = 4 << 10, 64
)

// NewParts returns empty Parts.
func NewParts() *Parts { return &Parts{seed: maphash.MakeSeed(), known: map[uint64]any{}} }

// Share replaces parts of an object by equal ones that were met before. The object must not be modified afterwards, but for its
// fields and those of its metadata. (What is unique to an object by nature, such as its uid, is left alone.)
func (p *Parts) Share(object *unstructured.Unstructured) {
	if p == nil || object == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, value := range object.Object {
		switch key {
		case "metadata":
			metadata, _ := value.(map[string]any)
			for _, key := range []string{"labels", "annotations", "ownerReferences", "finalizers", "namespace"} {
				if value, ok := metadata[key]; ok {
					metadata[key], _, _ = p.share(value)
				}
			}
		default:
			object.Object[key], _, _ = p.share(value)
		}
	}
}

// share returns the value or an equal one, its hash, and how many bytes it takes, roughly, with all that is below.
func (p *Parts) share(value any) (shared any, hash uint64, size int) {
	switch v := value.(type) {
	case string:
		hash, size = mix('s', maphash.String(p.seed, v)), 16+len(v)
		if len(v) > textMost {
			return value, hash, size
		}
		return p.one(value, hash, size), hash, size
	case int64:
		return value, mix('i', uint64(v)), 8
	case float64:
		return value, mix('f', math.Float64bits(v)), 8
	case bool:
		if v {
			return value, 3, 0
		}
		return value, 2, 0
	case []any:
		hash, size = 'l', 24+16*len(v)
		own := size
		for n, element := range v {
			below, h, s := p.share(element)
			v[n], hash, size = below, mix(hash, h), size+s
		}
		if size > partMost {
			return value, hash, size
		}
		return p.one(value, hash, own), hash, size
	case map[string]any:
		size = mapSize(len(v))
		own, sum := size, uint64(0)
		for key, element := range v {
			below, h, s := p.share(element)
			v[key] = below
			sum += mix(maphash.String(p.seed, key), h)
			size += s
		}
		hash = mix('m', sum)
		if size > partMost {
			return value, hash, size
		}
		return p.one(value, hash, own), hash, size
	}
	return value, 1, 0
}

// mapSize is what Go takes for a map of n entries: one group of eight slots, or tables of them.
func mapSize(n int) int { return 48 + 264*max(1, (n+6)/7) }

// one returns the value that is known to be equal, or makes this one known.
func (p *Parts) one(value any, hash uint64, size int) any {
	if known, ok := p.known[hash]; ok {
		if identical(known, value) {
			return known
		}
		return value
	}
	if p.bytes > partsMost {
		clear(p.known)
		p.bytes = 0
	}
	p.known[hash] = value
	p.bytes += size + 32
	return value
}

// identical reports whether two values are equal, of the same types throughout.
func identical(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() {
			return true
		}
		for key, value := range a {
			other, ok := b[key]
			if !ok || !identical(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() {
			return true
		}
		for n := range a {
			if !identical(a[n], b[n]) {
				return false
			}
		}
		return true
	case string, int64, float64, bool, nil:
		return a == b
	}
	return false
}

// mix joins two numbers to one, order mattering.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd6e8feb86659fd93)
	return hi ^ lo
}
