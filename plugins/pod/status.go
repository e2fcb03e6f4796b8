// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/sdk"
)

// incoming mutates the status of the provider's pod before it is written to the consumer's pod. The reflection engine
// adapts two other parts of the status: the statuses of containers that may run again, which depend on the consumer's
// API server, and the observed generation, which depends on the copy.
func incoming(ctx sdk.Context, pod sdk.Object) error {
	own := ctx.Local()
	pod.Remove("status.nominatedNodeName") // the nominated node is a node of the provider
	setPodIPs(ctx, pod)
	setHostIP(ctx, pod)
	if ctx.Node().Len("extraRestarts") > 0 {
		addRestarts(ctx, pod.Get("status.initContainerStatuses"))
		addRestarts(ctx, pod.Get("status.containerStatuses"))
	}
	// The consumer's quality-of-service class is kept: it is immutable, and the provider may have computed another
	// class.
	if class, ok := own.Lookup("status.qosClass"); ok {
		pod.SetString("status.qosClass", class)
	}
	if ctx.RemoteUnavailable() {
		setNotReady(ctx, pod, own)
	}
	return nil
}

// setPodIPs translates the addresses of the pod. An address that has no translation (yet) is omitted, because it may
// belong to another pod on the consumer.
func setPodIPs(ctx sdk.Context, pod sdk.Object) {
	if ctx.DisableIPReflection() {
		pod.Remove("status.podIP\nstatus.podIPs")
		return
	}
	first := remap(ctx, pod.String("status.podIP"))
	ips := pod.Get("status.podIPs")
	for i := ips.Len("") - 1; i >= 0; i-- {
		ip := remap(ctx, ips.At(i).String("ip"))
		if ip == "" {
			ips.RemoveAt(i)
			continue
		}
		ips.At(i).SetString("ip", ip)
	}
	if ips.Exists() {
		first = ips.At(0).String("ip") // the API server requires the same address in both fields
	}
	if first == "" {
		pod.Remove("status.podIP\nstatus.podIPs")
		return
	}
	pod.SetString("status.podIP", first)
}

func remap(ctx sdk.Context, ip string) string {
	if ip == "" {
		return ""
	}
	mapped, ok := ctx.RemapIP(ip)
	if !ok {
		ctx.Log(sdk.LevelInfo, "no address stands for ", ip, " in this cluster yet")
		return ""
	}
	return mapped
}

// setHostIP sets the host address to the address of the virtual node, which is the pod's host on the consumer.
func setHostIP(ctx sdk.Context, pod sdk.Object) {
	ip := ctx.NodeIP()
	if ip == "" {
		pod.Remove("status.hostIP\nstatus.hostIPs")
		return
	}
	pod.SetString("status.hostIP", ip)
	if pod.Len("status.hostIPs") != 1 {
		pod.SetList("status.hostIPs").SetMap("-")
	}
	pod.SetString("status.hostIPs.0.ip", ip)
}

// addRestarts adds the restarts of earlier pods, which the provider has lost, to the restart counts.
func addRestarts(ctx sdk.Context, statuses sdk.Node) {
	for i := range statuses.Len("") {
		status := statuses.At(i)
		if extra := ctx.ExtraRestarts(status.String("name")); extra > 0 {
			status.SetInt("restartCount", status.Int("restartCount", 0)+extra)
		}
	}
}

// setNotReady marks the pod as not ready. Its state is unknown, so it must not receive traffic.
func setNotReady(ctx sdk.Context, pod, own sdk.Object) {
	const reason = "RemoteClusterUnavailable"
	if !pod.Has("status.conditions") {
		pod.SetList("status.conditions")
	}
	conditions := pod.Get("status.conditions")
	_, ready := find(conditions, "type", "Ready")
	if ready.Is("status", "False") {
		return
	}
	if !ready.Exists() {
		ready = conditions.SetMap("-")
		ready.SetString("type", "Ready")
	}
	ready.SetString("status", "False")
	ready.SetString("reason", reason)
	ready.SetString("message", "the provider cannot be reached")
	_, before := find(own.Get("status.conditions"), "type", "Ready")
	if before.Is("status", "False") && before.Has("lastTransitionTime") {
		ready.Copy("lastTransitionTime", before.Get("lastTransitionTime"))
	} else if now := ctx.Node().String("now"); now != "" {
		ready.SetString("lastTransitionTime", now)
	}
}

// find returns the index and the node of the first list element whose string at key equals want.
func find(list sdk.Node, key, want string) (int, sdk.Node) {
	for i := 0; ; i++ {
		element := list.At(i)
		if !element.Exists() || element.Is(key, want) {
			return i, element
		}
	}
}
