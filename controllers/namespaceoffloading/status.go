// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/remotedata"
)

// writeStatus summarizes the status of all providers, and writes the summary if it has changed.
func (c *Controller) writeStatus(ctx context.Context, nso *offloading.NamespaceOffloading, providers []*provider) error {
	status := c.summarizeStatus(nso, providers)
	if equality.Semantic.DeepEqual(nso.Status, status) {
		return nil
	}
	changed := nso.DeepCopy()
	changed.Status = status
	err := c.client.Status().Patch(ctx, changed, client.MergeFrom(nso))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing status of NamespaceOffloading %s, %w", client.ObjectKeyFromObject(nso), err)
	}
	nso.ResourceVersion, nso.Status = changed.ResourceVersion, status
	return nil
}

func (c *Controller) summarizeStatus(nso *offloading.NamespaceOffloading, providers []*provider) offloading.NamespaceOffloadingStatus {
	status := offloading.NamespaceOffloadingStatus{
		RemoteNamespaceName:        c.remoteNamespaceName(nso),
		ObservedGeneration:         nso.Generation,
		RemoteNamespacesConditions: map[string]offloading.RemoteNamespaceConditions{},
	}
	var required, ready, failed int
	for _, p := range providers {
		conditions, phase := c.conditionsOf(nso, p)
		if len(conditions) == 0 {
			continue
		}
		status.RemoteNamespacesConditions[p.id] = conditions
		if !p.isRequired(nso.Namespace) {
			continue
		}
		required++
		switch phase {
		case offloading.MappingAccepted:
			ready++
		case offloading.MappingCreationLoopBackOff:
			failed++
		}
	}
	status.OffloadingPhase = phaseOf(nso, required, ready, failed)
	return status
}

// phaseOf returns the phase of the offloading. The order of precedence is the same as in Liqo.
func phaseOf(nso *offloading.NamespaceOffloading, required, ready, failed int) offloading.OffloadingPhaseType {
	switch {
	case nso.DeletionTimestamp != nil:
		return offloading.TerminatingOffloadingPhaseType
	case !isValid(&nso.Spec.ClusterSelector):
		return offloading.InvalidClusterSelectorOffloadingPhaseType
	case required == 0:
		return offloading.NoClusterSelectedOffloadingPhaseType
	case ready == required:
		return offloading.ReadyOffloadingPhaseType
	case failed == required:
		return offloading.AllFailedOffloadingPhaseType
	case failed > 0:
		return offloading.SomeFailedOffloadingPhaseType
	}
	return offloading.InProgressOffloadingPhaseType
}

func isValid(clusterSelector *corev1.NodeSelector) bool {
	_, err := newSelector(clusterSelector)
	return err == nil
}

// isRequired reports whether the remote namespace should exist, whether or not it was already requested.
func (p *provider) isRequired(namespace string) bool {
	return p.picked || p.isRequested(namespace) && p.leaves.IsZero()
}

func (p *provider) isRequested(namespace string) bool {
	if p.mapping == nil {
		return false
	}
	_, ok := p.mapping.Spec.DesiredMapping[namespace]
	return ok
}

// requestedName returns the name of the remote namespace, or an empty string if none is requested.
func (p *provider) requestedName(namespace string) string {
	if p.mapping == nil {
		return ""
	}
	return p.mapping.Spec.DesiredMapping[namespace]
}

