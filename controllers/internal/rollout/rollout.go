// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout contains what the controllers that run Deployments share.
package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// creatingReason is the reason of a container that waits for its image and its volumes.
const creatingReason = "ContainerCreating"

// creationGrace is how long the containers of a pod may be created without being reported. With a shorter period, pods
// whose images are still being pulled are reported.
const creationGrace = time.Minute

// HashSpec returns a hash of the JSON form of a spec. The hash of an unchanged spec may change when a new version of
// its type adds a field.
func HashSpec(spec any) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encoding a spec, %w", err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text)
	return strconv.FormatUint(sum.Sum64(), 36), nil
}

// FindProblem returns the reason why the pods of a Deployment do not become ready. It is read from the status of the pods or, if they show
// no reason, from the status of the Deployment. It is empty if neither shows a reason.
func FindProblem(ctx context.Context, live client.Reader, deployment *appsv1.Deployment) (string, error) {
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.InNamespace(deployment.Namespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels)); err != nil {
		return "", fmt.Errorf("listing the pods of Deployment %s, %w", client.ObjectKeyFromObject(deployment), err)
	}
	for i := range pods.Items {
		for _, status := range pods.Items[i].Status.ContainerStatuses {
			waiting := status.State.Waiting
			switch {
			case waiting == nil:
			case waiting.Reason == creatingReason && time.Since(pods.Items[i].CreationTimestamp.Time) > creationGrace:
				const text = "pod %s: its containers are not created yet, for example because a volume cannot be mounted: see its Events"
				return fmt.Sprintf(text, pods.Items[i].Name), nil
			case waiting.Reason != creatingReason:
				text := fmt.Sprintf("pod %s: %s: %s", pods.Items[i].Name, waiting.Reason, waiting.Message)
				return strings.TrimSuffix(text, ": ") + describeLastEnd(status), nil
			}
		}
		for _, scheduled := range pods.Items[i].Status.Conditions {
			if scheduled.Type == corev1.PodScheduled && scheduled.Status == corev1.ConditionFalse {
				return fmt.Sprintf("pod %s: %s", pods.Items[i].Name, scheduled.Message), nil
			}
		}
	}
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return fmt.Sprintf("%s: %s", condition.Reason, condition.Message), nil
		}
	}
	return "", nil
}

// describeLastEnd returns the last line of the message with which the container has ended before, for the end of a sentence. It is empty if
// there is none.
func describeLastEnd(status corev1.ContainerStatus) string {
	ended := status.LastTerminationState.Terminated
	if ended == nil || strings.TrimSpace(ended.Message) == "" {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
	return ": " + strings.TrimSpace(lines[len(lines)-1])
}
