// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Kind is the JSON type of a value. The numbers of the kinds are part of the plugin ABI.
type Kind uint8

const (
	Absent Kind = iota
	Null
	Bool
	Int
	Float
	String
	Map
	List
)

var kindNames = [...]string{"absent", "null", "bool", "int", "float", "string", "map", "list"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// kindOf returns the kind of a plain value. Values have the types of unstructured objects: JSON decoded into `any`,
// with int64 for whole numbers. int and int32 are also Int, and float32 is also Float. Values of any other Go type
// are Absent, because an object cannot contain them.
func kindOf(v any) Kind {
	switch v.(type) {
	case nil:
		return Null
	case string:
		return String
	case map[string]any:
		return Map
	case []any:
		return List
	case int64, int, int32:
		return Int
	case bool:
		return Bool
	case float64, float32:
		return Float
	}
	return Absent
}
