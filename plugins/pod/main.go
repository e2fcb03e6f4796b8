// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for pods. As in Liqo's pod offloading, they are reflected unchanged except for scheduling
// constraints, the service account and the host's namespaces. In detail, on the way to the provider:
//
//   - Fields that bind the pod to the consumer's nodes and scheduler are removed: nodeName, nodeSelector, affinity,
//     schedulerName, priority and its class, preemptionPolicy, schedulingGates, workloadRef, schedulingGroup. The node
//     selector, node affinity, tolerations and runtime class of the offloadingPatch replace them (scheduling.go).
//     overhead is also removed, because the provider's runtime class sets it.
//   - Anti-affinity between pods is kept, or created, if the pod's preset requests this (affinity.go). It is added to
//     the node affinity of the offloadingPatch.
//   - Tolerations are unchanged, except for tolerations of the virtual nodes' taint or of every taint, with which the
//     provider would offload the pod again. The toleration of cordoned nodes, which every pod of a DaemonSet has, is
//     also removed.
//   - Label keys that the consumer's API server has merged into a selector are removed from the list of keys, because
//     the provider's API server would reject them.
//   - A pod that uses host namespaces is rejected, or loses them if its annotation or the configuration requests this
//     (isolation.go).
//   - Ephemeral containers are reflected: the virtual kubelet adds them to a running pod. hostUsers, os,
//     resourceClaims and pod-level resources are unchanged, and so are all fields that are not named here.
//   - The service account and the access to the API server depend on the mode (apiserver.go, volumes.go,
//     environment.go). So do the names that the downward API returns (downward.go).
//
// On the way back, the status is unchanged, except for values that are only valid in one of the two clusters
// (status.go).
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

// localLabels are the paths of labels that are valid only in this cluster: the label of offloaded pods, and topology
// labels, which the API server copies from the virtual node to its pods. The provider's API server would not overwrite
// existing labels.
const localLabels = "metadata.labels[" + wire.OffloadedPodLabel + "]" +
	"\nmetadata.labels[topology.kubernetes.io/zone]\nmetadata.labels[topology.kubernetes.io/region]"

func outgoing(ctx sdk.Context, pod sdk.Object) error {
	if pod.Remove(localLabels) > 0 {
		pod.Labels().Prune()
	}
	sdk.FilterLabels(ctx, pod) // must come before spread, which uses the labels of the provider's pod
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
	// Annotations are filtered last, because even annotations that are excluded from reflection have an effect on the
	// pod.
	sdk.FilterAnnotations(ctx, pod)
	return err
}

// offloading mutates one pod for the provider.
type offloading struct {
	ctx         sdk.Context
	pod         sdk.Object
	spec        sdk.Node
	annotations sdk.Node
	patch       sdk.Node // offloadingPatch of the virtual node
}

// annotation returns the value of an annotation that determines how the pod is mutated.
func (o *offloading) annotation(path string) string { return o.annotations.String(path) }
