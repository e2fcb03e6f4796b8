// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	const schema = `{"type": "object", "required": ["globs"], "properties": {
		"globs": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[a-z*./]+$"}},
		"mode": {"enum": ["soft", "hard"]},
		"n": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
		"one": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
		"$ref": {"type": "string"}
	}, "additionalProperties": {"type": "boolean"}}`
	for name, test := range map[string]struct {
		config map[string]any
		says   string // text that the error must contain, or empty if the configuration is valid
	}{
		"all of it":            {map[string]any{"globs": []any{"a"}, "mode": "soft", "n": int64(3), "one": true, "else": true}, ""},
		"null":                 {map[string]any{"globs": []any{"a"}, "n": nil}, ""},
		"a whole number":       {map[string]any{"globs": []any{"a"}, "n": 2.0}, ""},
		"nothing":              {nil, "globs"},
		"another type":         {map[string]any{"globs": []any{int64(1)}}, "globs"},
		"too few":              {map[string]any{"globs": []any{}}, "minItems"},
		"a pattern":            {map[string]any{"globs": []any{"A"}}, "pattern"},
		"none of the values":   {map[string]any{"globs": []any{"a"}, "mode": "middling"}, "mode"},
		"too little":           {map[string]any{"globs": []any{"a"}, "n": int64(0)}, "minimum"},
		"too much":             {map[string]any{"globs": []any{"a"}, "n": int64(9)}, "maximum"},
		"none of the schemas":  {map[string]any{"globs": []any{"a"}, "one": int64(1)}, "oneOf"},
		"an unknown property":  {map[string]any{"globs": []any{"a"}, "else": "x"}, "boolean"},
		"a property's own ref": {map[string]any{"globs": []any{"a"}, "$ref": "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(parsed(t, schema), test.config)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// TestSchemasThatCannotBeUsed checks that invalid and hostile schemas are rejected with an error.
func TestSchemasThatCannotBeUsed(t *testing.T) {
	for name, schema := range map[string]string{
		"refers to itself":      `{"allOf": [{"$ref": "#"}]}`,
		"refers elsewhere":      `{"properties": {"a": {"$ref": "https://example.com/schema"}}}`,
		"refers dynamically":    `{"items": [{"$dynamicRef": "#x"}]}`,
		"has no such type":      `{"type": 7}`,
		"has a broken pattern":  `{"properties": {"a": {"pattern": "("}}}`,
		"has no such version":   `{"$schema": "https://example.com/own"}`,
		"has a broken keyword":  `{"required": "a"}`,
		"has a property no map": `{"properties": {"a": 5}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(parsed(t, schema), map[string]any{"a": map[string]any{"a": "b"}}); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}

func parsed(t *testing.T, text string) (schema map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &schema))
	return schema
}
