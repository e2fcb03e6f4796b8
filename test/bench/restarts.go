// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// restart stops the virtual kubelet as an upgrade would, and starts it again while all objects exist.
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
		// The restarted virtual kubelet may write heartbeats, and must write the Service that was just created.
		if !strings.HasPrefix(write.Resource, "nodes") && write.Name != first {
			needless = append(needless, write)
		}
	}
	b.atMost("writes after it for what had not changed", float64(len(needless)), 0, "")
	b.tally(needless, 1)
	return b.delete(ctx, service, first)
}

// adopted measures only a restart, with many existing objects.
func (b *bench) adopted(ctx context.Context) error {
	progress("%d objects", b.adopt)
	kinds := b.kinds()[1:3] // the kinds of ConfigMaps and Secrets
	for _, k := range kinds {
		k.count = b.adopt / len(kinds)
	}
	if err := b.created(ctx, kinds...); err != nil {
		return err
	}
	b.found("objects on the provider when the virtual kubelet is started again", "%d", b.adopt)
	return b.restart(ctx)
}

// missed is the number of objects of a kind that are created, changed and deleted while the virtual kubelet is down.
const missed = 10

// awayAndKilled measures how long the virtual kubelet takes to process the changes that were made while it was down.
func (b *bench) awayAndKilled(ctx context.Context) error {
	for round, end := range []struct {
		name string
		down func(context.Context) error
	}{{"stopped", b.StopKubelet}, {"killed at work", b.killAtWork}} {
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

// killAtWork kills the virtual kubelet while it processes changes. It changes objects that the previous round did not
// change.
func (b *bench) killAtWork(ctx context.Context) error {
	const value = "burst"
	k := b.kinds()[1]
	changes := make(chan error, 1)
	go func() {
		changes <- b.each(ctx, k, 2*missed, k.count, func(ctx context.Context, k *kind, name string) error { return b.change(ctx, k, name, value) })
	}()
	_, copies := b.ends(k)
	err := b.Wait(ctx, "some of the changes to arrive", func(ctx context.Context) (string, error) {
		list, err := copies.List(ctx, metav1.ListOptions{LabelSelector: "changed=" + value, Limit: 1})
		if err == nil && len(list.Items) == 0 {
			return "none has", nil
		}
		return "", err
	})
	b.KillKubelet()
	return errors.Join(err, <-changes)
}

// catchUp changes objects while the virtual kubelet is down, starts it, and waits until all copies are correct.
func (b *bench) catchUp(ctx context.Context, round int) (time.Duration, error) {
	value := fmt.Sprintf("away-%d", round)
	from := round * 2 * missed
	for _, k := range b.kinds() {
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
	for _, k := range b.kinds() {
		if err := b.awaitSame(ctx, k); err != nil {
			return 0, err
		}
	}
	if err := b.awaitPods(ctx, gone, value); err != nil {
		return 0, err
	}
	return time.Since(begun), nil
}

// awaitSame waits until every object has an equal copy and there are no other copies.
func (b *bench) awaitSame(ctx context.Context, k *kind) error {
	sources, copies := b.ends(k)
	return b.Wait(ctx, "copies of kind "+k.name+" to be as the objects are", func(ctx context.Context) (string, error) {
		want, err := states(ctx, sources, label+"=yes")
		if err != nil {
			return "", err
		}
		have, err := states(ctx, copies, ofOurs)
		if err != nil {
			return "", err
		}
		for name, state := range want {
			if have[name] != state {
				return fmt.Sprintf("%s is %q, its copy %q", name, state, have[name]), nil
			}
		}
		if len(have) > len(want) {
			return fmt.Sprintf("there are %d orphans", len(have)-len(want)), nil
		}
		return "", nil
	})
}

// states returns, for the name of each object, the value that the last change has set.
func states(ctx context.Context, client dynamic.ResourceInterface, selector string) (map[string]string, error) {
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].GetName()] = "is there" + changeOf(&list.Items[i])
	}
	return found, nil
}

// replacePods deletes some pods, which their Deployments then replace, and changes other pods.
func (b *bench) replacePods(ctx context.Context, value string) (gone []string, err error) {
	for _, app := range []string{"offloaded", tokensApp} {
		pods := b.Consumer.Client.CoreV1().Pods(namespace)
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
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
	}
	return gone, nil
}

// awaitPods waits until the provider has the same pods as the consumer, and has no tokens of deleted pods.
func (b *bench) awaitPods(ctx context.Context, gone []string, value string) error {
	return b.Wait(ctx, "the ShadowPods to be those of the pods", func(ctx context.Context) (string, error) {
		list, err := b.Provider.Dynamic.Resource(offloadingv1beta1.ShadowPodGVR).Namespace(remoteNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app in (offloaded," + tokensApp + ")"})
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
		if len(list.Items) != b.pods+few || changed != 2*missed {
			return fmt.Sprintf("there are %d, %d of them changed", len(list.Items), changed), nil
		}
		tokens, err := b.Provider.Client.CoreV1().Secrets(remoteNamespace).List(ctx, metav1.ListOptions{LabelSelector: wire.ServiceAccountNameLabel})
		if err == nil && len(tokens.Items) != few {
			return fmt.Sprintf("there are tokens of %d pods", len(tokens.Items)), nil
		}
		return "", err
	})
}

// resyncs is the number of resyncs during which writes are counted. resyncEvery is the interval between them.
const (
	resyncs     = 2
	resyncEvery = 15 * time.Second
)

// resync makes the virtual kubelet compare all objects repeatedly, and counts the resulting writes.
func (b *bench) resync(ctx context.Context) error {
	progress("%d comparisons of everything, %s apart", resyncs, resyncEvery)
	if err := b.awaitRecorded(ctx, b.pods+few); err != nil {
		return err
	}
	if _, err := b.settled(ctx); err != nil { // Events of the new pods may still have to be written
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

// evaluated returns how many evaluations the virtual kubelet has done.
func (b *bench) evaluated(ctx context.Context) (float64, error) {
	metrics, err := b.KubeletMetrics(ctx)
	if err != nil {
		return 0, err
	}
	return metrics.Sum("liqo_virtual_kubelet_reflection_item_counter", nil), nil
}
