// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// further is the number of additional namespaces that are offloaded to measure the cost of a namespace.
const further = 100

// namespacesMemory is the goal for the memory that these namespaces need, in MiB. It allows 40 KiB for each of ten
// watches per namespace: nine for kinds of this cluster, and one for the provider.
const namespacesMemory = 40

// namespacesMemoryBusy is the goal on a busy machine, in MiB. More goroutines start at the same time there, and the
// gaps between their stacks are not returned: 39 MiB on an idle machine became 47 MiB next to the other steps of CI.
const namespacesMemoryBusy = 60

// namespaces measures the cost of additional namespaces for a virtual kubelet that has just started. The namespaces are
// empty except for the ConfigMap with the root CA that every namespace contains.
func (b *bench) namespaces(ctx context.Context) error {
	progress("%d further namespaces", further)
	if err := b.StopKubelet(ctx); err != nil {
		return err
	}
	if err := b.StartKubelet(ctx); err != nil {
		return err
	}
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	if err := b.collectGarbage(ctx); err != nil {
		return err
	}
	before, err := testenv.ProcessUsage(b.Kubelet().Pid())
	if err != nil {
		return err
	}
	metrics, err := b.KubeletMetrics(ctx)
	if err != nil {
		return err
	}
	names := make([]string, further)
	for n := range names {
		names[n] = fmt.Sprintf("further-%d", n)
		if _, err := b.Consumer.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[n]}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	begun := time.Now()
	if _, err := b.Refractctl(ctx, append([]string{"offload", "namespace", "--context", lab.ConsumerID, "--timeout", "5m"}, names...)...); err != nil {
		return err
	}
	rootCA := wire.RemoteRootCAConfigMap(lab.ConsumerID)
	err = b.Wait(ctx, "the root CA in all of their remote namespaces", func(ctx context.Context) (string, error) {
		list, err := b.Provider.Client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + rootCA})
		if err == nil && len(list.Items) < further {
			return fmt.Sprintf("%d have it", len(list.Items)), nil
		}
		return "", err
	})
	if err != nil {
		return err
	}
	b.found(fmt.Sprintf("%d further namespaces reflected after", further), "%.1f s", time.Since(begun).Seconds())
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	if err := b.collectGarbage(ctx); err != nil {
		return err
	}
	after, err := testenv.ProcessUsage(b.Kubelet().Pid())
	if err != nil {
		return err
	}
	metricsAfter, err := b.KubeletMetrics(ctx)
	if err != nil {
		return err
	}
	const stackMetric, heapMetric = "go_memstats_stack_inuse_bytes", "go_memstats_heap_alloc_bytes"
	for _, metric := range []string{stackMetric, heapMetric} {
		if metricsAfter.Sum(metric, nil) == 0 {
			return fmt.Errorf("the virtual kubelet has no metric %s", metric)
		}
	}
	grown := func(metric string) float64 {
		return (metricsAfter.Sum(metric, nil) - metrics.Sum(metric, nil)) / (1 << 20)
	}
	stacks, live := grown(stackMetric), grown(heapMetric)
	// The resident memory is printed but not checked, because it depends on how much garbage the process keeps.
	goal := float64(namespacesMemory)
	if b.countsOnly {
		goal = namespacesMemoryBusy
	}
	b.atMost("   the virtual kubelet's memory for them, in use", stacks+live, goal, " MiB")
	b.found("      in stacks", "%.1f MiB", stacks)
	b.found("      live", "%.1f MiB", live)
	b.found("      resident, with what is not collected yet", "%.1f MiB", float64(after.RSS-before.RSS)/(1<<20))
	b.found("      goroutines", "%.0f", metricsAfter.Sum("go_goroutines", nil)-metrics.Sum("go_goroutines", nil))
	return nil
}
