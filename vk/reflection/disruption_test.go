// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestDisruptionBudgetsCross checks that minAvailable, which counts pods in all clusters, is translated: the copy
// allows as many evictions as the local budget, even after pods were created or deleted. The number of healthy pods
// must be shown only in this cluster.
func TestDisruptionBudgetsCross(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) { o.Kinds = reflectiontest.Kinds(reflection.DisruptionBudgetKind) })
	pod := func(i int) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: db-%d, labels: {app: db}}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, i)
	}
	for i := range 4 {
		l.Local.Create(t, l.Namespace, pod(i))
	}
	l.Local.Create(t, l.Namespace, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: db}, spec: {minAvailable: 3, selector: {matchLabels: {app: db}}}}`)
	// This test has its own pods: if a pod has two budgets, Kubernetes updates the status of only one of them, chosen
	// at random.
	l.Local.Create(t, l.Namespace, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: share}, spec: {minAvailable: 50%, selector: {matchLabels: {app: cache}}, unhealthyPodEvictionPolicy: AlwaysAllow}}`)
	l.Start()
	l.Present(l.Remote, "PodDisruptionBudget", l.RemoteNS, "db", is("spec", `{maxUnavailable: 1, selector: {matchLabels: {app: db}}}`))
	l.Present(l.Remote, "PodDisruptionBudget", l.RemoteNS, "share", is("spec", `{minAvailable: 50%, selector: {matchLabels: {app: cache}}, unhealthyPodEvictionPolicy: AlwaysAllow}`))
	l.Settled()
	l.Quiet("a pod that gets ready", func() {
		l.Local.PatchYAML(t, "Pod", l.Namespace, "db-0", `{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, "status")
		l.Present(l.Local, "PodDisruptionBudget", l.Namespace, "db", is("status.currentHealthy", "1"))
	})
	l.Local.Create(t, l.Namespace, pod(4))
	l.Present(l.Local, "PodDisruptionBudget", l.Namespace, "db", is("status.expectedPods", "5"))
	l.Present(l.Remote, "PodDisruptionBudget", l.RemoteNS, "db", is("spec.maxUnavailable", "2"))
	l.Local.PatchYAML(t, "PodDisruptionBudget", l.Namespace, "db", `{spec: {minAvailable: null, maxUnavailable: 20%}}`)
	l.Present(l.Remote, "PodDisruptionBudget", l.RemoteNS, "db", is("spec", `{maxUnavailable: 20%, selector: {matchLabels: {app: db}}}`))
	l.Local.Delete(t, "PodDisruptionBudget", l.Namespace, "db")
	l.Absent(l.Remote, "PodDisruptionBudget", l.RemoteNS, "db")
}
