// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/progress"
)

// awaitExtended waits until the remote namespaces of all given namespaces exist, and writes the progress to out.
func awaitExtended(ctx context.Context, c client.Client, out io.Writer, namespaces []string, timeout time.Duration) error {
	var problems []error
	for _, namespace := range namespaces {
		problems = append(problems, invocation.AwaitOne(ctx, out, "namespace", namespace, timeout, func(ctx context.Context) (bool, string, error) {
			return isExtended(ctx, c, namespace)
		}))
	}
	return errors.Join(problems...)
}

func isExtended(ctx context.Context, c client.Client, namespace string) (bool, string, error) {
	nso := &offloading.NamespaceOffloading{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, nso); err != nil {
		return false, "", fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	if nso.Status.ObservedGeneration != nso.Generation {
		return false, invocation.NoController, nil
	}
	switch nso.Status.OffloadingPhase {
	case offloading.ReadyOffloadingPhaseType:
		return true, fmt.Sprintf("Ready as %s on %s; new pods run %s", nso.Status.RemoteNamespaceName, strings.Join(SelectedClusters(nso), ", "), podPlaces(nso.Spec.PodOffloadingStrategy)), nil
	case offloading.InvalidClusterSelectorOffloadingPhaseType:
		return false, "", fmt.Errorf("spec.clusterSelector of the NamespaceOffloading in %s is invalid, so nothing was changed: "+
			"set it with --selector; the Events name the term (kubectl -n %[1]s describe namespaceoffloading %s)", namespace, nso.Name)
	case offloading.NoClusterSelectedOffloadingPhaseType:
		return true, "warning: no virtual node is selected, so it is not offloaded " +
			"(compare --selector with spec.labels of the VirtualNodes, and with: " +
			"kubectl get nodes -l " + wire.TypeLabel + "=" + wire.VirtualNodeType + " --show-labels)", nil
	}
	return false, progress.Offloading(nso), nil
}

// podPlaces describes where pods run with the given strategy.
func podPlaces(strategy offloading.PodOffloadingStrategyType) string {
	switch strategy {
	case offloading.LocalPodOffloadingStrategyType:
		return "on this cluster only"
	case offloading.RemotePodOffloadingStrategyType:
		return "there only"
	}
	return "here or there"
}

// SelectedClusters returns the IDs of the clusters to which a namespace is offloaded, sorted.
func SelectedClusters(nso *offloading.NamespaceOffloading) []string {
	var selected []string
	for _, cluster := range slices.Sorted(maps.Keys(nso.Status.RemoteNamespacesConditions)) {
		for _, condition := range nso.Status.RemoteNamespacesConditions[cluster] {
			if condition.Type == offloading.NamespaceOffloadingRequired && condition.Status == corev1.ConditionTrue {
				selected = append(selected, cluster)
			}
		}
	}
	return selected
}
