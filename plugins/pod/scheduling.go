// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// local are the fields that are only meaningful on the consumer.
const local = "nodeName\nnodeSelector\nschedulerName" +
	"\npriority\npriorityClassName\npreemptionPolicy\noverhead" +
	"\nschedulingGates\nworkloadRef\nschedulingGroup" +
	"\n" + hostNetwork

// schedule replaces the consumer's scheduling constraints by the constraints of the offloadingPatch.
func (o *offloading) schedule() {
	o.spec.Remove(local)
	if !o.keepsHostNamespaces() {
		o.spec.Remove("hostPID\nhostIPC")
	}
	if selector := o.patch.Get("nodeSelector"); selector.Len("") > 0 {
		o.spec.Copy("nodeSelector", selector)
	}
	o.setTolerations()
	o.setAffinity()
	o.setRuntimeClass()
	constraints := o.spec.Get("topologySpreadConstraints")
	for i := range constraints.Len("") {
		dropMergedKeys(constraints.At(i), "matchLabelKeys")
	}
}

// setTolerations removes the tolerations of the taints of virtual nodes and cordoned nodes, and appends the
// tolerations from the offloadingPatch without creating duplicates.
func (o *offloading) setTolerations() {
	added := o.patch.Get("tolerations")
	tolerations := o.spec.Get("tolerations")
	for i := tolerations.Len("") - 1; i >= 0; i-- {
		toleration := tolerations.At(i)
		if toleratesVirtualNodes(toleration) || toleration.Is("key", cordonTaint) || contains(added, toleration) {
			tolerations.RemoveAt(i)
		}
	}
	if !added.Exists() {
		return
	}
	if !tolerations.Exists() {
		tolerations = o.spec.SetList("tolerations")
	}
	for i := range added.Len("") {
		tolerations.Copy("-", added.At(i))
	}
}

// cordonTaint is the taint of a cordoned node. Every pod of a DaemonSet tolerates it, which is intended for nodes of
// the consumer. The provider must be able to drain its own nodes.
const cordonTaint = "node.kubernetes.io/unschedulable"

// toleratesVirtualNodes reports whether a toleration tolerates the taint of virtual nodes, whose effect is NoExecute.
func toleratesVirtualNodes(toleration sdk.Node) bool {
	key := toleration.String("key")
	if key != "" && key != wire.VirtualNodeTaint {
		return false
	}
	effect := toleration.String("effect")
	return effect == "" || effect == "NoExecute"
}

// contains reports whether list has an element that equals n.
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

// setRuntimeClass sets the runtime class to the class in the pod's annotation, or else to the pod's own class, or
// else to the class of the offloadingPatch. A class of the pod whose only purpose is to select virtual nodes is
// ignored.
func (o *offloading) setRuntimeClass() {
	const path = "runtimeClassName"
	if class := o.annotation("[" + wire.RemoteRuntimeClassNameAnnotation + "]"); class != "" {
		o.spec.SetString(path, class)
		return
	}
	own := o.spec.String(path)
	if isRuntimeClass(own) {
		return
	}
	if class := o.patch.String(path); isRuntimeClass(class) {
		o.spec.SetString(path, class)
	} else if own != "" {
		o.spec.Remove(path)
	}
}

func isRuntimeClass(name string) bool { return name != "" && name != wire.RuntimeClassName }

// dropMergedKeys removes those keys from a list of label keys that the selector in the same term also has. The
// provider's API server would reject a key in both. Such a key is in both because the consumer's API server merges
// the list into the selector.
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
