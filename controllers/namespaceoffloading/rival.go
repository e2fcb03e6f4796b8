// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"fmt"
	"strings"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// rival returns another namespace that is to have this twin on the provider, or
// still has it; "" when there is none. Whoever of them alone the provider has
// accepted has no rivals: the twin is known to be its.
func (p *provider) rival(namespace, twin string) string {
	if p.mapping == nil {
		return ""
	}
	first, mine := "", p.accepted(namespace, twin)
	consider := func(other, name string) {
		if name == twin && other != namespace && (!mine || p.accepted(other, twin)) && (first == "" || other < first) {
			first = other // always the same one
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

func (p *provider) accepted(namespace, twin string) bool {
	return p.mapping.Status.CurrentMapping[namespace] == offloading.RemoteNamespaceStatus{RemoteNamespace: twin, Phase: offloading.MappingAccepted}
}

// namesakes returns, for each twin of the map, the namespaces that it is given
// to; more than one of them is one too many.
func namesakes(mapping *offloading.NamespaceMap) map[string][]string {
	found := map[string][]string{}
	for local := range mapping.Spec.DesiredMapping {
		for _, twin := range twinsOf(mapping, local) {
			found[twin] = append(found[twin], local)
		}
	}
	for local, status := range mapping.Status.CurrentMapping {
		if _, wished := mapping.Spec.DesiredMapping[local]; !wished {
			found[status.RemoteNamespace] = append(found[status.RemoteNamespace], local)
		}
	}
	return found
}

// twinsOf returns the names that the map gives the twin of the namespace: in
// general one.
func twinsOf(mapping *offloading.NamespaceMap, namespace string) (names []string) {
	wished, now := mapping.Spec.DesiredMapping[namespace], mapping.Status.CurrentMapping[namespace].RemoteNamespace
	if wished != "" {
		names = append(names, wished)
	}
	if now != "" && now != wished {
		names = append(names, now)
	}
	return names
}

// rivalOf returns who keeps the namespace from its twin, and the twin's name.
func (c *Controller) rivalOf(nso *offloading.NamespaceOffloading, p *provider) (rival, twin string) {
	twin = p.wished(nso.Namespace)
	if twin == "" {
		twin = c.twinName(nso)
	}
	return p.rival(nso.Namespace, twin), twin
}

// rivalry says on which providers the twin is another namespace's, and what to
// do about it.
func (c *Controller) rivalry(nso *offloading.NamespaceOffloading, providers []*provider) string {
	var notes []string
	for _, p := range providers {
		if !p.requires(nso.Namespace) {
			continue
		}
		if rival, twin := c.rivalOf(nso, p); rival != "" {
			notes = append(notes, fmt.Sprintf("on %s the remote namespace %s is that of namespace %s: offload this namespace again with another name for it, or unoffload %s, and this one follows by itself", p.id, twin, rival, rival))
		}
	}
	return strings.Join(notes, "; ")
}
