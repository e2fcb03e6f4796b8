// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errNoNamespace = errors.New("no namespace is named: give names, or --ns-selector")

// nodeOperator: selectors of labels and of nodes name the same operators differently.
func nodeOperator(requirement labels.Requirement) corev1.NodeSelectorOperator {
	switch requirement.Operator() {
	case selection.NotIn, selection.NotEquals:
		return corev1.NodeSelectorOpNotIn
	case selection.Exists:
		return corev1.NodeSelectorOpExists
	case selection.DoesNotExist:
		return corev1.NodeSelectorOpDoesNotExist
	case selection.GreaterThan:
		return corev1.NodeSelectorOpGt
	case selection.LessThan:
		return corev1.NodeSelectorOpLt
	}
	return corev1.NodeSelectorOpIn
}

// chooseNamespaces returns the names, or those that the selector picks.
func chooseNamespaces(ctx context.Context, c client.Client, names []string, selector string) ([]string, error) {
	switch {
	case selector == "" && len(names) == 0:
		return nil, errNoNamespace
	case selector == "":
		return names, nil
	case len(names) > 0:
		return nil, errors.New("give names or --ns-selector, not both")
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("--ns-selector %q: %w", selector, err)
	}
	namespaces := &corev1.NamespaceList{}
	if err := c.List(ctx, namespaces, client.MatchingLabelsSelector{Selector: parsed}); err != nil {
		return nil, fmt.Errorf("listing namespaces, %w", err)
	}
	for i := range namespaces.Items {
		names = append(names, namespaces.Items[i].Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--ns-selector %q picks no namespace", selector)
	}
	return names, nil
}
