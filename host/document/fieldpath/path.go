// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"strconv"
	"strings"
)

// MaxBytes is the maximum length of a path.
const MaxBytes = 1024

// Segment is one step of a Path: a position in a list if Index >= 0, otherwise a key of a map.
type Segment struct {
	Key   string
	Index int
}

// Path is the sequence of segments from the object's root to a node.
type Path []Segment

// String returns the path in the syntax of plugins: `spec.ports[0].name`,
// `metadata.annotations[liqo.io/skip-reflection]`.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.Index >= 0:
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		case plainKey(s.Key):
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Key)
		default:
			b.WriteString("[" + strings.ReplaceAll(s.Key, "]", "]]") + "]")
		}
	}
	return b.String()
}

func plainKey(k string) bool {
	return k != "" && k != "*" && k != "-" && !strings.ContainsAny(k, ".[]\n/")
}

// Parse parses a path, for example an entry of `writes` in a manifest. Every segment becomes a key. In such an
// entry, the key `*` matches any key or index.
func Parse(path string) (Path, error) {
	var out Path
	for s := (scanner{path: path}); !s.isDone(); {
		if !s.scanSegment() {
			return nil, s.pathError()
		}
		out = append(out, Segment{Key: strings.Clone(s.segmentText()), Index: -1})
	}
	return out, nil
}

// Check returns an error if a path is too long.
func Check(path string) error {
	if len(path) > MaxBytes {
		return newError(path, "longer than 1024 bytes")
	}
	return nil
}
