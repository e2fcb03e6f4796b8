// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// nameLabel is the label with a namespace's name. The API server sets it on every namespace.
const nameLabel = "kubernetes.io/metadata.name"

// translateNamespaces makes a namespace selector select remote namespaces of this consumer. It returns the results of
// translatePeer. If the selector selects namespaces by name, the copy lists their remote namespaces. This also applies
// to the operator NotIn, because a namespace that is offloaded later must not be allowed before the policy is
// translated again. servedDNS reports whether a rule for the provider's DNS was added: then a selector that selects
// only kube-system causes no warning.
func (t *translator) translateNamespaces(peer sdk.Node, servedDNS bool) (kept bool, problem string) {
	selector := peer.Get("namespaceSelector")
	if t.isTranslated(selector) {
		return true, ""
	}
	if problem := untranslatable(selector); problem != "" {
		return false, t.refuse(".namespaceSelector", problem, ", which remote namespaces do not have", "Select namespaces by the label "+nameLabel)
	}
	if selectsAll(selector) {
		t.selectRemote(peer)
		return true, ""
	}
	names := t.remoteNames(selector)
	switch {
	case len(names) == 0 && servedDNS:
		return false, ""
	case len(names) == 0:
		return false, t.refuse("", ".namespaceSelector", " selects no namespace that is offloaded there",
			"Offload the namespace, or allow the addresses of its pods with an ipBlock")
	}
	expression := t.selectRemote(peer).SetMap("-")
	expression.SetString("key", nameLabel)
	expression.SetString("operator", "In")
	values := expression.SetList("values")
	for _, name := range names {
		values.SetString("-", name)
	}
	return true, ""
}

// remoteNames returns the remote namespaces of the offloaded namespaces that the selector matches.
func (t *translator) remoteNames(selector sdk.Node) (names []string) {
	remote := t.ctx.Namespaces()
	for _, local := range remote.Keys() {
		if selects(selector, local) {
			names = append(names, remote.Get(local))
		}
	}
	return names
}

// selectRemote makes the peer select all remote namespaces of this consumer, and returns the expressions of the
// selector. The tenant namespace also has the consumer's label, but is excluded, because its pods belong to the
// provider.
func (t *translator) selectRemote(peer sdk.Node) (expressions sdk.Node) {
	selector := peer.SetMap("namespaceSelector")
	selector.SetString(sdk.Concat("matchLabels", sdk.Key(wire.RemoteClusterIDLabel)), t.ctx.LocalClusterID())
	expressions = selector.SetList("matchExpressions")
	own := expressions.SetMap("-")
	own.SetString("key", wire.TenantNamespaceLabel)
	own.SetString("operator", "DoesNotExist")
	return expressions
}

// isTranslated reports whether a selector was created by selectRemote.
func (t *translator) isTranslated(selector sdk.Node) bool {
	expressions := selector.Get("matchExpressions")
	own := expressions.At(0)
	return selector.Len("matchLabels") == 1 && selector.Get("matchLabels").Is(sdk.Key(wire.RemoteClusterIDLabel), t.ctx.LocalClusterID()) &&
		own.Is("key", wire.TenantNamespaceLabel) && own.Is("operator", "DoesNotExist") &&
		expressions.Len("") <= 2 && (expressions.Len("") == 1 || expressions.At(1).Is("key", nameLabel))
}

// untranslatable returns why a selector cannot be translated, as the end of a sentence that begins with the path of the
// selector. It returns "" if the selector can be translated.
func untranslatable(selector sdk.Node) string {
	if field := unknownField(selector, "matchLabels", "matchExpressions"); field != "" {
		return sdk.Concat(" has the unknown field ", field)
	}
	for _, key := range selector.Keys("matchLabels") {
		if key != nameLabel {
			return sdk.Concat(" selects by the label ", key)
		}
	}
	expressions := selector.Get("matchExpressions")
	for i := range expressions.Len("") {
		expression := expressions.At(i)
		if key := expression.String("key"); key != nameLabel {
			return sdk.Concat(" selects by the label ", key)
		}
		if operator := expression.String("operator"); !contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, operator) {
			return sdk.Concat(" has the unknown operator ", operator)
		}
	}
	return ""
}

// selectsAll reports whether the selector selects everything.
func selectsAll(selector sdk.Node) bool {
	expressions := selector.Get("matchExpressions")
	for i := range expressions.Len("") {
		if !expressions.At(i).Is("operator", "Exists") {
			return false
		}
	}
	return selector.Len("matchLabels") == 0
}

// selects reports whether the selector selects the namespace with the given name in this cluster. untranslatable must
// have returned "" for the selector.
func selects(selector sdk.Node, name string) bool {
	if value, restricted := selector.Get("matchLabels").Lookup(sdk.Key(nameLabel)); restricted && value != name {
		return false
	}
	expressions := selector.Get("matchExpressions")
	for i := range expressions.Len("") {
		expression := expressions.At(i)
		listed := lists(expression.Get("values"), name)
		switch expression.String("operator") {
		case "In":
			if !listed {
				return false
			}
		case "NotIn":
			if listed {
				return false
			}
		case "DoesNotExist":
			return false
		}
	}
	return true
}

func lists(values sdk.Node, name string) bool {
	for i := range values.Len("") {
		if values.Is(index(i), name) {
			return true
		}
	}
	return false
}

// index returns the path segment for the element with the index i.
func index(i int) string { return strconv.Itoa(i) }
