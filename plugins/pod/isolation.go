// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// isolate refuses a pod that uses namespaces of its host, unless it is annotated.
// The provider decides about processes and IPC that are kept. The network of the
// host is never kept: the pod would have the address of a node, which the network
// between the clusters does not reach, and no NetworkPolicy would hold for it. It fails rather than skips: a pod that runs on the provider goes on, and
// a new one stays Pending. Of a DaemonSet it would otherwise be replaced again
// and again.
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

// hostNamespace returns the first field that puts the pod into a namespace of
// its host, "" for none.
func hostNamespace(spec sdk.Node) string {
	for _, field := range [...]string{hostNetwork, "hostPID", "hostIPC"} {
		if spec.True(field) {
			return field
		}
	}
	return ""
}

// keepsHostNamespaces reports whether the pod asks for the processes and the IPC
// of the provider's node.
func (o *offloading) keepsHostNamespaces() bool {
	return o.annotation("["+wire.HostNamespacesAnnotation+"]") == wire.HostNamespacesKeep
}

// dropsHostNamespaces reports whether the pod, or else the configuration, wants
// it to run without namespaces of its host.
func (o *offloading) dropsHostNamespaces() bool {
	switch value := o.annotation("[" + wire.HostNamespacesAnnotation + "]"); value {
	case "":
		return o.ctx.Config().Is("hostNamespaces", wire.HostNamespacesDrop)
	case wire.HostNamespacesDrop:
		return true
	case wire.HostNamespacesKeep:
		return false // not the network
	default:
		o.ctx.Warn("annotation ", wire.HostNamespacesAnnotation, ": ", value, " is none of ", wire.HostNamespacesDrop, ", ", wire.HostNamespacesKeep)
		return false
	}
}

// leaveHostNetwork removes what a pod has for the network of its host alone.
func (o *offloading) leaveHostNetwork() {
	if !o.spec.True(hostNetwork) {
		return // host ports are the pod's own wish
	}
	o.spec.Remove("containers.*.ports.*.hostPort\ninitContainers.*.ports.*.hostPort")
	const option = "securityContext.windowsOptions.hostProcess"
	if o.spec.Remove(option+"\ncontainers.*."+option+"\ninitContainers.*."+option) > 0 {
		o.ctx.Warn("Windows HostProcess is off: offloaded pods do not use the namespaces of their host")
	}
}
