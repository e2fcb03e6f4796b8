// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for pods. What users know (Liqo: Pod offloading) is:
// verbatim, but for scheduling constraints, the service account and the host's
// namespaces. In detail, on the way to the provider:
//
//   - What binds the pod to the consumer's nodes and scheduler goes: nodeName,
//     nodeSelector, affinity, schedulerName, priority and its class,
//     preemptionPolicy, schedulingGates, workloadRef, schedulingGroup; overhead
//     too, which the provider's runtime class sets. The node selector, node
//     affinity, tolerations and runtime class of the offloadingPatch come in
//     their place (scheduling.go).
//   - Anti-affinity is kept or made by preset (affinity.go). It stands beside
//     the node affinity of the offloadingPatch, both hold.
//   - Tolerations stay, but for those that would let the provider offload the
//     pod again: of the virtual nodes' taint, and of every taint. That of a
//     cordon, which every pod of a DaemonSet has, goes as well.
//   - Label keys that the consumer's API server has merged into a selector are
//     not sent again, which the provider's would refuse.
//   - A pod that uses namespaces of its host is refused, or loses them if it, or
//     the configuration, says so (isolation.go).
//   - Ephemeral containers cross: the virtual kubelet adds them to a pod that
//     runs. hostUsers, os, resourceClaims and pod-level resources cross as they
//     are, and so does every field not named here.
//   - The service account and the way to the API server depend on the mode
//     (apiserver.go, volumes.go, environment.go), and so does what the downward
//     API says of the pod (downward.go).
//
// On the way back the status crosses verbatim, but for what is true on one side
// alone (status.go).
package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:    "pod",
	Version: "1.0.0",
	Kinds:   []string{"Pod"},
	Writes:  []string{"metadata.labels", "metadata.annotations", "spec", "status"},
	ConfigSchema: `{"type":"object","additionalProperties":false,"properties":{` +
		`"hostNamespaces":{"enum":["refuse","drop"],"description":"What becomes of a pod with hostNetwork, hostPID or hostIPC that has no annotation ` +
		wire.HostNamespacesAnnotation + `: it is refused, or runs without them. Default: refuse."},` +
		`"virtualStorageClass":{"type":"string","description":"The consumer's storage class of virtual nodes, ` +
		`which ephemeral volumes do not take across: they get the one that was negotiated. Default: liqo."}}}`,
}, sdk.Outgoing(outgoing), sdk.Incoming(incoming))

func main() {}

// localLabels are of this cluster alone: the mark of offloaded pods, and the
// topology that the API server copies from the virtual node to the pods bound to
// it. The provider's API server keeps labels that it finds.
const localLabels = "metadata.labels[" + wire.OffloadedPodLabel + "]" +
	"\nmetadata.labels[topology.kubernetes.io/zone]\nmetadata.labels[topology.kubernetes.io/region]"

func outgoing(ctx sdk.Context, pod sdk.Object) error {
	if pod.Remove(localLabels) > 0 {
		pod.Labels().Prune()
	}
	sdk.FilterLabels(ctx, pod) // those that pods are spread by are the labels that the provider's pod will have
	o := offloading{
		ctx:         ctx,
		pod:         pod,
		spec:        pod.Get("spec"),
		annotations: pod.Get("metadata.annotations"),
		patch:       ctx.OffloadingPatch(),
	}
	if err := o.isolate(); err != nil {
		return err
	}
	o.schedule()
	err := o.connect()
	// Last: an annotation that does not cross still says how the pod does.
	sdk.FilterAnnotations(ctx, pod)
	return err
}

// offloading is one pod on its way to the provider.
type offloading struct {
	ctx         sdk.Context
	pod         sdk.Object
	spec        sdk.Node
	annotations sdk.Node
	patch       sdk.Node // what the virtual node wants changed
}

// annotation returns the value of an annotation that changes how the pod crosses.
func (o *offloading) annotation(path string) string { return o.annotations.String(path) }
