// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestTranslateGenerations(t *testing.T) {
	type fields = map[string]any
	conditions := func(generations ...any) []any {
		var list []any
		for i, generation := range generations {
			list = append(list, fields{"type": string(rune('A' + i)), "observedGeneration": generation})
		}
		return list
	}
	for name, tc := range map[string]struct {
		g                   Generations
		next, present, want fields
	}{
		"observed":                    {Generations{4, 9}, fields{"observedGeneration": int64(9)}, nil, fields{"observedGeneration": int64(4)}},
		"earlier, nothing before":     {Generations{4, 9}, fields{"observedGeneration": int64(8)}, nil, fields{"observedGeneration": int64(3)}},
		"earlier, known":              {Generations{4, 9}, fields{"observedGeneration": int64(8)}, fields{"observedGeneration": int64(2)}, fields{"observedGeneration": int64(2)}},
		"was observed and still is":   {Generations{4, 9}, fields{"observedGeneration": int64(8)}, fields{"observedGeneration": int64(4)}, fields{"observedGeneration": int64(4)}},
		"before is of the future":     {Generations{4, 9}, fields{"observedGeneration": int64(8)}, fields{"observedGeneration": int64(5)}, fields{"observedGeneration": int64(3)}},
		"of another copy":             {Generations{4, 0}, fields{"observedGeneration": int64(9)}, nil, fields{"observedGeneration": int64(3)}},
		"zero":                        {Generations{1, 0}, fields{"observedGeneration": int64(0)}, nil, fields{"observedGeneration": int64(0)}},
		"text":                        {Generations{4, 9}, fields{"observedGeneration": "9"}, nil, fields{"observedGeneration": "4"}},
		"text that is no number":      {Generations{4, 9}, fields{"observedGeneration": "6c8f"}, nil, fields{"observedGeneration": "6c8f"}},
		"floating point":              {Generations{4, 9}, fields{"observedGeneration": 9.0}, nil, fields{"observedGeneration": int64(4)}},
		"conditions in another order": {Generations{4, 9}, fields{"conditions": conditions(int64(9), int64(7))}, fields{"conditions": []any{fields{"type": "B", "observedGeneration": int64(1)}}}, fields{"conditions": conditions(int64(4), int64(1))}},
		"nested": {Generations{4, 9}, fields{"parents": []any{fields{"name": "gateway", "conditions": conditions(int64(9))}}}, nil,
			fields{"parents": []any{fields{"name": "gateway", "conditions": conditions(int64(4))}}}},
		"list without names": {Generations{4, 9}, fields{"items": []any{fields{"observedGeneration": int64(7)}}}, fields{"items": []any{fields{"observedGeneration": int64(2)}}},
			fields{"items": []any{fields{"observedGeneration": int64(2)}}}},
		"other fields":       {Generations{4, 9}, fields{"generation": int64(9), "count": int64(9)}, nil, fields{"generation": int64(9), "count": int64(9)}},
		"without generation": {Generations{0, 9}, fields{"phase": "x", "observedGeneration": int64(9)}, nil, fields{"phase": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.DeepCopyJSON(tc.next)
			if diff := cmp.Diff(tc.want, tc.g.Translate(tc.next, tc.present)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tc.next); diff != "" {
				t.Error("the status of the copy was modified: " + diff)
			}
		})
	}
}
