// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// nodeOperator converts an operator of a label selector to the operator of a node selector, which has another name.
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

// validNamespaces returns an error if chooseNamespaces cannot process the arguments. It does not access the cluster.
func validNamespaces(names []string, selector string) error {
	switch {
	case selector == "" && len(names) == 0:
		return invocation.UsageError(errors.New("name a namespace, or set --ns-selector"))
	case selector != "" && len(names) > 0:
		return invocation.UsageError(errors.New("use names or --ns-selector, not both"))
	}
	if _, err := labels.Parse(selector); err != nil {
		return invocation.UsageError(fmt.Errorf("--ns-selector %q: %w", selector, err))
	}
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return invocation.UsageError(fmt.Errorf("%q cannot be the name of a namespace: %s", name, problems[0]))
		}
	}
	return nil
}

// chooseNamespaces returns the given names, or the namespaces that match the selector.
func chooseNamespaces(ctx context.Context, c client.Client, names []string, selector string) ([]string, error) {
	if selector == "" {
		return names, nil
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
		return nil, fmt.Errorf("--ns-selector %q matches no namespace", selector)
	}
	return names, nil
}
