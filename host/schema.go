// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refract-project/refract/host/document"
)

// validateConfig checks a plugin's configuration against the schema in its manifest: type, properties, required,
// additionalProperties, items, enum, minimum and maximum. Other keywords of JSON schema are for editors.
func validateConfig(schema map[string]any, config map[string]any) error {
	if len(schema) == 0 {
		return nil
	}
	if config == nil {
		config = map[string]any{}
	}
	return validate(schema, config, "config")
}

func validate(schema map[string]any, v any, path string) error {
	if err := validateType(schema["type"], v, path); err != nil {
		return err
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.ContainsFunc(enum, func(e any) bool {
		return document.Of(v).Equal(document.Of(e))
	}) {
		return fmt.Errorf("%s is %v, not one of %v", path, v, enum)
	}
	switch v := v.(type) {
	case map[string]any:
		return validateObject(schema, v, path)
	case []any:
		items, ok := schema["items"].(map[string]any)
		for n := 0; ok && n < len(v); n++ {
			if err := validate(items, v[n], fmt.Sprintf("%s[%d]", path, n)); err != nil {
				return err
			}
		}
		return nil
	}
	return validateRange(schema, v, path)
}

func validateObject(schema, v map[string]any, path string) error {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, r := range required {
		if name, _ := r.(string); name != "" {
			if _, ok := v[name]; !ok {
				return fmt.Errorf("%s lacks %s", path, name)
			}
		}
	}
	for _, name := range document.Of(v).Keys(nil) {
		s, ok := properties[name].(map[string]any)
		if !ok {
			switch more := schema["additionalProperties"].(type) {
			case bool:
				if !more {
					return fmt.Errorf("%s has %s, which this plugin does not know", path, name)
				}
			case map[string]any:
				s = more
			}
		}
		if err := validate(s, v[name], path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func validateRange(schema map[string]any, v any, path string) error {
	f, ok := document.Of(v).Float()
	if !ok {
		return nil
	}
	if least, ok := document.Of(schema["minimum"]).Float(); ok && f < least {
		return fmt.Errorf("%s is %v, less than %v", path, v, least)
	}
	if most, ok := document.Of(schema["maximum"]).Float(); ok && f > most {
		return fmt.Errorf("%s is %v, more than %v", path, v, most)
	}
	return nil
}

// validateType takes a type's name or a list of names.
func validateType(types, v any, path string) error {
	switch t := types.(type) {
	case nil:
		return nil
	case string:
		if hasType(t, v) {
			return nil
		}
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok && hasType(name, v) {
				return nil
			}
		}
	default:
		return errors.New("the schema's type is neither a name nor a list of names")
	}
	return fmt.Errorf("%s is of type %s, not %v", path, document.KindOf(v), types)
}

func hasType(name string, v any) bool {
	view := document.Of(v)
	switch name {
	case "object":
		return view.Kind() == document.Map
	case "array":
		return view.Kind() == document.List
	case "string":
		return view.Kind() == document.String
	case "boolean":
		return view.Kind() == document.Bool
	case "null":
		return view.Kind() == document.Null
	case "number":
		return view.Kind() == document.Int || view.Kind() == document.Float
	case "integer":
		_, ok := view.Int()
		return ok
	}
	return false
}
