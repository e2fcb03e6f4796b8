// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"maps"
	"strings"

	"github.com/refract-project/refract/host"
)

// ContextFor returns the context that a plugin gets for an object: the entries in the file of --context, and defaults
// for missing entries. The default cluster IDs are "home" and "cloud". An outgoing object is in the local namespace,
// and an incoming object in the remote namespace. The name of the other namespace is computed with the mapping
// strategy DefaultName.
func ContextFor(given map[string]any, object map[string]any, hook host.Hook) map[string]any {
	context := map[string]any{"hook": hook.String(), "localClusterID": "home", "remoteClusterID": "cloud"}
	maps.Copy(context, given)
	if _, named := context["nodeName"]; !named {
		context["nodeName"] = context["remoteClusterID"]
	}
	metadata, _ := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	if namespace == "" {
		namespace = "default"
	}
	id, _ := context["localClusterID"].(string)
	suffix := "-" + id
	local, hasLocal := context["localNamespace"].(string)
	remote, hasRemote := context["remoteNamespace"].(string)
	switch {
	case hasLocal && !hasRemote:
		remote = local + suffix
	case hasRemote && !hasLocal:
		local = strings.TrimSuffix(remote, suffix)
	case !hasLocal && !hasRemote && hook == host.Outgoing:
		local, remote = namespace, namespace+suffix
	case !hasLocal && !hasRemote:
		local, remote = strings.TrimSuffix(namespace, suffix), namespace
	}
	context["localNamespace"], context["remoteNamespace"] = local, remote
	return context
}
