// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// placement describes the nodes that may run the pods of a namespace.
type placement struct {
	// extended is true if pods may run on virtual nodes.
	extended bool
	// terms are the terms of the node affinity. A node must match at least one of them. If terms is nil, all nodes
	// match.
	terms []term
}

// placementOf returns the placement of the pods according to the pod offloading strategy of a NamespaceOffloading. The
// strategies have the same meaning as in Liqo. If a requirement of the cluster selector is invalid, the error names it.
func placementOf(spec *offloading.NamespaceOffloadingSpec) (placement, error) {
	selected, err := selectedNodes(&spec.ClusterSelector)
	if err != nil {
		return placement{}, err
	}
	switch spec.PodOffloadingStrategy {
	case offloading.LocalPodOffloadingStrategyType:
		return placement{}, nil
	case offloading.RemotePodOffloadingStrategyType:
		return placement{extended: true, terms: restrictToVirtual(selected)}, nil
	case offloading.LocalAndRemotePodOffloadingStrategyType, "":
		if selected != nil {
			selected = distinctTerms(append(selected, nodeType(corev1.NodeSelectorOpNotIn)))
		}
		return placement{extended: true, terms: selected}, nil
	}
	return placement{}, fmt.Errorf("podOffloadingStrategy: %q is none of Local, Remote and LocalAndRemote", spec.PodOffloadingStrategy)
}

// selectedNodes returns the terms of a cluster selector, or nil if it selects all nodes.
func selectedNodes(selector *corev1.NodeSelector) ([]term, error) {
	if len(selector.NodeSelectorTerms) == 0 {
		return nil, nil
	}
	if err := validateSelector(selector); err != nil {
		return nil, fmt.Errorf("clusterSelector: %w", err)
	}
	raw, err := json.Marshal(selector.NodeSelectorTerms)
	if err != nil {
		return nil, fmt.Errorf("clusterSelector: %w", err)
	}
	var terms []term
	if err := json.Unmarshal(raw, &terms); err != nil {
		return nil, fmt.Errorf("clusterSelector: %w", err)
	}
	return terms, nil
}

// validateSelector rejects selectors that Kubernetes would not accept in a pod.
func validateSelector(selector *corev1.NodeSelector) error {
	for i, t := range selector.NodeSelectorTerms {
		for j, requirement := range t.MatchFields {
			if requirement.Key != metav1.ObjectNameField {
				return fmt.Errorf("nodeSelectorTerms[%d].matchFields[%d].key: %q is not %s", i, j, requirement.Key, metav1.ObjectNameField)
			}
		}
	}
	_, err := nodeaffinity.NewNodeSelector(selector)
	return err
}

// restrictToVirtual restricts the selected nodes to virtual nodes. If all terms are empty, the result selects no nodes,
// like the selector itself.
func restrictToVirtual(selected []term) []term {
	if selected == nil {
		return []term{nodeType(corev1.NodeSelectorOpIn)}
	}
	restricted := make([]term, 0, len(selected))
	for _, t := range selected {
		restricted = append(restricted, t.combineWith(nodeType(corev1.NodeSelectorOpIn)))
	}
	if terms := distinctTerms(restricted); len(terms) > 0 {
		return terms
	}
	return []term{{}}
}

// distinctTerms removes empty and duplicate terms.
func distinctTerms(terms []term) []term {
	kept := []term{}
	for _, t := range terms {
		if !t.isEmpty() && !slices.ContainsFunc(kept, t.isSame) {
			kept = append(kept, t)
		}
	}
	return kept
}

// nodeType returns a term that matches either virtual nodes or all other nodes, depending on the operator.
func nodeType(operator corev1.NodeSelectorOperator) term {
	return term{expressions: []any{
		map[string]any{"key": wire.TypeLabel, "operator": string(operator), "values": []any{wire.VirtualNodeType}},
	}}
}
