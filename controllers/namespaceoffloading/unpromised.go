// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// describeAllUnpromised returns a note about the virtual nodes that the clusterSelector selects only by labels that
// their VirtualNodes do not specify. The note is empty if there are no such nodes.
func describeAllUnpromised(spec *corev1.NodeSelector, providers []*provider) string {
	var notes []string
	for _, p := range providers {
		if len(p.unpromised) > 0 {
			notes = append(notes, "the clusterSelector "+p.describeUnpromised(spec))
		}
	}
	return strings.Join(notes, "; ")
}

// describeUnpromised returns the end of a sentence about the clusterSelector. It contains the first such virtual node
// of the provider, the labels and the remedy.
func (p *provider) describeUnpromised(spec *corev1.NodeSelector) string {
	n := p.unpromised[0]
	return fmt.Sprintf("matches Node %s of cluster %s only by labels that its VirtualNode does not specify (%s), "+
		"which a virtual kubelet could have set: the namespace is not offloaded for these labels. "+
		"If they are correct, set them in spec.labels of VirtualNode %s; otherwise remove them from the Node",
		n.resource.Name, p.id, strings.Join(n.unpromisedKeys(spec), ", "), client.ObjectKeyFromObject(n.resource))
}

// unpromisedKeys returns the keys in the selector whose values differ between the Node and its VirtualNode, sorted.
func (n virtualNode) unpromisedKeys(spec *corev1.NodeSelector) (keys []string) {
	promised := n.promisedLabels()
	for i := range spec.NodeSelectorTerms {
		for j := range spec.NodeSelectorTerms[i].MatchExpressions {
			key := spec.NodeSelectorTerms[i].MatchExpressions[j].Key
			is, ok := n.node.Labels[key]
			if value, specified := promised[key]; is != value || ok != specified {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
