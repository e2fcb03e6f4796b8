// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/figures"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// namespace is offloaded to the provider, where its name is remoteNamespace. plainNamespace is not offloaded.
const namespace, remoteNamespace, plainNamespace = "bench", "bench-" + lab.ConsumerID, "bench-plain"

// bench contains the state that the measurements share, and their results.
type bench struct {
	*lab.Lab
	pods, services int
	// countsOnly means that durations are not compared with their goals. Plain nodes are not measured with countsOnly
	// or scale.
	countsOnly, podsOnly, scale bool
	// adopt is the number of objects that exist when the virtual kubelet restarts; 0 means the default.
	adopt int
	// profiles is the folder for profiles. If it is "", no profiles are written.
	profiles string
	profiled int
	// heartbeat is the time of the last heartbeat of the node.
	heartbeat time.Time
	plain     plain
	// rollout and deletion are the costs for the offloaded pods.
	rollout, deletion cost
	table             figures.Table
}

// plain contains the costs of the same work without offloading, in the same run. They are measured both before and
// after the costs with offloading, because the speed of a shared machine varies.
type plain struct {
	rollout, deletion, creation costs
	// both contains the costs of the same work in two independent clusters at the same time. They are the minimum for
	// two clusters on this machine.
	both           struct{ rollout, deletion, creation cost }
	slowestUpdates time.Duration // 99th percentile of the delays
}

// againstBoth records the CPU time of c relative to both, which is the cost of the same work in two independent
// clusters at the same time.
func (b *bench) againstBoth(c, both cost) {
	_, used := c.ratio(costs{both})
	b.found("   compared with both clusters at once", "%.2f", used)
}

// cost is the duration and the CPU time of an operation.
type cost struct{ took, used time.Duration }

// costs contains several measurements of the same operation.
type costs []cost

// ratio returns the ratio of a cost to the mean of other costs, both for the duration and for the CPU time.
func (c cost) ratio(others costs) (took, used float64) {
	var sum cost
	for _, other := range others {
		sum.took, sum.used = sum.took+other.took, sum.used+other.used
	}
	n := float64(len(others))
	return n * c.took.Seconds() / sum.took.Seconds(), n * c.used.Seconds() / sum.used.Seconds()
}

// compared reports whether this run also measures plain nodes.
func (b *bench) compared() bool { return !b.countsOnly && !b.scale }

// found records a figure without a goal.
func (b *bench) found(what, format string, args ...any) { b.table.Add(what, format, args...) }

// atMost records a figure that should not exceed its goal.
func (b *bench) atMost(what string, value, goal float64, unit string) {
	b.table.AtMost(what, value, goal, unit)
}

// atMostTime records a figure as atMost does. It is for values that depend on the load of the machine, or on how much
// work was done before. With countsOnly, it records no goal.
func (b *bench) atMostTime(what string, value, goal float64, unit string) {
	if b.countsOnly {
		b.found(what, "%.2f%s", value, unit)
		return
	}
	b.atMost(what, value, goal, unit)
}

func (b *bench) report() error { return b.table.Print(os.Stdout) }

func (b *bench) join(ctx context.Context) error {
	progress("joining the clusters")
	if err := b.StartAll(ctx); err != nil {
		return err
	}
	if err := b.AwaitNodeReady(ctx); err != nil {
		return err
	}
	for _, p := range []place{{b.Consumer, namespace}, {b.Consumer, plainNamespace}, {b.Provider, plainNamespace}} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		if _, err := p.side.Client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, cluster := range []string{lab.ProviderID, lab.ConsumerID} {
		if err := b.apply(ctx, cluster, "both.yaml"); err != nil {
			return err
		}
	}
	if err := b.apply(ctx, lab.ConsumerID, "home.yaml"); err != nil {
		return err
	}
	if err := b.volumes(ctx); err != nil {
		return err
	}
	if _, err := b.Refractctl(ctx, "offload", "namespace", namespace, "--context", lab.ConsumerID); err != nil {
		return err
	}
	return b.kubelet()
}

// writes returns the writes of Refract's processes to both clusters since the last call. It leaves out heartbeats,
// leader election and refreshes of quotas.
func (b *bench) writes() ([]lab.Write, error) {
	var ours []lab.Write
	for _, side := range []*lab.Side{b.Consumer, b.Provider} {
		all, err := side.Journal.Next()
		if err != nil {
			return nil, err
		}
		for _, write := range lab.Of(all, lab.Users()...) {
			if !write.IsRoutine() && !b.isHeartbeat(write) && !isQuotaRefresh(write) {
				ours = append(ours, write)
			}
		}
	}
	return ours, nil
}

// isHeartbeat reports whether a write is a heartbeat of the node. Heartbeats are sent every five minutes. More frequent
// writes do not count as heartbeats.
func (b *bench) isHeartbeat(write lab.Write) bool {
	if write.Kind() != "nodes/status" || time.Since(b.heartbeat) < 4*time.Minute {
		return false
	}
	b.heartbeat = time.Now()
	return true
}

// isQuotaRefresh reports whether a write updates the remaining amount of a Quota in a namespace. There is at most one
// such write in five seconds, regardless of the number of objects.
func isQuotaRefresh(write lab.Write) bool {
	return write.Kind() == "resourcequotas" && write.Verb == "patch"
}

// resources records the resource usage of Refract's processes.
func (b *bench) resources(context.Context) error {
	usage, err := b.Usage()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		b.used(name+" in the end", usage[name])
	}
	return nil
}

func (b *bench) used(what string, u testenv.Usage) {
	b.found(what, "%d MiB now, %d at most, %.1f s of CPU", u.RSS>>20, u.PeakRSS>>20, u.CPU.Seconds())
}

// kubelet records the resource usage of the virtual kubelet.
func (b *bench) kubelet() error {
	used, err := testenv.ProcessUsage(b.Kubelet().Pid())
	if err != nil {
		return err
	}
	b.used("   the virtual kubelet by then", used)
	return nil
}

// residentBusy is the goal for the resident memory of the virtual kubelet with few objects on a busy machine, in MiB,
// where more garbage waits for its collection.
const residentBusy = 150

// memory compares the virtual kubelet's memory with its goal, which grows with each pod beyond the first thousand. At
// this time, the caches of the virtual kubelet contain the pods and the Services of the benchmark.
func (b *bench) memory(context.Context) error {
	used, err := testenv.ProcessUsage(b.Kubelet().Pid())
	if err != nil {
		return err
	}
	goal := 100 + max(0, float64(b.pods-1000)/1000*20)
	if b.countsOnly {
		goal = residentBusy
	}
	b.atMost(fmt.Sprintf("the virtual kubelet's memory with %d pods and %d Services", b.pods, b.services), float64(used.RSS)/(1<<20), goal, " MiB")
	return nil
}

// quiet is the time without writes after which Refract's processes count as done.
const quiet = 3 * time.Second

// settled waits until the processes have nothing left to do, and returns the writes that they have made by then.
func (b *bench) settled(ctx context.Context) ([]lab.Write, error) {
	var all []lab.Write
	since := time.Now()
	err := b.Wait(ctx, "our processes to have nothing more to do", func(context.Context) (string, error) {
		news, err := b.writes()
		if err != nil {
			return "", err
		}
		if len(news) > 0 {
			all, since = append(all, news...), time.Now()
		}
		if time.Since(since) < quiet {
			return "they still write", nil
		}
		return "", nil
	})
	return all, err
}

// events counts the Kubernetes Events among the writes.
func events(writes []lab.Write) (n int) {
	for _, write := range writes {
		if write.IsEvent() {
			n++
		}
	}
	return n
}
