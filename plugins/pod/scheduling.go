// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// local is what means something on the consumer alone.
const local = "spec.nodeName\nspec.nodeSelector\nspec.schedulerName" +
	"\nspec.priority\nspec.priorityClassName\nspec.preemptionPolicy\nspec.overhead" +
	"\nspec.schedulingGates\nspec.workloadRef\nspec.schedulingGroup\nspec.ephemeralContainers" +
	"\nspec.hostNetwork\nspec.hostPID\nspec.hostIPC"

// schedule replaces the consumer's scheduling constraints by those that the
// virtual node asks for.
func schedule(ctx sdk.Context, pod sdk.Object) {
	pod.Remove(local)
	patch := ctx.OffloadingPatch()
	if selector := patch.Get("nodeSelector"); selector.Len("") > 0 {
		pod.Copy("spec.nodeSelector", selector)
	}
	setTolerations(pod, patch.Get("tolerations"))
	setAffinity(ctx, pod, patch.Get("affinity.nodeAffinity"))
	setRuntimeClass(pod, patch)
	constraints := pod.Get("spec.topologySpreadConstraints")
	for i := range constraints.Len("") {
		dropMergedKeys(constraints.At(i), "matchLabelKeys")
	}
}

// setTolerations drops what would tolerate the provider's own virtual nodes and
// appends those of the offloadingPatch, each once.
func setTolerations(pod sdk.Object, added sdk.Node) {
	tolerations := pod.Get("spec.tolerations")
	for i := tolerations.Len("") - 1; i >= 0; i-- {
		toleration := tolerations.At(i)
		key := toleration.String("key")
		if key == "" || key == wire.VirtualNodeTaint || contains(added, toleration) {
			tolerations.RemoveAt(i)
		}
	}
	if !added.Exists() {
		return
	}
	if !tolerations.Exists() {
		tolerations = pod.SetList("spec.tolerations")
	}
	for i := range added.Len("") {
		tolerations.Copy("-", added.At(i))
	}
}

// contains reports whether list has an element equal to n.
func contains(list, n sdk.Node) bool {
	if !list.Exists() {
		return false
	}
	text := string(n.JSON(""))
	for i := range list.Len("") {
		if string(list.At(i).JSON("")) == text {
			return true
		}
	}
	return false
}

// setRuntimeClass: the pod's annotation, else its own class, else that of the
// offloadingPatch. The class that only sends pods to virtual nodes is none.
func setRuntimeClass(pod sdk.Object, patch sdk.Node) {
	const path = "spec.runtimeClassName"
	if class := pod.Annotations().Get(wire.RemoteRuntimeClassNameAnnotation); class != "" {
		pod.SetString(path, class)
		return
	}
	if isRuntimeClass(pod.String(path)) {
		return
	}
	if class := patch.String("runtimeClassName"); isRuntimeClass(class) {
		pod.SetString(path, class)
		return
	}
	pod.Remove(path)
}

func isRuntimeClass(name string) bool { return name != "" && name != wire.RuntimeClassName }

// dropMergedKeys removes from a list of label keys those that the selector
// beside it names. The API server refuses a key in both, so one that is in
// both was merged by the consumer's API server: the selector says it already.
func dropMergedKeys(term sdk.Node, list string) {
	keys := term.Get(list)
	if !keys.Exists() {
		return
	}
	expressions := term.Get("labelSelector.matchExpressions")
	for i := keys.Len("") - 1; i >= 0; i-- {
		if selects(expressions, keys.At(i).String("")) {
			keys.RemoveAt(i)
		}
	}
	if keys.Len("") == 0 {
		term.Remove(list)
	}
}

func selects(expressions sdk.Node, key string) bool {
	for i := range expressions.Len("") {
		if expressions.At(i).Is("key", key) {
			return true
		}
	}
	return false
}
