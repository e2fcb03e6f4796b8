// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/refract-project/refract/sdk"
)

// incoming reflects the status of the provider's pod. The engine sets
// the containers that may run again, which the consumer's API server
// decides, and the observed generation, which follows from the copy.
func incoming(ctx sdk.Context, pod sdk.Object) error {
	own := ctx.Local()
	pod.Remove("status.nominatedNodeName") // a node of the provider
	setPodIPs(ctx, pod)
	setHostIP(ctx, pod)
	if ctx.Node().Len("extraRestarts") > 0 {
		addRestarts(ctx, pod.Get("status.initContainerStatuses"))
		addRestarts(ctx, pod.Get("status.containerStatuses"))
	}
	// The class is immutable, and the provider may compute another one.
	if class, ok := own.Lookup("status.qosClass"); ok {
		pod.SetString("status.qosClass", class)
	}
	if ctx.RemoteUnavailable() {
		setNotReady(ctx, pod, own)
	}
	return nil
}

// setPodIPs translates the addresses of the pod. An address without a
// translation (yet) is omitted: it may belong to somebody else here.
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
		first = ips.At(0).String("ip") // the API server requires equal values
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

// setHostIP sets the address of the virtual node, which is the pod's host for the consumer.
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

// addRestarts adds the restarts in copies of the pod that the provider lost.
func addRestarts(ctx sdk.Context, statuses sdk.Node) {
	for i := range statuses.Len("") {
		status := statuses.At(i)
		if extra := ctx.ExtraRestarts(status.String("name")); extra > 0 {
			status.SetInt("restartCount", status.Int("restartCount", 0)+extra)
		}
	}
}

// setNotReady marks the pod as not ready: its state is unknown, so it must not receive traffic.
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

// find returns the first element of a list whose string at key is want, and its index.
func find(list sdk.Node, key, want string) (int, sdk.Node) {
	for i := 0; ; i++ {
		element := list.At(i)
		if !element.Exists() || element.Is(key, want) {
			return i, element
		}
	}
}
