// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

// setAffinity replaces the pod's affinity with the node affinity in the offloadingPatch, and with the anti-affinity
// that the pod's preset requests.
func (o *offloading) setAffinity() {
	preset := o.annotation("[" + wire.AntiAffinityPresetAnnotation + "]")
	if preset == wire.AntiAffinityPropagate {
		keepAntiAffinity(o.spec)
	} else {
		o.spec.Remove("affinity")
	}
	switch preset {
	case "", wire.AntiAffinityPropagate:
	case wire.AntiAffinitySoft, wire.AntiAffinityHard:
		o.spread(preset)
	default:
		o.ctx.Warn("annotation ", wire.AntiAffinityPresetAnnotation, " is invalid: use propagate, soft or hard, not ", preset)
	}
	if required := o.patch.Get("affinity.nodeAffinity"); required.Exists() {
		o.spec.Copy("affinity.nodeAffinity", required)
	}
}

// keepAntiAffinity removes every kind of affinity except for the anti-affinity between pods.
func keepAntiAffinity(spec sdk.Node) {
	affinity := spec.Get("affinity")
	for _, kind := range affinity.Keys("") {
		if kind != "podAntiAffinity" {
			affinity.Remove(kind)
		}
	}
	if affinity.Len("") == 0 {
		spec.Remove("affinity")
		return
	}
	required := affinity.Get("podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution")
	for i := range required.Len("") {
		dropMergedTermKeys(required.At(i))
	}
	preferred := affinity.Get("podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution")
	for i := range preferred.Len("") {
		dropMergedTermKeys(preferred.At(i).Get("podAffinityTerm"))
	}
}

func dropMergedTermKeys(term sdk.Node) {
	dropMergedKeys(term, "matchLabelKeys")
	dropMergedKeys(term, "mismatchLabelKeys")
}

// spread adds an anti-affinity between pods with the same labels.
func (o *offloading) spread(preset string) {
	keys := o.spreadingKeys()
	if len(keys) == 0 {
		// A selector without labels would match every pod in the namespace, so no anti-affinity is added.
		o.ctx.Warn("anti-affinity preset ", preset, ": no label of the pod is left to select by, so pods are not spread")
		return
	}
	anti := o.spec.SetMap("affinity").SetMap("podAntiAffinity")
	if preset == wire.AntiAffinityHard {
		setTerm(anti.SetList("requiredDuringSchedulingIgnoredDuringExecution").SetMap("-"), o.pod.Labels(), keys)
		return
	}
	preferred := anti.SetList("preferredDuringSchedulingIgnoredDuringExecution").SetMap("-")
	preferred.SetInt("weight", 1)
	setTerm(preferred.SetMap("podAffinityTerm"), o.pod.Labels(), keys)
}

func setTerm(term sdk.Node, labels sdk.StringMap, keys []string) {
	term.SetString("topologyKey", "kubernetes.io/hostname")
	selector := term.SetMap("labelSelector").SetMap("matchLabels").Strings("")
	for _, key := range keys {
		selector.Set(key, labels.Get(key))
	}
}

// spreadingKeys returns the label keys for the selector. They are the keys that the annotation lists. If it lists none,
// they are the keys of all labels of the provider's pod that the pods of one owner share.
func (o *offloading) spreadingKeys() []string {
	var keys []string
	listed := o.annotation("[" + wire.AntiAffinityLabelsAnnotation + "]")
	for _, key := range o.pod.Labels().Keys() {
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

// isIndividual reports whether a label has different values in the pods of one owner, or in the revisions of the owner.
func isIndividual(key string) bool {
	switch key {
	case "pod-template-hash", "controller-revision-hash", "pod-template-generation",
		"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index":
		return true
	}
	return strings.HasPrefix(key, "offloading.liqo.io/")
}
