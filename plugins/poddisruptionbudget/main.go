// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for PodDisruptionBudgets. The cluster that runs the pods enforces a budget, so the reflected
// budget counts only the offloaded pods. If minAvailable were reflected as a number, pods in other clusters would be
// missing from the count, and the provider could never drain a node. The fields are handled as follows:
//
//   - The selector, percentages, maxUnavailable and unhealthyPodEvictionPolicy
//     are unchanged. Percentages refer to the offloaded pods.
//   - A number in minAvailable becomes maxUnavailable: the number of pods that the budget expects in all clusters
//     (status.expectedPods) minus the number in minAvailable. Until the pods have been counted, maxUnavailable is 0.
//     If the number in minAvailable is 0, the field has no effect and is unchanged.
//
// Each cluster permits this number of evictions independently, so pods in two clusters may be evicted at the same
// time.
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
