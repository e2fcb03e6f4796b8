// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Acceptance lists the labels that a consumer accepts from its providers, either as KEY, which accepts all values, or
// as KEY=VALUE. A * in a key matches any characters except /. The zero value accepts no labels: the labels of a virtual
// node determine which namespaces and pods select it, so the provider must not choose them.
type Acceptance []string

// ParseAcceptance parses a list of labels. If an item is neither KEY nor KEY=VALUE, the error contains the first such
// item. Empty items are ignored.
func ParseAcceptance(items []string) (Acceptance, error) {
	accepted := Acceptance{}
	for _, item := range items {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		pattern, value, _ := strings.Cut(item, "=")
		key := strings.ReplaceAll(pattern, "*", "x")
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf("%q is not a label: use KEY or KEY=VALUE, such as topology.kubernetes.io/zone or example.com/*", item)
		}
		accepted = append(accepted, item)
	}
	return accepted, nil
}

// AcceptedLabels returns the labels that are accepted by the annotation wire.AcceptedLabelsAnnotation of a VirtualNode.
func AcceptedLabels(vn metav1.Object) (Acceptance, error) {
	accepted, err := ParseAcceptance(strings.Split(vn.GetAnnotations()[wire.AcceptedLabelsAnnotation], ","))
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", wire.AcceptedLabelsAnnotation, err)
	}
	return accepted, nil
}

// Accepts reports whether a provider may offer the label.
func (a Acceptance) Accepts(key, value string) bool {
	return slices.ContainsFunc(a, func(item string) bool {
		pattern, only, limited := strings.Cut(item, "=")
		matches, err := path.Match(pattern, key)
		return err == nil && matches && (!limited || only == value)
	})
}

// Restrict removes labels that are not accepted from labels, and returns the removed labels. Labels in present, which
// the VirtualNode already has, are kept.
func (a Acceptance) Restrict(labels, present map[string]string) (refused map[string]string) {
	refused = map[string]string{}
	maps.DeleteFunc(labels, func(key, value string) bool {
		if has, ok := present[key]; ok && has == value || a.Accepts(key, value) {
			return false
		}
		refused[key] = value
		return true
	})
	return refused
}

// Restrict removes labels that are not accepted from an offer, and returns the removed labels. Labels that the
// VirtualNode already has are kept. Restrict does nothing if the labels of the VirtualNode do not follow the provider.
func (r *Request) Restrict(offer *Offer, accepted Acceptance, present *offloading.VirtualNode) (refused map[string]string) {
	if !r.Follows(Labels) {
		return nil
	}
	refused = accepted.Restrict(offer.Labels, present.Spec.Labels)
	maps.DeleteFunc(refused, func(key, _ string) bool { return r.labels[key] })
	return refused
}

// DescribeRefused returns a message with the labels that are not accepted, and how to accept them.
func DescribeRefused(refused map[string]string, provider string) string {
	const most = 8
	var named []string
	for _, key := range slices.Sorted(maps.Keys(refused)) {
		if len(named) == most {
			named = append(named, fmt.Sprintf("and %d others", len(refused)-most))
			break
		}
		named = append(named, key+"="+refused[key])
	}
	return fmt.Sprintf("labels offered by provider %s were not set, because a clusterSelector could match them: %s; accept those that you trust it with: refractctl peer --accept-label=KEY, or offloading.acceptedOfferLabels in the values of this cluster",
		provider, strings.Join(named, ", "))
}
