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

// decide asks the annotations of one object: that of the policy, and the other one for whether it says the opposite.
func (p Policy) decide(annotations map[string]any) (verdict, error) {
	var asked string
	switch p {
	case Always:
		return verdict{cross: true}, nil
	case AllowList:
		asked = wire.AllowReflectionAnnotation
	case DenyList:
		asked = wire.SkipReflectionAnnotation
	default:
		return verdict{}, &policyError{fmt.Sprintf("policy %q is unknown", p)}
	}
	value, present, err := flag(annotations, asked)
	switch {
	case err != nil:
		return verdict{}, err
	case value && contradictory(annotations):
		return verdict{}, errBothSet
	case p == AllowList:
		return verdict{cross: value, explicit: present, reason: "the policy is AllowList and annotation " + asked + " is not set"}, nil
	}
	return verdict{cross: !value, explicit: present, reason: "annotation " + asked + " is set"}, nil
}

// contradictory tells an object that is to cross and to stay.
func contradictory(annotations map[string]any) bool {
	skip, _, skipErr := flag(annotations, wire.SkipReflectionAnnotation)
	allow, _, allowErr := flag(annotations, wire.AllowReflectionAnnotation)
	return skip && allow && skipErr == nil && allowErr == nil
}

// decideExplicit asks the annotations alone: without any the object crosses.
func decideExplicit(annotations map[string]any) (verdict, error) {
	return DenyList.decideSlice(annotations, func() *unstructured.Unstructured { return nil })
}

// flag reads a boolean annotation: present counts as true, also when empty; "false" in any case takes it back.
func flag(annotations map[string]any, key string) (value, present bool, err error) {
	raw, present := annotations[key]
	if !present {
		return false, false, nil
	}
	text, _ := raw.(string)
	switch strings.ToLower(text) {
	case "", "true":
		return true, true, nil
	case "false":
		return false, true, nil
	default:
		return false, true, &policyError{fmt.Sprintf(`annotation %s is %q, want "true" or "false"; the copy on the provider is left as it is`, key, text)}
	}
}

// decideSlice asks, for an EndpointSlice: its own annotations, whichever policy; then those of its Service; then, when
// there is no Service to ask, the policy on the slice itself. (Liqo: EndpointSlice reflection.)
func (p Policy) decideSlice(slice map[string]any, service func() *unstructured.Unstructured) (verdict, error) {
	skip, skipSet, err := flag(slice, wire.SkipReflectionAnnotation)
	if err != nil {
		return verdict{}, err
	}
	allow, allowSet, err := flag(slice, wire.AllowReflectionAnnotation)
	switch {
	case err != nil:
		return verdict{}, err
	case skipSet && allowSet:
		return verdict{}, errBothSet
	case skipSet:
		return verdict{cross: !skip, explicit: true, reason: "annotation " + wire.SkipReflectionAnnotation + " is set"}, nil
	case allowSet:
		return verdict{cross: allow, explicit: true, reason: "annotation " + wire.AllowReflectionAnnotation + ` is "false"`}, nil
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
