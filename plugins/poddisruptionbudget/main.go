// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for PodDisruptionBudgets. A budget is kept by the cluster
// in which the pods run, so its copy counts the offloaded pods alone. What it
// allows there is what it allows here of all pods: otherwise a budget for pods
// of several clusters would let no node of the provider be drained, ever. In
// detail:
//
//   - The selector, percentages, maxUnavailable and unhealthyPodEvictionPolicy
//     cross as they are. Percentages are of the offloaded pods.
//   - A number in minAvailable becomes maxUnavailable: the number of pods that
//     the budget has here (status.expectedPods), less those that have to be
//     available. That is zero until this cluster has counted them. The number
//     zero restricts nothing and stays.
//
// Each cluster allows that much by itself: pods of two clusters may be evicted
// at the same time.
package main

import "github.com/refract-project/refract/sdk"

var plugin = sdk.Register(sdk.Manifest{
	Name:    "poddisruptionbudget",
	Version: "1.0.0",
	Kinds:   []string{"PodDisruptionBudget.policy"},
	Writes:  []string{"metadata.labels", "metadata.annotations", "spec.minAvailable", "spec.maxUnavailable"},
}, sdk.Outgoing(outgoing))

func main() {}

func outgoing(ctx sdk.Context, budget sdk.Object) error {
	if budget.Get("spec.minAvailable").Kind("") == sdk.KindInt {
		if least := budget.Int("spec.minAvailable", 0); least > 0 {
			budget.Remove("spec.minAvailable")
			budget.SetInt("spec.maxUnavailable", max(budget.Int("status.expectedPods", 0)-least, 0))
		}
	}
	sdk.FilterMetadata(ctx, budget)
	return nil
}
