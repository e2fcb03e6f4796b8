// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// selector picks virtual nodes by their labels and name, as the scheduler does.
type selector struct {
	// terms is nil if every node is selected.
	terms *nodeaffinity.NodeSelector
}

// newSelector returns the selector for spec. If a requirement is invalid, the error names it.
func newSelector(spec *corev1.NodeSelector) (*selector, error) {
	if len(spec.NodeSelectorTerms) == 0 {
		return &selector{}, nil
	}
	terms, err := nodeaffinity.NewNodeSelector(spec)
	if err != nil {
		return nil, err
	}
	return &selector{terms: terms}, nil
}

func (s *selector) matchesNode(name string, labels map[string]string) bool {
	return s.terms == nil || s.terms.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}
