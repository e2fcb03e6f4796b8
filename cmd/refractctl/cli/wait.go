// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// pollInterval is how often the cluster is asked while waiting.
const pollInterval = 200 * time.Millisecond

// awaitExtended returns when the twins of all namespaces exist, and tells on
// progress how it goes.
func awaitExtended(ctx context.Context, c client.Client, progress io.Writer, namespaces []string, timeout time.Duration) error {
	var problems []error
	for _, namespace := range namespaces {
		problems = append(problems, awaitOne(ctx, progress, namespace, timeout, func(ctx context.Context) (bool, string, error) {
			return extended(ctx, c, namespace)
		}))
	}
	return errors.Join(problems...)
}

// awaitWithdrawn returns when none of the namespaces is extended any more.
func awaitWithdrawn(ctx context.Context, c client.Client, progress io.Writer, namespaces []string, timeout time.Duration) error {
	var problems []error
	for _, namespace := range namespaces {
		problems = append(problems, awaitOne(ctx, progress, namespace, timeout, func(ctx context.Context) (bool, string, error) {
			return withdrawn(ctx, c, namespace)
		}))
	}
	return errors.Join(problems...)
}

// awaitOne asks look until it says done, and prints what it says whenever that
// is news.
func awaitOne(ctx context.Context, progress io.Writer, namespace string, timeout time.Duration, look func(context.Context) (bool, string, error)) error {
	said := ""
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		done, state, err := look(ctx)
		if err == nil && state != said {
			said = state
			fmt.Fprintf(progress, "%s: %s\n", namespace, state)
		}
		return done, err
	})
	if wait.Interrupted(err) && ctx.Err() != nil {
		return fmt.Errorf("namespace %s is not there after %s: %s; the controllers go on (see it with: refractctl info)", namespace, timeout, said)
	}
	return err
}

func extended(ctx context.Context, c client.Client, namespace string) (bool, string, error) {
	nso := &offloading.NamespaceOffloading{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, nso); err != nil {
		return false, "", fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	if nso.Status.ObservedGeneration != nso.Generation {
		return false, "waiting for the controller manager to look at it", nil
	}
	switch nso.Status.OffloadingPhase {
	case offloading.ReadyOffloadingPhaseType:
		return true, fmt.Sprintf("Ready as %s on %s", nso.Status.RemoteNamespaceName, strings.Join(selectedClusters(nso), ", ")), nil
	case offloading.NoClusterSelectedOffloadingPhaseType:
		return true, "warning: no virtual node is selected, so it is extended nowhere yet (kubectl get virtualnodes -A)", nil
	}
	return false, describe(nso), nil
}

func withdrawn(ctx context.Context, c client.Client, namespace string) (bool, string, error) {
	nso := &offloading.NamespaceOffloading{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, nso)
	if apierrors.IsNotFound(err) {
		return true, "on this cluster only", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	return false, describe(nso), nil
}

func selectedClusters(nso *offloading.NamespaceOffloading) []string {
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

// describe names the phase and what is missing on which cluster.
func describe(nso *offloading.NamespaceOffloading) string {
	text := string(nso.Status.OffloadingPhase)
	for _, cluster := range slices.Sorted(maps.Keys(nso.Status.RemoteNamespacesConditions)) {
		for _, condition := range nso.Status.RemoteNamespacesConditions[cluster] {
			if condition.Type == offloading.NamespaceReady && condition.Status != corev1.ConditionTrue {
				text += fmt.Sprintf("; %s: %s, %s", cluster, condition.Reason, condition.Message)
			}
		}
	}
	return text
}
