// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	helpers "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// A pod may be bound to the node by spec.nodeName, or by a scheduler with an outdated view of the node. A kubelet
// rejects new pods that do not fit: the pod fails with a known reason, and its controller creates another one. Later
// changes to the node do not affect admitted pods.

// rejection is the reason why a kubelet does not admit a pod.
type rejection struct{ reason, message string }

// admitted records the admitted pods of the node with their resources. The zero value is ready for use. It is safe for
// concurrent use.
type admitted struct {
	node atomic.Pointer[corev1.Node] // latest decoded version of the Node

	mu   sync.Mutex
	pods map[queue.Key]taken
	used corev1.ResourceList
}

// taken describes the resources and host ports of a pod.
type taken struct {
	requests corev1.ResourceList
	ports    []corev1.ContainerPort // host ports
}

// admit rejects a new pod that does not fit on the node, and reports whether it has rejected the pod. Every pod is
// checked once, before its ShadowPod is created. When its spec changes, for example by a resize, its resources are
// recorded again.
func (h *Handler) admit(ctx context.Context, w *evaluation.Worker, v *podView) (rejected bool, err error) {
	generation := v.local.GetGeneration()
	if v.state.admitted && v.state.generation == generation {
		return false, nil
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(v.local.Object, pod); err != nil {
		return false, fmt.Errorf("reading the pod, %w", err)
	}
	// A pod that has started or was resized must not be rejected: node stays nil, so that nothing is checked.
	var node *corev1.Node
	if !v.state.admitted && v.shadow == nil && v.remote == nil && v.state.shadow == (asked{}) && pods.Untouched(v.status) {
		node = h.admitted.readNode(h.Settings.Node())
	}
	refusal := reject(pod, node)
	if refusal == nil {
		refusal = h.admitted.take(v.key, pod, node)
	}
	if refusal == nil {
		v.state.admitted, v.state.generation = true, generation
		return false, nil
	}
	h.tellTokens(v, nil)
	h.Events.Warn(v.local, refusal.reason, refusal.message)
	w.Warned = true
	return true, h.PatchStatus(ctx, w, v.local, pods.Reject(v.status, corev1.PodFailed, refusal.reason, "Pod was rejected: "+refusal.message, h.Clock().Now()), Marks{})
}

// readNode returns the decoded Node, or nil while the Node is not known.
func (a *admitted) readNode(node *unstructured.Unstructured) *corev1.Node {
	if node == nil {
		return nil
	}
	if known := a.node.Load(); known != nil && known.ResourceVersion == node.GetResourceVersion() {
		return known
	}
	read := &corev1.Node{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(node.Object, read) != nil {
		return nil
	}
	a.node.Store(read)
	return read
}

// reject checks a pod against the properties of the node, without regard to other pods. It returns nil if the pod fits
// or node is nil.
func reject(pod *corev1.Pod, node *corev1.Node) *rejection {
	if node == nil {
		return nil
	}
	system := node.Labels[corev1.LabelOSStable]
	if wanted := pod.Spec.NodeSelector[corev1.LabelOSStable]; wanted != "" && system != "" && wanted != system {
		return &rejection{"PodOSSelectorNodeLabelDoesNotMatch", fmt.Sprintf("spec.nodeSelector asks for %s=%s, the node has %s", corev1.LabelOSStable, wanted, system)}
	}
	if pod.Spec.OS != nil && system != "" && string(pod.Spec.OS.Name) != system {
		return &rejection{"PodOSNotSupported", fmt.Sprintf("spec.os.name is %s, the node runs %s", pod.Spec.OS.Name, system)}
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err == nil && !matches {
		return &rejection{"NodeAffinity", "Predicate NodeAffinity failed: the node does not match spec.nodeSelector, or the required node affinity in spec.affinity"}
	}
	effect := func(taint *corev1.Taint) bool { return taint.Effect == corev1.TaintEffectNoExecute }
	if taint, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, effect, true); untolerated {
		return &rejection{"TaintToleration", "Predicate TaintToleration failed: the node has the taint " + taint.ToString() + ", which spec.tolerations does not tolerate"}
	}
	return nil
}

// take records a pod as admitted, or returns a rejection if the node lacks resources for the pod or another pod uses
// one of its host ports. If node is nil, the pod is recorded without a check.
func (a *admitted) take(key queue.Key, pod *corev1.Pod, node *corev1.Node) *rejection {
	wanted := taken{requests: helpers.PodRequests(pod, helpers.PodResourcesOptions{}), ports: hostPorts(&pod.Spec)}
	wanted.requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(key)
	if node != nil {
		if refusal := a.lacks(wanted, node); refusal != nil {
			return refusal
		}
	}
	if a.pods == nil {
		a.pods, a.used = map[queue.Key]taken{}, corev1.ResourceList{}
	}
	a.pods[key] = wanted
	for name, quantity := range wanted.requests {
		sum := a.used[name]
		sum.Add(quantity)
		a.used[name] = sum
	}
	return nil
}

// lacks returns a rejection if the node lacks a resource or host port. The caller holds mu.
func (a *admitted) lacks(wanted taken, node *corev1.Node) *rejection {
	for _, name := range slices.Sorted(maps.Keys(wanted.requests)) {
		request, most := wanted.requests[name], node.Status.Allocatable[name]
		if _, known := node.Status.Allocatable[name]; !known || request.IsZero() {
			// The resource is not checked, because the node does not report it yet, or because it belongs to the
			// whole cluster.
			continue
		}
		used := a.used[name]
		sum := used.DeepCopy()
		if sum.Add(request); sum.Cmp(most) > 0 {
			return &rejection{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s", name, request.String(), used.String(), most.String())}
		}
	}
	for _, port := range wanted.ports {
		for key, other := range a.pods {
			if slices.ContainsFunc(other.ports, func(taken corev1.ContainerPort) bool { return collide(port, taken) }) {
				return &rejection{"NodePorts", fmt.Sprintf("Predicate NodePorts failed: pod %s has the host port %d/%s", key, port.HostPort, port.Protocol)}
			}
		}
	}
	return nil
}

// leave removes a pod that was deleted or has finished, so that its resources are free again.
func (a *admitted) leave(key queue.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(key)
}

// drop removes a pod and its resources. The caller holds mu.
func (a *admitted) drop(key queue.Key) {
	for name, quantity := range a.pods[key].requests {
		left := a.used[name]
		left.Sub(quantity)
		a.used[name] = left
	}
	delete(a.pods, key)
}

// collide reports whether two containers cannot have their host ports on the same node.
func collide(a, b corev1.ContainerPort) bool {
	return a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || isAnyIP(a.HostIP) || isAnyIP(b.HostIP))
}

func isAnyIP(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// hostPorts lists the host ports of a pod's containers and sidecars.
func hostPorts(spec *corev1.PodSpec) (ports []corev1.ContainerPort) {
	add := func(container *corev1.Container) {
		for _, port := range container.Ports {
			if port.HostPort > 0 {
				ports = append(ports, port)
			}
		}
	}
	for i := range spec.InitContainers {
		if policy := spec.InitContainers[i].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
			add(&spec.InitContainers[i])
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	return ports
}
