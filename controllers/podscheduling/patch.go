// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// pod contains the fields of a pod that the webhook reads. The other fields are not decoded, so that unknown fields
// cannot get lost.
type pod struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		RuntimeClassName string              `json:"runtimeClassName"`
		Tolerations      []corev1.Toleration `json:"tolerations"`
		Affinity         *struct {
			NodeAffinity *struct {
				Required *struct {
					Terms []term `json:"nodeSelectorTerms"`
				} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
			} `json:"nodeAffinity"`
		} `json:"affinity"`
	} `json:"spec"`
}

func decodePod(raw []byte) (*pod, error) {
	p := &pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("decoding pod, %w", err)
	}
	return p, nil
}

// isMirror reports whether the pod is a mirror pod, i.e. represents a static pod that a kubelet already runs.
func (p *pod) isMirror() bool {
	_, mirror := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// patchFor returns a patch that makes the scheduler place the pod on one of the permitted nodes. The patch is empty if
// no change is needed.
func (p *pod) patchFor(where placement) jsonpatch.Patch {
	if !where.extended {
		return nil
	}
	patch := p.patchToleration()
	if where.terms != nil {
		patch = append(patch, p.patchAffinity(where.terms)...)
	}
	return patch
}

// patchToleration adds the toleration for virtual nodes, unless the pod already tolerates them. If it does so only for
// a limited time, another toleration would have no effect, because the shortest time applies.
func (p *pod) patchToleration() jsonpatch.Patch {
	taint := &corev1.Taint{Key: wire.VirtualNodeTaint, Value: wire.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}
	for i := range p.Spec.Tolerations {
		if p.Spec.Tolerations[i].ToleratesTaint(klog.Background(), taint, false) {
			return nil
		}
	}
	return p.restoreToleration()
}

// hasToleration reports whether the pod has the toleration that restoreToleration adds.
func (p *pod) hasToleration() bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == wire.VirtualNodeTaint && t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds == nil
	})
}

// restoreToleration adds the toleration for virtual nodes to the pod's tolerations.
func (p *pod) restoreToleration() (patch jsonpatch.Patch) {
	ours := map[string]any{"key": wire.VirtualNodeTaint, "operator": string(corev1.TolerationOpExists), "effect": string(corev1.TaintEffectNoExecute)}
	if len(p.Spec.Tolerations) == 0 {
		patch.Add("/spec/tolerations", []any{ours})
	} else {
		patch.Add("/spec/tolerations/-", ours)
	}
	return patch
}

// patchAffinity adds terms to the pod's required node affinity. A node must match at least one of them.
func (p *pod) patchAffinity(terms []term) jsonpatch.Patch {
	const affinity = "/spec/affinity"
	const nodes = affinity + "/nodeAffinity"
	const required = nodes + "/requiredDuringSchedulingIgnoredDuringExecution"
	selector := map[string]any{"nodeSelectorTerms": terms}
	var patch jsonpatch.Patch
	switch a := p.Spec.Affinity; {
	case a == nil:
		patch.Add(affinity, map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": selector}})
	case a.NodeAffinity == nil:
		patch.Add(nodes, map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": selector})
	case a.NodeAffinity.Required == nil:
		patch.Add(required, selector)
	default:
		// A required affinity without terms is not changed, because the API server rejects it as invalid.
		existing := a.NodeAffinity.Required.Terms
		if combined := combineTerms(existing, terms); len(existing) > 0 && !equality.Semantic.DeepEqual(combined, existing) {
			patch.Replace(required+"/nodeSelectorTerms", combined)
		}
	}
	return patch
}
