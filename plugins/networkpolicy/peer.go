// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// translatePeer translates one peer of a rule, and reports whether it is kept. If it is not kept, problem contains the
// reason and the remedy. problem is empty if no warning is needed. path is the path of the peer in the user's policy.
func (t *translator) translatePeer(d direction, rule, peer sdk.Node, path string) (kept bool, problem string) {
	if field := unknownField(peer, "podSelector", "namespaceSelector", "ipBlock"); field != "" {
		return false, t.refuse(".", field, " is not known", unknownRemedy)
	}
	if problem := t.unselectable(".podSelector", peer.Get("podSelector")); problem != "" {
		return false, t.refuse("", "", problem, labelRemedy)
	}
	switch {
	case peer.Has("ipBlock"):
		problem = t.translateBlock(d, peer.Get("ipBlock"), path)
		return problem == "", problem
	case peer.Has("namespaceSelector"):
		servedDNS := d.outbound && t.allowDNS(rule, peer)
		return t.translateNamespaces(peer, servedDNS)
	}
	return true, ""
}

// refuse returns the warning about a removed peer.
func (t *translator) refuse(field, name, problem, remedy string) string {
	return sdk.Concat(field, name, problem, ": the peer is not allowed on cluster ", t.ctx.RemoteClusterID(), ". ", remedy)
}

// translateBlock translates addresses to the addresses that the provider uses. If this is not possible, it returns the
// reason, and otherwise "". A block without a translation must not be allowed, because it may contain other machines on
// the provider. If only an exception of an egress block has no translation, the block is kept with the exception
// unchanged. Otherwise pods would lose access to the Internet. The addresses that are no longer excluded belong to pods
// of the two clusters.
func (t *translator) translateBlock(d direction, block sdk.Node, path string) string {
	if field := unknownField(block, "cidr", "except"); field != "" {
		return t.refuse(".ipBlock.", field, " is not known", unknownRemedy)
	}
	cidr := block.String("cidr")
	mapped, ok := t.ctx.RemapIP(cidr)
	if !ok {
		return t.unmapped(".ipBlock.cidr ", cidr)
	}
	block.SetString("cidr", mapped)
	exceptions := block.Get("except")
	for i := range exceptions.Len("") {
		exception := exceptions.String(index(i))
		mapped, ok := t.ctx.RemapIP(exception)
		switch {
		case ok:
			exceptions.SetString(index(i), mapped)
		case d.outbound:
			t.ctx.Warn(path, ".ipBlock.except ", exception, " overlaps addresses of pods that the network between the clusters remaps: pods on cluster ",
				t.ctx.RemoteClusterID(), " may reach the remapped ones. Except those addresses, too")
		default:
			return t.unmapped(".ipBlock.except ", exception)
		}
	}
	return ""
}

func (t *translator) unmapped(field, cidr string) string {
	return t.refuse(field, cidr, " overlaps addresses of pods that the network between the clusters remaps, and cannot be translated",
		"Use blocks that lie within the pod range of that cluster, or outside of both")
}

// unselectable returns why a selector does not select the same pods on the provider as in this cluster, or "" if it
// does. The selector may use a label that offloaded pods do not have, or contain an unknown field.
func (t *translator) unselectable(path string, selector sdk.Node) string {
	if field := unknownField(selector, "matchLabels", "matchExpressions"); field != "" {
		return sdk.Concat(path, ".", field, " is not known")
	}
	for _, key := range selector.Keys("matchLabels") {
		if !t.isReflected(key) {
			return missingLabel(path, key)
		}
	}
	expressions := selector.Get("matchExpressions")
	for i := range expressions.Len("") {
		if key := expressions.At(i).String("key"); !t.isReflected(key) {
			return missingLabel(path, key)
		}
	}
	return ""
}

func missingLabel(path, key string) string {
	return sdk.Concat(path, " selects by the label ", key, ", which offloaded pods do not have")
}

// isReflected reports whether pods also have the label on the provider.
func (t *translator) isReflected(key string) bool {
	if key == wire.OffloadedPodLabel || key == wire.RemoteUnavailableLabel {
		return false
	}
	dropped := t.ctx.OffloadingPatch().Get("labelsNotReflected")
	for i := range dropped.Len("") {
		if sdk.Match(dropped.String(index(i)), key) {
			return false
		}
	}
	return true
}
