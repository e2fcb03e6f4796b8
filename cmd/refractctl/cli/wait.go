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
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/remotedata"
)

// awaitExtended waits until the remote namespaces of all given namespaces exist, and writes the progress to out.
func awaitExtended(ctx context.Context, c client.Client, out io.Writer, namespaces []string, timeout time.Duration) error {
	var problems []error
	for _, namespace := range namespaces {
		problems = append(problems, awaitOne(ctx, out, "namespace", namespace, timeout, func(ctx context.Context) (bool, string, error) {
			return isExtended(ctx, c, namespace)
		}))
	}
	return errors.Join(problems...)
}

// attemptEach calls do for each name, and returns the names that succeeded.
func attemptEach(names []string, do func(name string) error) ([]string, error) {
	var done []string
	var problems []error
	for _, name := range names {
		if err := do(name); err != nil {
			problems = append(problems, err)
		} else {
			done = append(done, name)
		}
	}
	return done, errors.Join(problems...)
}

// mustExist returns an error if the namespace does not exist. Otherwise, a misspelled name would look like a namespace
// without anything to do.
func mustExist(ctx context.Context, c client.Client, namespace string) error {
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("getting namespace %s, %w", namespace, err)
	}
	return nil
}

// noController is the state that is shown until a controller has reconciled an object.
const noController = "waiting for the controller manager of this cluster"

// awaitOne calls look until it returns true for the object with the given kind and name, and prints the state of the
// object whenever it changes. It keeps waiting while an API server is unavailable.
func awaitOne(ctx context.Context, out io.Writer, kind, name string, timeout time.Duration, look func(context.Context) (bool, string, error)) error {
	said := ""
	err := progress.Poll(ctx, func(ctx context.Context) (bool, error) {
		done, state, err := look(ctx)
		if cmdutil.Away(err) && ctx.Err() == nil {
			said = "waiting for the API server, " + err.Error()
		}
		if err == nil && state != said {
			said = state
			writeWaiting(out, name, state)
		}
		return done, err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if said == noController {
			said += ", which does not answer (does it run?)"
		}
		if said == "" {
			said = err.Error()
		}
		return withCode(exitTimedOut, fmt.Errorf("%s %s: not done after %s: %s; the controllers continue (check with: refractctl info, or set a longer --timeout)", kind, name, timeout, said))
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: no longer waiting: %s; the controllers continue (check with: refractctl info)", kind, name, said)
	}
	return err
}

func isExtended(ctx context.Context, c client.Client, namespace string) (bool, string, error) {
	nso := &offloading.NamespaceOffloading{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, nso); err != nil {
		return false, "", fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	if nso.Status.ObservedGeneration != nso.Generation {
		return false, noController, nil
	}
	switch nso.Status.OffloadingPhase {
	case offloading.ReadyOffloadingPhaseType:
		return true, fmt.Sprintf("Ready as %s on %s; new pods run %s", nso.Status.RemoteNamespaceName, strings.Join(selectedClusters(nso), ", "), podPlaces(nso.Spec.PodOffloadingStrategy)), nil
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

func (u *unoffloading) isWithdrawn(ctx context.Context, c client.Client, namespace string) (bool, string, error) {
	nso := &offloading.NamespaceOffloading{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, nso)
	if apierrors.IsNotFound(err) {
		return true, "on this cluster only", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	if nso.DeletionTimestamp != nil && !u.deleteData {
		if err := remotedata.RefuseHeld(ctx, c, offloading.NamespaceOffloadingKind, namespace, nso.Name, nso.DeletionTimestamp.Time, confirmFlag); err != nil {
			return false, "", fmt.Errorf("%s: %w", namespace, err)
		}
	}
	if nso.Status.OffloadingPhase != offloading.TerminatingOffloadingPhaseType {
		return false, noController, nil
	}
	return false, progress.Offloading(nso), nil
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
