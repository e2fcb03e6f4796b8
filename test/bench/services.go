// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/lab"
)

// parallel is how many requests the benchmark itself has under way.
const parallel = 8

func (b *bench) reflectedServices(ctx context.Context) error {
	progress("%d Services", b.services)
	begun := time.Now()
	if err := b.eachService(ctx, b.createService); err != nil {
		return err
	}
	created := time.Since(begun)
	if err := b.awaitServices(ctx, b.services, ""); err != nil {
		return err
	}
	b.found(fmt.Sprintf("%d Services created, then all reflected", b.services), "%.1f s, then %.1f s", created.Seconds(), (time.Since(begun) - created).Seconds())
	return b.perService(ctx, "creation")
}

func (b *bench) changedServices(ctx context.Context) error {
	progress("a change of each Service")
	patch := []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)
	err := b.eachService(ctx, func(ctx context.Context, name string) error {
		_, err := b.Consumer.Client.CoreV1().Services(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := b.awaitServices(ctx, b.services, "changed=yes"); err != nil {
		return err
	}
	return b.perService(ctx, "change")
}

// perService records the writes since the last count, those of Events apart.
func (b *bench) perService(ctx context.Context, what string) error {
	writes, err := b.settled(ctx)
	if err != nil {
		return err
	}
	n := events(writes)
	b.atMost("our writes per Service "+what, float64(len(writes)-n)/float64(b.services), 1, "")
	b.atMost("our Events per Service "+what, float64(n)/float64(b.services), 1, "")
	return nil
}

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
	if err := b.createService(ctx, first); err != nil {
		return err
	}
	err := b.Wait(ctx, "the first new Service to be reflected", func(ctx context.Context) (string, error) {
		_, err := b.Provider.Client.CoreV1().Services(twin).Get(ctx, first, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "it is not in the provider", nil
		}
		return "", err
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
	for kind, n := range lab.Tally(needless) {
		b.found("   of these: "+kind, "%d", n)
	}
	return nil
}

// deletedWhileDown deletes objects that the virtual kubelet cannot see go.
func (b *bench) deletedWhileDown(ctx context.Context) error {
	progress("objects deleted while the virtual kubelet is down")
	if err := b.StopKubelet(ctx); err != nil {
		return err
	}
	const gone = 10
	for i := range min(gone, b.services) {
		if err := b.Consumer.Client.CoreV1().Services(namespace).Delete(ctx, serviceName(i), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	if err := b.StartKubelet(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := b.awaitServices(ctx, b.services-min(gone, b.services), "changed=yes"); err != nil {
		return err
	}
	b.found(fmt.Sprintf("copies of %d Services deleted while it was down are gone", gone), "%.1f s after its start", time.Since(begun).Seconds())
	return nil
}

func (b *bench) resources(context.Context) error {
	usage, err := b.Usage()
	if err != nil {
		return err
	}
	for name, used := range usage {
		b.found(name, "%d MiB now, %d at most, %.1f s of CPU", used.RSS>>20, used.PeakRSS>>20, used.CPU.Seconds())
	}
	return nil
}

func serviceName(i int) string { return fmt.Sprintf("service-%04d", i) }

func (b *bench) eachService(ctx context.Context, do func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range b.services {
		group.Go(func() error { return do(ctx, serviceName(i)) })
	}
	return group.Wait()
}

func (b *bench) createService(ctx context.Context, name string) error {
	_, err := b.Consumer.Client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

// awaitServices returns when the provider holds just n reflected Services that match the selector.
func (b *bench) awaitServices(ctx context.Context, n int, selector string) error {
	selectors := []string{wire.OriginLabel + "=" + lab.ConsumerID}
	if selector != "" {
		selectors = append(selectors, selector)
	}
	return b.Wait(ctx, fmt.Sprintf("%d reflected Services", n), func(ctx context.Context) (string, error) {
		list, err := b.Provider.Client.CoreV1().Services(twin).List(ctx, metav1.ListOptions{LabelSelector: strings.Join(selectors, ",")})
		if err != nil {
			return "", err
		}
		if len(list.Items) != n {
			return fmt.Sprintf("there are %d", len(list.Items)), nil
		}
		return "", nil
	})
}
