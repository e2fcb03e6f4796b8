// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package schema validates the configuration of a plugin with the JSON schema in the plugin's manifest.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Check validates a configuration against a JSON schema of draft 2020-12 or draft 7. A nil config is treated as an empty
// configuration. An empty schema accepts every configuration. Schemas with references are rejected: a cyclic reference
// in a schema from a plugin's author would overflow the stack, and end the host process.
func Check(schema, config map[string]any) (err error) {
	if len(schema) == 0 {
		return nil
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the schema of the configuration cannot be used: %v", cause)
		}
	}()
	resolved, err := resolveSchema(schema)
	if err != nil {
		return fmt.Errorf("the schema of the configuration is invalid, %w", err)
	}
	if config == nil {
		config = map[string]any{}
	}
	if err := resolved.Validate(config); err != nil {
		return fmt.Errorf("the configuration does not match its schema, %w", err)
	}
	return nil
}

func resolveSchema(schema map[string]any) (*jsonschema.Resolved, error) {
	if containsRef(schema) {
		return nil, errors.New("it has a $ref or $dynamicRef: write what it refers to in its place")
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var parsed jsonschema.Schema
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, err
	}
	return parsed.Resolve(nil)
}

// containsRef reports whether a schema contains a $ref. A property that is named "$ref" does not count as a reference.
func containsRef(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			_, text := below.(string)
			if text && (key == "$ref" || key == "$dynamicRef") || containsRef(below) {
				return true
			}
		}
	case []any:
		for _, below := range v {
			if containsRef(below) {
				return true
			}
		}
	}
	return false
}
