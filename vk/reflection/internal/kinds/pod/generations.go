// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strconv"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// generations returns the generations of a pod and of the provider's pod. The provider has observed our generation when
// the ShadowPod is up to date with our pod, the provider's pod is up to date with the ShadowPod, and the provider's
// kubelet has observed that pod. While the node is not ready, the generation counts as not observed, because the
// ShadowPod is not compared.
func (v *podView) generations() content.Generations {
	g := content.Generations{Object: v.local.GetGeneration()}
	if v.current && v.shadow != nil && raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] != "true" && v.followsShadow() {
		g.Copy = v.remote.GetGeneration()
	}
	return g
}

// followsShadow reports whether the provider's pod has the present spec of its ShadowPod. On a provider that runs
// Liqo, no generation is recorded, and the pod is never changed after its creation.
func (v *podView) followsShadow() bool {
	made, noted := raw.Annotations(v.remote.Object)[wire.ShadowPodGenerationAnnotation].(string)
	if !noted {
		return v.shadow.GetGeneration() == 1
	}
	return made == strconv.FormatInt(v.shadow.GetGeneration(), 10)
}
