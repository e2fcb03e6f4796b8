// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for PodDisruptionBudgets. The cluster that runs
// the pods enforces a budget, so the copy counts offloaded pods
// only. A minimum number of available pods would miss the other pods
// there, and the provider could never drain a node. In detail:
//
//   - The selector, percentages, maxUnavailable and unhealthyPodEvictionPolicy
//     are unchanged. Percentages refer to the offloaded pods.
//   - A number in minAvailable becomes maxUnavailable: the pods that the budget
//     expects on all clusters (status.expectedPods) minus that number, and 0 until
//     they have been counted. The number 0 restricts nothing and is unchanged.
//
// Each cluster allows this number on its own: pods
// of two clusters may be evicted at the same time.
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
