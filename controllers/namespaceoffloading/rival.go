// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"fmt"
	"strings"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// findRival returns another namespace that has or requests this remote namespace on the provider, or an empty string if
// there is none. If the provider has accepted only the given namespace, there is no rival.
func (p *provider) findRival(namespace, remoteNamespace string) string {
	if p.mapping == nil {
		return ""
	}
	first, mine := "", p.hasAccepted(namespace, remoteNamespace)
	consider := func(other, name string) {
		if name == remoteNamespace && other != namespace && (!mine || p.hasAccepted(other, remoteNamespace)) && (first == "" || other < first) {
			// The alphabetically first name is used, so that the result is always the same.
			first = other
		}
	}
	for other, name := range p.mapping.Spec.DesiredMapping {
		consider(other, name)
	}
	for other, status := range p.mapping.Status.CurrentMapping {
		consider(other, status.RemoteNamespace)
	}
	return first
}

func (p *provider) hasAccepted(namespace, remoteNamespace string) bool {
	status := p.mapping.Status.CurrentMapping[namespace]
	return status.RemoteNamespace == remoteNamespace && status.Phase == offloading.MappingAccepted
}

// namespacesByRemote returns, for each remote namespace in the map, the namespaces that are mapped to it. There is a
// conflict if there is more than one.
func namespacesByRemote(mapping *offloading.NamespaceMap) map[string][]string {
	found := map[string][]string{}
	for local := range mapping.Spec.DesiredMapping {
		for _, remoteNamespace := range remoteNamespacesOf(mapping, local) {
			found[remoteNamespace] = append(found[remoteNamespace], local)
		}
	}
	for local, status := range mapping.Status.CurrentMapping {
		if _, requested := mapping.Spec.DesiredMapping[local]; !requested {
			found[status.RemoteNamespace] = append(found[status.RemoteNamespace], local)
		}
	}
	return found
}

// remoteNamespacesOf returns the names of the remote namespace in the spec and the status of the map. Usually both
// names are equal.
func remoteNamespacesOf(mapping *offloading.NamespaceMap, namespace string) (names []string) {
	requested, now := mapping.Spec.DesiredMapping[namespace], mapping.Status.CurrentMapping[namespace].RemoteNamespace
	if requested != "" {
		names = append(names, requested)
	}
	if now != "" && now != requested {
		names = append(names, now)
	}
	return names
}

// rivalOf returns another namespace that already has or requests the remote namespace, or "" if there is none, and the
// name of the remote namespace.
func (c *Controller) rivalOf(nso *offloading.NamespaceOffloading, p *provider) (rival, remoteNamespace string) {
	remoteNamespace = p.requestedName(nso.Namespace)
	if remoteNamespace == "" {
		remoteNamespace = c.remoteNamespaceName(nso)
	}
	return p.findRival(nso.Namespace, remoteNamespace), remoteNamespace
}

// describeRivals returns a note about the providers where the remote namespace belongs to another namespace, with the
// remedy.
func (c *Controller) describeRivals(nso *offloading.NamespaceOffloading, providers []*provider) string {
	var notes []string
	for _, p := range providers {
		if !p.isRequired(nso.Namespace) {
			continue
		}
		if rival, remoteNamespace := c.rivalOf(nso, p); rival != "" {
			notes = append(notes, fmt.Sprintf("on %s the remote namespace %s belongs to namespace %s: offload this namespace again with another remote name, or unoffload %s; this one is then offloaded without further action", p.id, remoteNamespace, rival, rival))
		}
	}
	return strings.Join(notes, "; ")
}
