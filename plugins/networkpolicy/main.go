// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for NetworkPolicies. The cluster that runs the pods enforces a policy, so the copy isolates only
// offloaded pods. Selectors are translated to this consumer's pods and namespaces on the provider. Entries that cannot
// be translated are removed, with a warning. The copy then permits less traffic, because entries of a policy only allow
// traffic. In detail:
//
//   - Pod selectors, ports and policy types are unchanged, because offloaded pods keep their labels. On the provider,
//     no pod selector matches the address of a pod that runs in this cluster or on another provider (peer.go).
//   - If spec.podSelector uses a label that is not reflected, the copy would leave pods without isolation. So the copy
//     selects all pods of the namespace and allows no traffic.
//   - Namespace selectors select remote namespaces of this consumer: all of them, or the remote namespaces of those
//     namespaces that are selected by the label kubernetes.io/metadata.name. Other labels of namespaces are not
//     reflected (namespace.go).
//   - If a rule allows the DNS in kube-system, the copy also allows the DNS of the provider (dns.go).
//   - Address blocks are unchanged unless the network remaps them (peer.go).
//   - A rule without a remaining peer is removed, because a rule without peers allows all traffic.
//   - Entries with unknown fields are removed, because an unknown field may restrict the entry.
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

// translator translates one policy.
type translator struct {
	ctx  sdk.Context
	spec sdk.Node
}

// direction contains the names of the fields for one direction of traffic.
type direction struct {
	rules, peers string
	outbound     bool
}

// fixTypes sets the policy types explicitly. Kubernetes derives missing types from the rules, and rules may be removed
// from the copy.
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

// selectPods reports whether the rules may be reflected. They may if the policy selects the same pods on the provider
// and has no unknown field, which might restrict its rules. If selectPods returns false, the copy isolates all pods
// that the policy might select, and allows no traffic.
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

// Remedies that are used in several warnings.
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
		// API servers do not store empty lists. An empty list is removed, because the copy would otherwise always
		// differ.
		t.spec.Remove(d.rules)
	}
}

// translateRule translates a rule, and reports whether the rule still has a peer. path is the path of the rule in the
// user's policy.
func (t *translator) translateRule(d direction, rule sdk.Node, path string) bool {
	if field := unknownRuleField(d, rule); field != "" {
		t.ctx.Warn(path, ".", field, " is not known: the rule allows nothing on cluster ", t.ctx.RemoteClusterID(), ". ", unknownRemedy)
		return false
	}
	peers := rule.Get(d.peers)
	count := peers.Len("")
	if count == 0 {
		return true // a rule without peers applies to all peers
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

// unknownRuleField returns the name of an unknown field in a rule or its ports, or "" if there is none.
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

// unknownField returns a key of the map that is not in known, or "" if there is none.
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