// conditionsOf returns the conditions and the phase of the remote namespace on one provider. There are no conditions if
// the remote namespace does not exist and will not be created.
func (c *Controller) conditionsOf(nso *offloading.NamespaceOffloading, p *provider) (offloading.RemoteNamespaceConditions, offloading.MappingPhase) {
	var current *offloading.RemoteNamespaceStatus
	if p.mapping != nil {
		if s, ok := p.mapping.Status.CurrentMapping[nso.Namespace]; ok {
			current = &s
		}
	}
	required := p.isRequired(nso.Namespace)
	if nso.DeletionTimestamp != nil && !required && current == nil {
		return nil, ""
	}
	before := nso.Status.RemoteNamespacesConditions[p.id]
	desired := requiredCondition(p.id, required)
	if !p.leaves.IsZero() && p.isRequested(nso.Namespace) {
		desired.Message = fmt.Sprintf("The clusterSelector no longer matches any virtual node of cluster %s. The remote namespace is deleted, with everything in it, at %s; to keep it, change the selector so that it matches again",
			p.id, p.leaves.UTC().Format(time.RFC3339))
	}
	if len(p.unpromised) > 0 {
		desired.Message = "The clusterSelector " + p.describeUnpromised(&nso.Spec.ClusterSelector)
	}
	if p.isHeld() {
		desired.Status, desired.Reason, desired.Message = corev1.ConditionFalse, remotedata.HeldReason, p.describeHeld(nso.Namespace)
	}
	conditions := offloading.RemoteNamespaceConditions{c.setTransitionTime(before, desired)}
	phase := offloading.MappingPhase("")
	if current != nil {
		phase = current.Phase
	}
	if required || current != nil {
		rival, remoteNamespace := c.rivalOf(nso, p)
		contested := required && rival != "" && nso.DeletionTimestamp == nil
		if contested || p.refusal != "" {
			phase = offloading.MappingCreationLoopBackOff
		}
		ready := readyCondition(phase)
		switch {
		case p.refusal != "":
			ready.Message = "The remote namespace is not requested: " + p.refusal
		case contested:
			ready.Message = fmt.Sprintf("The remote namespace %s belongs to namespace %s; see the Events of the NamespaceOffloading for the remedy", remoteNamespace, rival)
		case required && !p.isRequested(nso.Namespace):
			ready.Message = fmt.Sprintf("The namespace is not mapped to cluster %s yet; if this persists, see the Events of the NamespaceOffloading", p.id)
		case current != nil:
			ready.Message = withReason(ready.Message, *current)
		}
		conditions = append(conditions, c.setTransitionTime(before, ready))
	}
	return conditions, phase
}

func requiredCondition(cluster string, required bool) offloading.RemoteNamespaceCondition {
	condition := offloading.RemoteNamespaceCondition{Type: offloading.NamespaceOffloadingRequired}
	if required {
		condition.Status, condition.Reason = corev1.ConditionTrue, wire.ClusterSelectedReason
		condition.Message = "The clusterSelector matches a virtual node of cluster " + cluster
	} else {
		condition.Status, condition.Reason = corev1.ConditionFalse, wire.ClusterNotSelectedReason
		condition.Message = "The clusterSelector matches no virtual node of cluster " + cluster
	}
	return condition
}

func readyCondition(phase offloading.MappingPhase) offloading.RemoteNamespaceCondition {
	condition := offloading.RemoteNamespaceCondition{Type: offloading.NamespaceReady, Status: corev1.ConditionFalse}
	switch phase {
	case offloading.MappingAccepted:
		condition.Status, condition.Reason = corev1.ConditionTrue, wire.NamespaceCreatedReason
		condition.Message = "The remote namespace exists and can be used"
	case offloading.MappingCreationLoopBackOff:
		condition.Reason = wire.CreationLoopBackOffReason
		condition.Message = "The provider does not create the remote namespace; an administrator of the provider sees why in the Events of its NamespaceMap"
	case offloading.MappingTerminating:
		condition.Reason = wire.TerminatingReason
		condition.Message = "The remote namespace is being deleted"
	default:
		condition.Reason = wire.NamespaceCreatingReason
		condition.Message = "Waiting for the provider to create the remote namespace"
	}
	return condition
}

// setTransitionTime sets the transition time of the condition. The time changes only if the status changes.
func (c *Controller) setTransitionTime(before offloading.RemoteNamespaceConditions, condition offloading.RemoteNamespaceCondition) offloading.RemoteNamespaceCondition {
	condition.LastTransitionTime = metav1.NewTime(c.options.Clock.Now()).Rfc3339Copy()
	for i := range before {
		if before[i].Type == condition.Type && before[i].Status == condition.Status {
			condition.LastTransitionTime = before[i].LastTransitionTime
		}
	}
	return condition
}
