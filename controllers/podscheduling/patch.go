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

// pod is what the webhook reads. Everything else of the object is never
// decoded, and therefore not lost.
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

func decode(raw []byte) (*pod, error) {
	p := &pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("decoding pod, %w", err)
	}
	return p, nil
}

// isMirror reports whether a kubelet runs the pod already and only shows it.
func (p *pod) isMirror() bool {
	_, mirror := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// patch returns what makes the scheduler put the pod where it may run, nothing
// when it does so already.
func (p *pod) patch(where placement) jsonpatch.Patch {
	if !where.extended {
		return nil
	}
	patch := p.tolerate()
	if where.terms != nil {
		patch = append(patch, p.require(where.terms)...)
	}
	return patch
}

// tolerate lets the pod onto virtual nodes. A pod that tolerates them for a
// time only keeps it so: of several tolerations the shortest counts.
func (p *pod) tolerate() jsonpatch.Patch {
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

// require adds one of the terms to what the pod requires of its node.
func (p *pod) require(terms []term) jsonpatch.Patch {
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
		// No term at all is invalid, and the API server will say so.
		existing := a.NodeAffinity.Required.Terms
		if combined := combine(existing, terms); len(existing) > 0 && !equality.Semantic.DeepEqual(combined, existing) {
			patch.Replace(required+"/nodeSelectorTerms", combined)
		}
	}
	return patch
}
