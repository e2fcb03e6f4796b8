// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// isolate refuses a pod that uses host namespaces, unless its annotation allows it.
// The provider decides whether host processes and IPC may be kept. The host network
// is never kept: the pod would have the address of a node, which the network between
// the clusters does not reach, and no NetworkPolicy would apply to it. isolate fails
// and does not skip: a pod on the provider keeps running, and a new one stays
// Pending. A pod of a DaemonSet would otherwise be replaced again and again.
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

// hostNamespace returns the first field that puts the pod
// into a namespace of its host, or "" if there is none.
func hostNamespace(spec sdk.Node) string {
	for _, field := range [...]string{hostNetwork, "hostPID", "hostIPC"} {
		if spec.True(field) {
			return field
		}
	}
	return ""
}

// keepsHostNamespaces reports whether the pod's annotation
// requests the processes and the IPC of the provider's node.
func (o *offloading) keepsHostNamespaces() bool {
	return o.annotation("["+wire.HostNamespacesAnnotation+"]") == wire.HostNamespacesKeep
}

// dropsHostNamespaces reports whether the pod, or else the
// configuration, requests that it runs without namespaces of its host.
func (o *offloading) dropsHostNamespaces() bool {
	switch value := o.annotation("[" + wire.HostNamespacesAnnotation + "]"); value {
	case "":
		return o.ctx.Config().Is("hostNamespaces", wire.HostNamespacesDrop)
	case wire.HostNamespacesDrop:
		return true
	case wire.HostNamespacesKeep:
		return false // does not apply to the network
	default:
		o.ctx.Warn("annotation ", wire.HostNamespacesAnnotation, ": ", value, " is none of ", wire.HostNamespacesDrop, ", ", wire.HostNamespacesKeep)
		return false
	}
}

// leaveHostNetwork removes the fields that only apply to a pod in the host network.
func (o *offloading) leaveHostNetwork() {
	if !o.spec.True(hostNetwork) {
		return // host ports are intended if the pod has its own network
	}
	o.spec.Remove("containers.*.ports.*.hostPort\ninitContainers.*.ports.*.hostPort")
	const option = "securityContext.windowsOptions.hostProcess"
	if o.spec.Remove(option+"\ncontainers.*."+option+"\ninitContainers.*."+option) > 0 {
		o.ctx.Warn("Windows HostProcess is off: offloaded pods do not use the namespaces of their host")
	}
}
