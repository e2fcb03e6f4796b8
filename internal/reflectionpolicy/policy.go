// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reflectionpolicy decides from the annotations of an object whether the object is reflected.
package reflectionpolicy

import (
	"fmt"
	"strings"

	"github.com/refract-project/refract/api/wire"
)

// Policy determines how the annotations liqo.io/skip-reflection and liqo.io/allow-reflection decide whether an object
// is reflected.
type Policy string

const (
	// DenyList reflects an object unless it has the annotation skip-reflection.
	DenyList Policy = "DenyList"
	// AllowList reflects an object only if it has the annotation allow-reflection.
	AllowList Policy = "AllowList"
	// Always ignores the annotations. It is for kinds that have their own rules, and corresponds to Liqo's CustomLiqo.
	Always Policy = "CustomLiqo"
)

// Validate returns an error unless p is one of the constants. The error names the kind.
func (p Policy) Validate(kind string) error {
	switch p {
	case DenyList, AllowList, Always:
		return nil
	default:
		return fmt.Errorf("kind %s has the unknown policy %q: use %s or %s", kind, p, DenyList, AllowList)
	}
}

// Error is returned for an invalid annotation. The object is then neither written nor deleted on the provider.
type Error struct{ Problem string }

// Error implements error.
func (e *Error) Error() string { return e.Problem }

var errBothSet = &Error{fmt.Sprintf("annotations %s and %s are both set: keep one; the remote object was left unchanged",
	wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation)}

// Verdict is the decision about one object.
type Verdict struct {
	Cross    bool
	Explicit bool // an annotation was set that led to this decision
	Reason   string
}

// Decide evaluates the annotations of an object. The policy determines which annotation is decisive. The other
// annotation is read only to detect contradictions and invalid values.
func (p Policy) Decide(annotations map[string]any) (Verdict, error) {
	if p == Always {
		return Verdict{Cross: true}, nil
	}
	skip, allow, err := readFlags(annotations)
	switch {
	case err != nil:
		return Verdict{}, err
	case skip.value && allow.value:
		return Verdict{}, errBothSet
	}
	switch p {
	case AllowList:
		return Verdict{Cross: allow.value, Explicit: allow.present, Reason: "the policy is AllowList and annotation " + wire.AllowReflectionAnnotation + " is not set"}, nil
	case DenyList:
		return Verdict{Cross: !skip.value, Explicit: skip.present, Reason: "annotation " + wire.SkipReflectionAnnotation + " is set"}, nil
	}
	return Verdict{}, &Error{fmt.Sprintf("policy %q is unknown", p)}
}

// DecideExplicit decides by the annotations of an object alone. An object without annotations is reflected.
func DecideExplicit(annotations map[string]any) (Verdict, error) {
	return DenyList.DecideSlice(annotations, func() (map[string]any, bool) { return nil, false })
}

// flag is the parsed value of a boolean annotation.
type flag struct{ value, present bool }

// readFlags reads both annotations, regardless of the policy, because an invalid annotation may have been meant to
// exclude the object.
func readFlags(annotations map[string]any) (skip, allow flag, err error) {
	if skip, err = readFlag(annotations, wire.SkipReflectionAnnotation); err == nil {
		allow, err = readFlag(annotations, wire.AllowReflectionAnnotation)
	}
	return skip, allow, err
}

// readFlag reads a boolean annotation. An empty value means true. Values are not case-sensitive, and any other value
// than true or false is an error.
func readFlag(annotations map[string]any, key string) (flag, error) {
	raw, present := annotations[key]
	if !present {
		return flag{}, nil
	}
	text, _ := raw.(string)
	switch strings.ToLower(text) {
	case "", "true":
		return flag{value: true, present: true}, nil
	case "false":
		return flag{present: true}, nil
	}
	return flag{}, &Error{fmt.Sprintf(`annotation %s is %q, want "true" or "false"; the remote object was left unchanged`, key, text)}
}

// DecideSlice decides whether an EndpointSlice is reflected. An annotation of the slice itself with the value true
// takes precedence, regardless of the policy. Otherwise the annotations of the slice's Service decide. If there is no
// Service, the policy decides as for any other object. This corresponds to Liqo's EndpointSlice reflection.
func (p Policy) DecideSlice(slice map[string]any, service func() (annotations map[string]any, found bool)) (Verdict, error) {
	skip, allow, err := readFlags(slice)
	switch {
	case err != nil:
		return Verdict{}, err
	case skip.value && allow.value:
		return Verdict{}, errBothSet
	case skip.value:
		return Verdict{Explicit: true, Reason: "annotation " + wire.SkipReflectionAnnotation + " is set"}, nil
	case allow.value:
		return Verdict{Cross: true, Explicit: true}, nil
	}
	if annotations, found := service(); found {
		decided, err := p.Decide(annotations)
		decided.Reason += " on its Service"
		return decided, err
	}
	return p.Decide(slice)
}
