// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// isolate returns an error for a pod that uses host namespaces, unless an annotation of the pod permits it. The
// provider decides whether the pod may keep hostPID and hostIPC. hostNetwork is never kept: the pod would have the
// address of a node, which cannot be reached through the network between the clusters, and NetworkPolicies would not
// apply to it. isolate returns an error instead of skipping the pod, so that a pod that is already on the provider
// keeps running, and a new pod stays Pending. If pods were skipped, a DaemonSet would keep replacing them.
func (o *offloading) isolate() error {
	field := hostNamespace(o.spec)
	if field == "" || field != hostNetwork && o.keepsHostNamespaces() {
		return nil
	}
	if !o.dropsHostNamespaces() {
		return sdk.Fail(sdk.Concat("spec.", field, ": offloaded pods do not use the namespaces of their host. Keep the pod off virtual nodes by a node affinity that excludes the label ",
			wire.TypeLabel, "=", wire.VirtualNodeType, ", or recreate it with the annotation ", wire.HostNamespacesAnnotation, ": ", wire.HostNamespacesDrop, " to run it without, or for hostPID and hostIPC: ", wire.HostNamespacesKeep, ", if the provider allows them (limit host-namespaces)"))
	}
	o.leaveHostNetwork()
	return nil
}

const hostNetwork = "hostNetwork"

// hostNamespace returns the first field of the spec that requests a namespace of the host, or "" if there is none.
func hostNamespace(spec sdk.Node) string {
	for _, field := range [...]string{hostNetwork, "hostPID", "hostIPC"} {
		if spec.True(field) {
			return field
		}
	}
	return ""
}

// keepsHostNamespaces reports whether the pod's annotation requests that hostPID and hostIPC are kept on the provider's
// node.
func (o *offloading) keepsHostNamespaces() bool {
	return o.annotation("["+wire.HostNamespacesAnnotation+"]") == wire.HostNamespacesKeep
}

// dropsHostNamespaces reports whether the pod's annotation requests that the pod runs without namespaces of its host.
// If there is no annotation, the configuration decides.
func (o *offloading) dropsHostNamespaces() bool {
	switch value := o.annotation("[" + wire.HostNamespacesAnnotation + "]"); value {
	case "":
		return o.ctx.Config().Is("hostNamespaces", wire.HostNamespacesDrop)
	case wire.HostNamespacesDrop:
		return true
	case wire.HostNamespacesKeep:
		return false // hostNetwork is never kept
	default:
		o.ctx.Warn("annotation ", wire.HostNamespacesAnnotation, ": ", value, " is none of ", wire.HostNamespacesDrop, ", ", wire.HostNamespacesKeep)
		return false
	}
}

// leaveHostNetwork removes the fields that have a meaning only in the host network.
func (o *offloading) leaveHostNetwork() {
	if !o.spec.True(hostNetwork) {
		return // The pod has its own network, so its host ports are intended and are kept.
	}
	o.spec.Remove("containers.*.ports.*.hostPort\ninitContainers.*.ports.*.hostPort")
	const option = "securityContext.windowsOptions.hostProcess"
	if o.spec.Remove(option+"\ncontainers.*."+option+"\ninitContainers.*."+option) > 0 {
		o.ctx.Warn("Windows HostProcess is off: offloaded pods do not use the namespaces of their host")
	}
}
