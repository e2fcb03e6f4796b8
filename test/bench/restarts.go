// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/lab"
)

// restart ends the virtual kubelet as an upgrade does and starts it again with everything present.
func (b *bench) restart(ctx context.Context) error {
	progress("a clean restart of the virtual kubelet")
	if err := b.StopKubelet(ctx); err != nil {
		return err
	}
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := b.StartKubelet(ctx); err != nil {
		return err
	}
	const first = "first-after-restart"
	service := b.kinds()[0]
	if err := b.create(ctx, service, first); err != nil {
		return err
	}
	err := b.Wait(ctx, "the first new Service to be reflected", func(ctx context.Context) (string, error) {
		if found, err := b.copyOf(ctx, service, first); found != nil || err != nil {
			return "", err
		}
		return "it is not in the provider", nil
	})
	if err != nil {
		return err
	}
	b.atMostTime("first new object reflected after a clean restart", time.Since(begun).Seconds(), 3, " s")
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	var needless []lab.Write
	for _, write := range writes {
		// The node tells that its kubelet is back; the new Service was asked for.
		if !strings.HasPrefix(write.Resource, "nodes") && write.Name != first {
			needless = append(needless, write)
		}
	}
	b.atMost("writes after it for what had not changed", float64(len(needless)), 0, "")
	b.tally(needless, 1)
	return b.delete(ctx, service, first)
}

// missed is how many objects of a kind are created, changed and deleted while the virtual kubelet cannot see it.
const missed = 10

// awayAndKilled measures how long it takes to catch up with what happened while the virtual kubelet was down.
func (b *bench) awayAndKilled(ctx context.Context) error {
	for round, end := range []struct {
		name string
		down func(context.Context) error
	}{
		{"stopped", b.StopKubelet},
		{"killed", func(context.Context) error { b.KillKubelet(); return nil }},
	} {
		progress("objects created, changed and deleted while the virtual kubelet is %s", end.name)
		if err := end.down(ctx); err != nil {
			return err
		}
		took, err := b.catchUp(ctx, round)
		if err != nil {
			return err
		}
		b.atMostTime(fmt.Sprintf("all of it corrected after it was %s", end.name), took.Seconds(), 10, " s")
	}
	return nil
}

// catchUp does things nobody sees, starts the virtual kubelet and waits until its copies are right.
func (b *bench) catchUp(ctx context.Context, round int) (time.Duration, error) {
	value := fmt.Sprintf("away-%d", round)
	from := round * 2 * missed
	for _, k := range b.awayKinds() {
		if err := b.each(ctx, k, from, from+missed, b.delete); err != nil {
			return 0, err
		}
		err := b.each(ctx, k, from+missed, from+2*missed, func(ctx context.Context, k *kind, name string) error { return b.change(ctx, k, name, value) })
		if err != nil {
			return 0, err
		}
		if err := b.each(ctx, k, k.count+round*missed, k.count+(round+1)*missed, b.create); err != nil {
			return 0, err
		}
	}
	gone, err := b.replacePods(ctx, value)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := b.StartKubelet(ctx); err != nil {
		return 0, err
	}
	for _, k := range b.awayKinds() {
		if err := b.awaitGone(ctx, k, from); err != nil {
			return 0, err
		}
		if err := b.await(ctx, k, k.count, nil); err != nil { // as many came as went
			return 0, err
		}
		if err := b.await(ctx, k, missed, hasChange(value)); err != nil {
			return 0, err
		}
	}
	if err := b.awaitPods(ctx, gone, value); err != nil {
		return 0, err
	}
	return time.Since(begun), nil
}

// awayKinds are those that users write here.
func (b *bench) awayKinds() []*kind {
	return slices.DeleteFunc(b.kinds(), func(k *kind) bool { return k.back || k.name == "PersistentVolumeClaim" })
}

// replacePods deletes some pods, which their Deployment replaces, and changes others.
func (b *bench) replacePods(ctx context.Context, value string) (gone []string, err error) {
	pods := b.Consumer.Client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=offloaded"})
	if err != nil {
		return nil, err
	}
	for i := range list.Items[:missed] {
		if err := pods.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		gone = append(gone, list.Items[i].Name)
	}
	for i := range list.Items[missed : 2*missed] {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"changed":%q}}}`, value)
		if _, err := pods.Patch(ctx, list.Items[missed+i].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// awaitPods returns when the provider has those pods that there are here, as they are.
func (b *bench) awaitPods(ctx context.Context, gone []string, value string) error {
	return b.Wait(ctx, "the ShadowPods to be those of the pods", func(ctx context.Context) (string, error) {
		list, err := b.Provider.Dynamic.Resource(offloadingv1beta1.ShadowPodGVR).Namespace(twin).List(ctx, metav1.ListOptions{LabelSelector: "app=offloaded"})
		if err != nil {
			return "", err
		}
		changed := 0
		for i := range list.Items {
			if slices.Contains(gone, list.Items[i].GetName()) {
				return "one of a deleted pod is there", nil
			}
			if hasChange(value)(&list.Items[i]) {
				changed++
			}
		}
		if len(list.Items) != b.pods || changed != missed {
			return fmt.Sprintf("there are %d, %d of them changed", len(list.Items), changed), nil
		}
		return "", nil
	})
}

// resyncs are looked at, resyncEvery apart.
const (
	resyncs     = 2
	resyncEvery = 15 * time.Second
)

// resync has everything compared over and over, and counts what is written for it.
func (b *bench) resync(ctx context.Context) error {
	progress("%d comparisons of everything, %s apart", resyncs, resyncEvery)
	if _, err := b.settled(ctx); err != nil { // Events of the new pods are still to be shown
		return err
	}
	if err := b.StopKubelet(ctx); err != nil {
		return err
	}
	b.SetKubeletArgs(append(slices.Clone(kubeletArgs), "--resync-period="+resyncEvery.String())...)
	if err := b.StartKubelet(ctx); err != nil {
		return err
	}
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	compared, err := b.evaluated(ctx)
	if err != nil {
		return err
	}
	objects := float64(b.pods + 3*b.services)
	err = b.Wait(ctx, "everything to be compared", func(ctx context.Context) (string, error) {
		now, err := b.evaluated(ctx)
		if err == nil && now-compared < resyncs*objects {
			return fmt.Sprintf("%.0f objects of %.0f were", now-compared, resyncs*objects), nil
		}
		return "", err
	})
	if err != nil {
		return err
	}
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	writes = slices.DeleteFunc(writes, func(w lab.Write) bool { return strings.HasPrefix(w.Resource, "nodes") })
	b.atMost(fmt.Sprintf("writes in %d comparisons of everything", resyncs), float64(len(writes)), 0, "")
	b.tally(writes, 1)
	return nil
}

// evaluated is how many objects the virtual kubelet has looked at.
func (b *bench) evaluated(ctx context.Context) (float64, error) {
	metrics, err := b.KubeletMetrics(ctx)
	if err != nil {
		return 0, err
	}
	return metrics.Sum("liqo_virtual_kubelet_reflection_item_counter", nil), nil
}

// awaitGone returns when no copy is left of the objects that were deleted.
func (b *bench) awaitGone(ctx context.Context, k *kind, from int) error {
	return b.Wait(ctx, "copies of what was deleted to go", func(ctx context.Context) (string, error) {
		for i := from; i < from+missed; i++ {
			if orphan, err := b.copyOf(ctx, k, k.object(i)); err != nil || orphan != nil {
				return "that of " + k.object(i) + " is there", err
			}
		}
		return "", nil
	})
}
