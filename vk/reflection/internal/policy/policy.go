// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy decides by the annotations of an object whether it is reflected.
package policy

import (
	"fmt"
	"strings"

	"github.com/refract-project/refract/api/wire"
)

// Policy decides, by the annotations liqo.io/skip-reflection and liqo.io/allow-reflection, whether an object is
// reflected.
type Policy string

const (
	// DenyList reflects objects unless skip-reflection is set.
	DenyList Policy = "DenyList"
	// AllowList reflects objects only if allow-reflection is set.
	AllowList Policy = "AllowList"
	// Always ignores annotations. It is for kinds with rules of their own. (Liqo: CustomLiqo.)
	Always Policy = "CustomLiqo"
)

// Validate returns an error unless the policy is one of the constants. kind is for the message.
func (p Policy) Validate(kind string) error {
	switch p {
	case DenyList, AllowList, Always:
		return nil
	default:
		return fmt.Errorf("kind %s has the unknown policy %q: use %s or %s", kind, p, DenyList, AllowList)
	}
}

// Error is returned for an invalid annotation. Nothing is written or deleted because of it.
type Error struct{ Problem string }

// Error implements error.
func (e *Error) Error() string { return e.Problem }

var errBothSet = &Error{fmt.Sprintf("annotations %s and %s are both set: keep one; the remote object was left unchanged",
	wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation)}

// Verdict is the decision of a policy.
type Verdict struct {
	Cross    bool
	Explicit bool // an annotation decided, not the absence of one
	Reason   string
}

// Decide evaluates the annotations of one object: the annotation of the policy, and the other one only to find a
// contradiction or an invalid value.
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

// DecideExplicit evaluates only the annotations. An object without them is reflected.
func DecideExplicit(annotations map[string]any) (Verdict, error) {
	return DenyList.DecideSlice(annotations, func() (map[string]any, bool) { return nil, false })
}

// flag is the value of a boolean annotation.
type flag struct{ value, present bool }

// readFlags reads both annotations, regardless of the policy: an invalid one may have been meant to exclude the object.
func readFlags(annotations map[string]any) (skip, allow flag, err error) {
	if skip, err = readFlag(annotations, wire.SkipReflectionAnnotation); err == nil {
		allow, err = readFlag(annotations, wire.AllowReflectionAnnotation)
	}
	return skip, allow, err
}

// readFlag reads a boolean annotation. A present annotation counts as true, also if it is empty. Only "false", in any
// case, sets it to false.
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

// DecideSlice decides for an EndpointSlice, in this order: its own annotations, if one of them is true, regardless of
// the policy; the annotations of its Service; the policy for the slice itself, if there is no Service. (Liqo:
// EndpointSlice reflection.)
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
