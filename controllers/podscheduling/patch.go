// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// pod has the fields that the webhook reads. Other fields are never decoded, and therefore not lost.
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

// isMirror reports whether the pod is a mirror pod, which its kubelet already runs.
func (p *pod) isMirror() bool {
	_, mirror := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// patchFor returns the changes that make the scheduler place the pod where it may run. It is empty if the pod needs none.
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

// patchToleration adds the toleration for virtual nodes. A pod with a limited toleration keeps it, because the shortest of
// several tolerations applies.
func (p *pod) patchToleration() jsonpatch.Patch {
	taint := &corev1.Taint{Key: wire.VirtualNodeTaint, Value: wire.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}
	for i := range p.Spec.Tolerations {
		if p.Spec.Tolerations[i].ToleratesTaint(klog.Background(), taint, false) {
			return nil
		}
	}
	ours := map[string]any{"key": taint.Key, "operator": string(corev1.TolerationOpExists), "effect": string(taint.Effect)}
	var patch jsonpatch.Patch
	if len(p.Spec.Tolerations) == 0 {
		patch.Add("/spec/tolerations", []any{ours})
	} else {
		patch.Add("/spec/tolerations/-", ours)
	}
	return patch
}

// patchAffinity adds the terms to the required node affinity of the pod. One of them must match.
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
		// A required affinity without terms is invalid, and rejected by the API server.
		existing := a.NodeAffinity.Required.Terms
		if combined := combineTerms(existing, terms); len(existing) > 0 && !equality.Semantic.DeepEqual(combined, existing) {
			patch.Replace(required+"/nodeSelectorTerms", combined)
		}
	}
	return patch
}
