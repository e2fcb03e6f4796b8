// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strconv"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// generations returns the generations of a pod and of the provider's. The provider has observed ours when the ShadowPod has what our pod asks
// for, the provider's pod has what its ShadowPod asks for, and its kubelet has observed that. While the node is not ready the ShadowPod is
// not compared.
func (v *podView) generations() engine.Generations {
	g := engine.Generations{Object: v.local.GetGeneration()}
	if v.current && v.shadow != nil && raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] != "true" && v.followsShadow() {
		g.Copy = v.remote.GetGeneration()
	}
	return g
}

// followsShadow reports whether the provider's pod has the present spec of its ShadowPod. A provider that runs Liqo changes no pod after it
// was made, and notes no generation.
func (v *podView) followsShadow() bool {
	made, noted := raw.Annotations(v.remote.Object)[wire.ShadowPodGenerationAnnotation].(string)
	if !noted {
		return v.shadow.GetGeneration() == 1
	}
	return made == strconv.FormatInt(v.shadow.GetGeneration(), 10)
}
