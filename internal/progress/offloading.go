// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/remotedata"
)

// Offloading describes the progress of a namespace's offloading: its phase, and the clusters that are not ready yet.
func Offloading(nso *offloading.NamespaceOffloading) string {
	text := string(nso.Status.OffloadingPhase)
	for _, cluster := range slices.Sorted(maps.Keys(nso.Status.RemoteNamespacesConditions)) {
		for _, condition := range nso.Status.RemoteNamespacesConditions[cluster] {
			if condition.Type == offloading.NamespaceReady && condition.Status != corev1.ConditionTrue || condition.Reason == remotedata.HeldReason {
				text += fmt.Sprintf("; %s: %s, %s", cluster, condition.Reason, condition.Message)
			}
		}
	}
	return text
}
