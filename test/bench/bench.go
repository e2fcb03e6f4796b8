// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/internal/lab"
	"github.com/refract-project/refract/internal/testenv"
)

// namespace is offloaded to the provider, and remoteNamespace its name there; plainNamespace is not.
const namespace, remoteNamespace, plainNamespace = "bench", "bench-" + lab.ConsumerID, "bench-plain"

// bench has the common state of the measurements, and their results.
type bench struct {
	*lab.Lab
	pods, services int
	// countsOnly gives no verdict on times. It and scale leave out the plain nodes.
	countsOnly, podsOnly, scale bool
	// adopt is how many objects there are when the virtual kubelet is started again, 0 for the usual ones.
	adopt int
	// profiles is the folder of profiles, "" for none.
	profiles string
	profiled int
	// heartbeat is when the node's last one was seen.
	heartbeat time.Time
	plain     plain
	// rollout, deletion are the costs of the pods that are offloaded.
	rollout, deletion cost
	figures           []figure
}

// plain is the cost of the same work without offloading, in this run. It is measured before and after the cost with
// offloading, because the speed of a shared machine varies.
type plain struct {
	rollout, deletion, creation costs
	// both are the same in both clusters at once, which know nothing of each other: the least that two clusters take on this machine.
	both           struct{ rollout, deletion, creation cost }
	slowestUpdates time.Duration // 99 of 100 are there within
}

// againstBoth records the ratio of a cost to the cost of both clusters at once.
func (b *bench) againstBoth(c, both cost) {
	_, used := c.ratio(costs{both})
	b.found("   compared with both clusters at once", "%.2f", used)
}

// cost of something.
type cost struct{ took, used time.Duration }

// costs of the same thing, measured several times.
type costs []cost

// ratio of a cost to the mean of others: in time, and in processor time.
func (c cost) ratio(others costs) (took, used float64) {
	var sum cost
	for _, other := range others {
		sum.took, sum.used = sum.took+other.took, sum.used+other.used
	}
	n := float64(len(others))
	return n * c.took.Seconds() / sum.took.Seconds(), n * c.used.Seconds() / sum.used.Seconds()
}

// figure is one line of the report.
type figure struct {
	what, value, goal string
	missed            bool
}

// compared reports whether this run also measures plain nodes.
func (b *bench) compared() bool { return !b.countsOnly && !b.scale }

// found records a figure without a goal.
func (b *bench) found(what, format string, args ...any) {
	b.figures = append(b.figures, figure{what: what, value: fmt.Sprintf(format, args...)})
}

// atMost records a figure that should not exceed the goal.
func (b *bench) atMost(what string, value, goal float64, unit string) {
	b.figures = append(b.figures, figure{
		what: what, value: fmt.Sprintf("%.2f%s", value, unit), goal: fmt.Sprintf("≤ %g%s", goal, unit), missed: !(value <= goal), // not a number is no success
	})
}

// atMostTime is atMost for what depends on how busy the machine is, or on how much was done before.
func (b *bench) atMostTime(what string, value, goal float64, unit string) {
	b.atMost(what, value, goal, unit)
	if b.countsOnly {
		last := &b.figures[len(b.figures)-1]
		last.goal, last.missed = "", false
	}
}

var errGoalMissed = errors.New("a goal was missed, see the table")

func (b *bench) report() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(w, "FIGURE\tVALUE\tGOAL\t\n")
	var err error
	for _, f := range b.figures {
		verdict := ""
		switch {
		case f.missed:
			verdict, err = "missed", errGoalMissed
		case f.goal != "":
			verdict = "met"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.what, f.value, f.goal, verdict)
	}
	return errors.Join(err, w.Flush())
}

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

// writes returns what our processes have written to both clusters since the last call, heartbeats and elections aside.
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

// isHeartbeat reports whether a write is the heartbeat of the node, which comes every five minutes. More frequent writes count.
func (b *bench) isHeartbeat(write lab.Write) bool {
	if write.Kind() != "nodes/status" || time.Since(b.heartbeat) < 4*time.Minute {
		return false
	}
	b.heartbeat = time.Now()
	return true
}

// isQuotaRefresh reports whether a write updates the rest of a Quota in a namespace. There is at most one in five
// seconds, independent of the number of objects.
func isQuotaRefresh(write lab.Write) bool {
	return write.Kind() == "resourcequotas" && write.Verb == "patch"
}

// resources records what our processes use.
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

// memory holds the virtual kubelet to its goal, which grows with the pods beyond the first thousand. It keeps the pods and the Services
// of the benchmark by now.
func (b *bench) memory(context.Context) error {
	used, err := testenv.ProcessUsage(b.Kubelet().Pid())
	if err != nil {
		return err
	}
	goal := 100 + max(0, float64(b.pods-1000)/1000*20)
	b.atMost(fmt.Sprintf("the virtual kubelet's memory with %d pods and %d Services", b.pods, b.services), float64(used.RSS)/(1<<20), goal, " MiB")
	return nil
}

// quiet is how long our processes must have written nothing to count as done.
const quiet = 3 * time.Second

// settled waits until the processes have nothing left to do, and returns their writes until then.
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
