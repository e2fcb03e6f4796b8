// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// local lists the fields that have a meaning only on the consumer.
const local = "nodeName\nnodeSelector\nschedulerName" +
	"\npriority\npriorityClassName\npreemptionPolicy\noverhead" +
	"\nschedulingGates\nworkloadRef\nschedulingGroup" +
	"\n" + hostNetwork

// schedule replaces the consumer's scheduling constraints with the constraints in the offloadingPatch.
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

// setTolerations removes the tolerations of the taints of virtual nodes and of cordoned nodes. It appends the
// tolerations in the offloadingPatch, without duplicates.
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

// cordonTaint is the taint of a cordoned node. Every pod of a DaemonSet tolerates it. This is meant for the consumer's
// nodes: the provider must be able to drain its own nodes.
const cordonTaint = "node.kubernetes.io/unschedulable"

// toleratesVirtualNodes reports whether a toleration tolerates the taint of virtual nodes, which has the effect
// NoExecute.
func toleratesVirtualNodes(toleration sdk.Node) bool {
	key := toleration.String("key")
	if key != "" && key != wire.VirtualNodeTaint {
		return false
	}
	effect := toleration.String("effect")
	return effect == "" || effect == "NoExecute"
}

// contains reports whether list contains an element that equals n.
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

// setRuntimeClass sets the runtime class. It is the class in the pod's annotation, or else the pod's own class, or else
// the class in the offloadingPatch. The pod's own class is ignored if its only purpose is to select virtual nodes.
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

// dropMergedKeys removes keys from a list of label keys if the selector in the same term also contains them. The
// consumer's API server has merged the list into the selector, and the provider's API server would reject keys that are
// in both.
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
