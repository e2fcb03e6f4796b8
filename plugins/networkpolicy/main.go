// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for NetworkPolicies. A policy is enforced by the cluster
// in which the pods run, so its copy protects the offloaded pods, and no
// others. What it selects is translated to what the provider has of this
// consumer; what cannot be translated allows nothing there, and a Warning says
// so. Rules add up, so an entry that is left out closes, and never opens. In
// detail:
//
//   - Pod selectors, ports and policy types cross as they are: offloaded pods
//     keep their labels. They select the pods of the provider alone: one that
//     runs on this cluster, or on another provider, comes with an address that
//     no pod selector matches (peer.go).
//   - spec.podSelector that depends on a label that is not reflected would
//     leave pods open. The copy selects all pods of the namespace, and allows
//     nothing.
//   - Namespace selectors select remote namespaces of this consumer: all of
//     them, or those that kubernetes.io/metadata.name selects here. Other labels
//     of namespaces do not cross (namespace.go).
//   - A rule that lets pods use the DNS in kube-system lets them use the
//     provider's (dns.go).
//   - Address blocks cross as they are unless the network remaps them
//     (peer.go).
//   - A rule of which no peer is left goes: without peers it would allow all.
//   - An entry with a field that this plugin does not know goes, because that
//     may narrow it.
package main

import (
	"strconv"

	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:    "networkpolicy",
	Version: "1.0.0",
	Kinds:   []string{"NetworkPolicy.networking.k8s.io"},
	Writes:  []string{"metadata.labels", "metadata.annotations", "spec"},
}, sdk.Outgoing(outgoing))

func main() {}

func outgoing(ctx sdk.Context, policy sdk.Object) error {
	if policy.Has("spec") {
		t := translator{ctx: ctx, spec: policy.Get("spec")}
		t.fixTypes()
		if t.selectPods() {
			t.translateRules(direction{"ingress", "from", false})
			t.translateRules(direction{"egress", "to", true})
		}
	}
	sdk.FilterMetadata(ctx, policy)
	return nil
}

// translator changes one policy.
type translator struct {
	ctx  sdk.Context
	spec sdk.Node
}

// direction names the fields of one direction of traffic.
type direction struct {
	rules, peers string
	outbound     bool
}

// fixTypes sets the policy types that are implied, which depend on the rules
// that the policy has here.
func (t *translator) fixTypes() {
	if t.spec.Len("policyTypes") > 0 {
		return
	}
	types := t.spec.SetList("policyTypes")
	types.SetString("-", "Ingress")
	if t.spec.Len("egress") > 0 {
		types.SetString("-", "Egress")
	}
}

// selectPods reports whether the rules may cross: the policy selects the same
// pods there, and has no field that may narrow its rules. Otherwise the copy
// isolates all pods that the policy may select, and allows nothing.
func (t *translator) selectPods() bool {
	field := unknownField(t.spec, "podSelector", "policyTypes", "ingress", "egress")
	problem := t.unselectable("spec.podSelector", t.spec.Get("podSelector"))
	switch {
	case problem != "":
		t.ctx.Warn(problem, ": on cluster ", t.ctx.RemoteClusterID(), " the policy isolates all pods of the namespace and allows nothing. ", labelRemedy)
		t.spec.SetMap("podSelector")
	case field != "":
		t.ctx.Warn("spec.", field, " is not known: on cluster ", t.ctx.RemoteClusterID(), " the policy isolates its pods and allows nothing. ", unknownRemedy)
	default:
		return true
	}
	for _, key := range t.spec.Keys("") {
		if key != "podSelector" && key != "policyTypes" {
			t.spec.Remove(sdk.Key(key))
		}
	}
	return false
}

// Remedies.
const (
	labelRemedy   = "Select by a label that is reflected, or remove it from labelsNotReflected of the VirtualNode"
	unknownRemedy = "Upgrade Refract, or remove the field"
)

func (t *translator) translateRules(d direction) {
	rules := t.spec.Get(d.rules)
	count := rules.Len("")
	for i, n := 0, 0; n < count; n++ {
		if t.translateRule(d, rules.At(i), sdk.Concat("spec.", d.rules, "[", strconv.Itoa(n), "]")) {
			i++
		} else {
			rules.RemoveAt(i)
		}
	}
	if count > 0 && rules.Len("") == 0 {
		t.spec.Remove(d.rules) // as the API server stores it
	}
}

// translateRule changes one rule and reports whether anything is left of it.
// path is its place in the user's policy.
func (t *translator) translateRule(d direction, rule sdk.Node, path string) bool {
	if field := unknownRuleField(d, rule); field != "" {
		t.ctx.Warn(path, ".", field, " is not known: the rule allows nothing on cluster ", t.ctx.RemoteClusterID(), ". ", unknownRemedy)
		return false
	}
	peers := rule.Get(d.peers)
	count := peers.Len("")
	if count == 0 {
		return true // any peer
	}
	left := 0
	for n := range count {
		at := sdk.Concat(path, ".", d.peers, "[", strconv.Itoa(n), "]")
		kept, problem := t.translatePeer(d, rule, peers.At(left), at)
		if problem != "" {
			t.ctx.Warn(at, problem)
		}
		if kept {
			left++
		} else {
			peers.RemoveAt(left)
		}
	}
	return left > 0
}

// unknownRuleField returns a field of a rule, or of its ports, that may narrow
// it and that this plugin does not know.
func unknownRuleField(d direction, rule sdk.Node) string {
	if field := unknownField(rule, d.peers, "ports"); field != "" {
		return field
	}
	ports := rule.Get("ports")
	for i := range ports.Len("") {
		if field := unknownField(ports.At(i), "protocol", "port", "endPort"); field != "" {
			return sdk.Concat("ports[", strconv.Itoa(i), "].", field)
		}
	}
	return ""
}

// unknownField returns a key of the map that is not one of those known, or "".
func unknownField(node sdk.Node, known ...string) string {
	for _, key := range node.Keys("") {
		if !contains(known, key) {
			return key
		}
	}
	return ""
}

func contains(list []string, item string) bool {
	for _, one := range list {
		if one == item {
			return true
		}
	}
	return false
}
