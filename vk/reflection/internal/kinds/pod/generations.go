// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strconv"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// generations returns the generations of a pod and of the provider's pod. The provider has observed our generation when
// the ShadowPod has the desired state of our pod, the provider's pod has the desired state of its ShadowPod, and its
// kubelet has observed it. While the node is not ready, the ShadowPod is not compared.
func (v *podView) generations() engine.Generations {
	g := engine.Generations{Object: v.local.GetGeneration()}
	if v.current && v.shadow != nil && raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] != "true" && v.followsShadow() {
		g.Copy = v.remote.GetGeneration()
	}
	return g
}

// followsShadow reports whether the provider's pod has the present spec of its ShadowPod. A provider that runs Liqo
// never changes a pod after its creation, and records no generation.
func (v *podView) followsShadow() bool {
	made, noted := raw.Annotations(v.remote.Object)[wire.ShadowPodGenerationAnnotation].(string)
	if !noted {
		return v.shadow.GetGeneration() == 1
	}
	return made == strconv.FormatInt(v.shadow.GetGeneration(), 10)
}
