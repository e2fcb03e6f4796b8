// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"strconv"
	"strings"
)

// Check returns an error unless an object meets a condition: PATH=VALUE, PATH!=VALUE, or PATH~=TEXT, which means that
// the value contains the text.
func Check(object map[string]any, condition string) error {
	at := strings.Index(condition, "=")
	if at < 1 {
		return fmt.Errorf("%q is no PATH=VALUE", condition)
	}
	path, operator, want := condition[:at], "=", condition[at+1:]
	if last := path[at-1]; last == '!' || last == '~' {
		path, operator = path[:at-1], string(last)+"="
	}
	value, err := lookUp(object, path)
	if err != nil {
		return err
	}
	got := ""
	if value != nil {
		got = fmt.Sprint(value)
	}
	if holds := map[string]bool{"=": got == want, "!=": got != want, "~=": strings.Contains(got, want)}[operator]; !holds {
		return fmt.Errorf("%s is %q, want %s%q", path, got, strings.TrimSuffix(operator, "="), want)
	}
	return nil
}

// lookUp returns the value at a path. The package comment describes the syntax of paths.
func lookUp(value any, path string) (any, error) {
	for rest := path; rest != ""; {
		end := strings.IndexAny(rest, ".[/")
		field := rest
		if end >= 0 {
			field = rest[:end]
		}
		fields, isMap := value.(map[string]any)
		if !isMap && value != nil {
			return nil, fmt.Errorf("%s: %s is asked of %v, which has no fields", path, field, value)
		}
		value, rest = fields[field], rest[len(field):]
		if strings.HasPrefix(rest, "[") {
			name, after, closed := strings.Cut(rest[1:], "]")
			if !closed {
				return nil, fmt.Errorf("%s: a bracket is not closed", path)
			}
			value, rest = pick(value, name), after
		}
		if last, ok := strings.CutPrefix(rest, "/"); ok {
			fields, _ := value.(map[string]any)
			return fields[last], nil
		}
		rest = strings.TrimPrefix(rest, ".")
	}
	return value, nil
}

// pick returns the element of a list with the given name or index. It returns nil if there is none.
func pick(list any, name string) any {
	elements, _ := list.([]any)
	if at, err := strconv.Atoi(name); err == nil {
		if at < 0 || at >= len(elements) {
			return nil
		}
		return elements[at]
	}
	for _, element := range elements {
		fields, _ := element.(map[string]any)
		for _, key := range []string{"type", "name", "ip", "key"} {
			if fields[key] == name {
				return element
			}
		}
	}
	return nil
}
