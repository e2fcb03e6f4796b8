// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
)

// Policy decides, by the annotations liqo.io/skip-reflection and liqo.io/allow-reflection, whether an object crosses.
type Policy string

const (
	// DenyList: objects cross unless skip-reflection is set.
	DenyList Policy = "DenyList"
	// AllowList: objects cross only if allow-reflection is set.
	AllowList Policy = "AllowList"
	// Always: annotations are not asked; for kinds with rules of their own. (Liqo: CustomLiqo.)
	Always Policy = "CustomLiqo"
)

func (p Policy) validate(kind string) error {
	switch p {
	case DenyList, AllowList, Always:
		return nil
	default:
		return fmt.Errorf("kind %s has the unknown policy %q: use %s or %s", kind, p, DenyList, AllowList)
	}
}

// policyError is an annotation that cannot be understood. Nothing is written or deleted because of it.
type policyError struct{ problem string }

func (e *policyError) Error() string { return e.problem }

var errBothSet = &policyError{fmt.Sprintf("annotations %s and %s are both set: keep one; the copy on the provider is left as it is",
	wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation)}

// verdict of a policy.
type verdict struct {
	cross    bool
	explicit bool // an annotation said so, not the absence of one
	reason   string
}

// decide asks the annotations of one object: that of the policy, and the other one for whether it says the opposite, or
// nothing that can be understood.
func (p Policy) decide(annotations map[string]any) (verdict, error) {
	if p == Always {
		return verdict{cross: true}, nil
	}
	skip, allow, err := flags(annotations)
	switch {
	case err != nil:
		return verdict{}, err
	case skip.value && allow.value:
		return verdict{}, errBothSet
	}
	switch p {
	case AllowList:
		return verdict{cross: allow.value, explicit: allow.present, reason: "the policy is AllowList and annotation " + wire.AllowReflectionAnnotation + " is not set"}, nil
	case DenyList:
		return verdict{cross: !skip.value, explicit: skip.present, reason: "annotation " + wire.SkipReflectionAnnotation + " is set"}, nil
	}
	return verdict{}, &policyError{fmt.Sprintf("policy %q is unknown", p)}
}

// decideExplicit asks the annotations alone: without any the object crosses.
func decideExplicit(annotations map[string]any) (verdict, error) {
	return DenyList.decideSlice(annotations, func() *unstructured.Unstructured { return nil })
}

// flag is a boolean annotation.
type flag struct{ value, present bool }

// flags reads both annotations, whichever is asked: one that makes no sense may be what was to keep the object at home.
func flags(annotations map[string]any) (skip, allow flag, err error) {
	if skip, err = readFlag(annotations, wire.SkipReflectionAnnotation); err == nil {
		allow, err = readFlag(annotations, wire.AllowReflectionAnnotation)
	}
	return skip, allow, err
}

// readFlag: present counts as true, also when empty; "false" in any case takes it back.
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
	return flag{}, &policyError{fmt.Sprintf(`annotation %s is %q, want "true" or "false"; the copy on the provider is left as it is`, key, text)}
}

// decideSlice asks, for an EndpointSlice: its own annotations, whichever policy, of which only a true one decides; then those
// of its Service; then, when there is no Service to ask, the policy on the slice itself. (Liqo: EndpointSlice reflection.)
func (p Policy) decideSlice(slice map[string]any, service func() *unstructured.Unstructured) (verdict, error) {
	skip, allow, err := flags(slice)
	switch {
	case err != nil:
		return verdict{}, err
	case skip.value && allow.value:
		return verdict{}, errBothSet
	case skip.value:
		return verdict{explicit: true, reason: "annotation " + wire.SkipReflectionAnnotation + " is set"}, nil
	case allow.value:
		return verdict{cross: true, explicit: true}, nil
	}
	if owner := service(); owner != nil {
		decided, err := p.decide(annotationsOf(owner.Object))
		decided.reason += " on its Service"
		return decided, err
	}
	return p.decide(slice)
}

// serviceOf names the Service of an EndpointSlice, "" when it has none.
func serviceOf(slice *unstructured.Unstructured) string {
	name, _ := labelsOf(slice.Object)[discoveryv1.LabelServiceName].(string)
	return name
}

// labelsOf and annotationsOf read the maps as they are cached, without the copy that the accessors make.
func labelsOf(object map[string]any) map[string]any { return metadataMap(object, "labels") }

func annotationsOf(object map[string]any) map[string]any { return metadataMap(object, "annotations") }

func metadataMap(object map[string]any, field string) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	value, _ := metadata[field].(map[string]any)
	return value
}
