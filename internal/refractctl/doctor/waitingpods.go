// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// shownOwners is the maximum number of owners of waiting pods that are listed for each node.
const shownOwners = 10

// checkWaitingPods lists the pods that are bound to virtual nodes but are not offloaded, and would wait forever. An
// example is a pod of a DaemonSet that tolerates every taint, in a namespace that is not offloaded.
func (p *Examination) checkWaitingPods(ctx context.Context, _ *release.Installation) error {
	nodes := &offloading.VirtualNodeList{}
	if err := p.Client.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		pods := &corev1.PodList{}
		if err := p.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": nodes.Items[i].Name}); err != nil {
			return err
		}
		if owners := waitingOwners(pods.Items); len(owners) > 0 {
			p.addFinding("pods of node "+nodes.Items[i].Name, Warning, "not offloaded, and waiting for ever: %s; see the Event ReflectionDisabled of each. If their namespace is not to be offloaded, "+
				"exclude nodes with the label %s=%s in the node affinity of the DaemonSet or Deployment", listOwners(owners), wire.TypeLabel, wire.VirtualNodeType)
		}
	}
	return nil
}

// waitingOwners returns the owners of the waiting pods, with the number of pods of each.
func waitingOwners(pods []corev1.Pod) map[string]int {
	owners := map[string]int{}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Reason != wire.OffloadingBackOffReason || pod.DeletionTimestamp != nil {
			continue
		}
		name := "Pod " + pod.Namespace + "/" + pod.Name
		if owner := metav1.GetControllerOf(pod); owner != nil {
			name = owner.Kind + " " + pod.Namespace + "/" + owner.Name
		}
		owners[name]++
	}
	return owners
}

func listOwners(owners map[string]int) string {
	names := slices.Sorted(maps.Keys(owners))
	shown := make([]string, 0, len(names))
	for _, name := range names[:min(len(names), shownOwners)] {
		if owners[name] > 1 {
			name = fmt.Sprintf("%s (%d pods)", name, owners[name])
		}
		shown = append(shown, name)
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
