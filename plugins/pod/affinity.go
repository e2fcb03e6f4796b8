// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// setAffinity drops the pod's affinity and sets what the virtual node's
// offloadingPatch and the pod's anti-affinity preset ask for, both of them.
func setAffinity(ctx sdk.Context, pod sdk.Object, nodeAffinity sdk.Node) {
	preset := pod.Annotations().Get(wire.AntiAffinityPresetAnnotation)
	if preset == wire.AntiAffinityPropagate {
		keepAntiAffinity(pod)
	} else {
		pod.Remove("spec.affinity")
	}
	switch preset {
	case "", wire.AntiAffinityPropagate:
	case wire.AntiAffinitySoft, wire.AntiAffinityHard:
		spread(ctx, pod, preset)
	default:
		ctx.Warn("annotation ", wire.AntiAffinityPresetAnnotation, ": ", preset, " is none of propagate, soft, hard")
	}
	if nodeAffinity.Exists() {
		pod.Copy("spec.affinity.nodeAffinity", nodeAffinity)
	}
}

// keepAntiAffinity removes everything else from the affinity.
func keepAntiAffinity(pod sdk.Object) {
	for _, kind := range pod.Keys("spec.affinity") {
		if kind != "podAntiAffinity" {
			pod.Get("spec.affinity").Remove(kind)
		}
	}
	if pod.Len("spec.affinity") == 0 {
		pod.Remove("spec.affinity")
		return
	}
	anti := pod.Get("spec.affinity.podAntiAffinity")
	required := anti.Get("requiredDuringSchedulingIgnoredDuringExecution")
	for i := range required.Len("") {
		dropMergedTermKeys(required.At(i))
	}
	preferred := anti.Get("preferredDuringSchedulingIgnoredDuringExecution")
	for i := range preferred.Len("") {
		dropMergedTermKeys(preferred.At(i).Get("podAffinityTerm"))
	}
}

func dropMergedTermKeys(term sdk.Node) {
	dropMergedKeys(term, "matchLabelKeys")
	dropMergedKeys(term, "mismatchLabelKeys")
}

// spread keeps pods with the same labels on different nodes.
func spread(ctx sdk.Context, pod sdk.Object, preset string) {
	keys := spreadingKeys(pod)
	if len(keys) == 0 {
		// An empty selector would match every pod of the namespace.
		ctx.Warn("anti-affinity preset ", preset, ": no label of the pod is left to select by, so pods are not spread")
		return
	}
	anti := pod.SetMap("spec.affinity").SetMap("podAntiAffinity")
	if preset == wire.AntiAffinityHard {
		setTerm(anti.SetList("requiredDuringSchedulingIgnoredDuringExecution").SetMap("-"), pod.Labels(), keys)
		return
	}
	preferred := anti.SetList("preferredDuringSchedulingIgnoredDuringExecution").SetMap("-")
	preferred.SetInt("weight", 1)
	setTerm(preferred.SetMap("podAffinityTerm"), pod.Labels(), keys)
}

func setTerm(term sdk.Node, labels sdk.StringMap, keys []string) {
	term.SetString("topologyKey", "kubernetes.io/hostname")
	selector := term.SetMap("labelSelector").SetMap("matchLabels").Strings("")
	for _, key := range keys {
		selector.Set(key, labels.Get(key))
	}
}

// spreadingKeys returns the keys of the labels to select by: those that the
// annotation lists, else all that the pods of one owner share. It looks at the
// labels that the provider's pod will have.
func spreadingKeys(pod sdk.Object) []string {
	var keys []string
	listed := pod.Annotations().Get(wire.AntiAffinityLabelsAnnotation)
	for _, key := range pod.Labels().Keys() {
		if isSpreadingKey(listed, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func isSpreadingKey(listed, key string) bool {
	if strings.Trim(listed, ", \t\n") == "" {
		return !isIndividual(key)
	}
	for rest := listed; rest != ""; {
		var entry string
		entry, rest, _ = strings.Cut(rest, ",")
		if strings.TrimSpace(entry) == key {
			return true
		}
	}
	return false
}

// isIndividual reports a label that tells pods of one owner, or revisions of
// the owner, apart.
func isIndividual(key string) bool {
	switch key {
	case "pod-template-hash", "controller-revision-hash", "pod-template-generation",
		"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index":
		return true
	}
	return strings.HasPrefix(key, "offloading.liqo.io/")
}
