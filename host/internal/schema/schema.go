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

// Check validates a configuration with a schema of draft 2020-12 or 7. A nil config counts as an empty configuration.
// An empty schema accepts every configuration. A schema with references is rejected, because the schema is written by
// the plugin's author, and a cyclic reference would overflow the stack of the host, which would end the process.
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

// containsRef reports whether a schema contains a $ref. A property with the name "$ref" does not count.
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
