// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for pods. They cross unchanged (Liqo: Pod
// offloading), except for scheduling constraints, the service account
// and the host's namespaces. In detail, on the way to the provider:
//
//   - Fields that bind the pod to the consumer's nodes and scheduler are
//     removed: nodeName, nodeSelector, affinity, schedulerName, priority
//     and its class, preemptionPolicy, schedulingGates, workloadRef,
//     schedulingGroup. So is overhead, which the provider's runtime
//     class sets. The node selector, node affinity, tolerations and
//     runtime class of the offloadingPatch replace them (scheduling.go).
//   - Anti-affinity is kept or created by a preset (affinity.go),
//     in addition to the node affinity of the offloadingPatch.
//   - Tolerations are unchanged, except those with which the provider would offload
//     the pod again: for the virtual nodes' taint, and for every taint. The
//     toleration of a cordon, which every pod of a DaemonSet has, is removed, too.
//   - Label keys that the consumer's API server has merged into a selector
//     are removed, because the provider's API server would refuse them.
//   - A pod that uses host namespaces is refused, or loses them if
//     its annotation or the configuration requests it (isolation.go).
//   - Ephemeral containers cross: the virtual kubelet adds them to a
//     running pod. hostUsers, os, resourceClaims and pod-level
//     resources are unchanged, and so is every field not named here.
//   - The service account and the access to the API server depend
//     on the mode (apiserver.go, volumes.go, environment.go), and
//     so do the names in the downward API (downward.go).
//
// On the way back the status is unchanged, except
// for facts that hold on one side only (status.go).
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

// localLabels apply to this cluster only: the mark of offloaded pods,
// and the topology that the API server copies from the virtual node
// to its pods. The provider's API server would keep existing labels.
const localLabels = "metadata.labels[" + wire.OffloadedPodLabel + "]" +
	"\nmetadata.labels[topology.kubernetes.io/zone]\nmetadata.labels[topology.kubernetes.io/region]"

func outgoing(ctx sdk.Context, pod sdk.Object) error {
	if pod.Remove(localLabels) > 0 {
		pod.Labels().Prune()
	}
	sdk.FilterLabels(ctx, pod) // before spreading, which uses the labels of the provider's pod
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
	// Filter annotations last: an excluded annotation still affects the pod.
	sdk.FilterAnnotations(ctx, pod)
	return err
}

// offloading is one pod on its way to the provider.
type offloading struct {
	ctx         sdk.Context
	pod         sdk.Object
	spec        sdk.Node
	annotations sdk.Node
	patch       sdk.Node // changes requested by the virtual node
}

// annotation returns the value of an annotation that affects how the pod crosses.
func (o *offloading) annotation(path string) string { return o.annotations.String(path) }
