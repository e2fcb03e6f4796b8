// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// updates are made at this rate, for so long.
	updatesPerSecond = 100
	updatesFor       = 10 * time.Second
)

// latency measures how long after a change is asked for here its copy is changed there.
func (b *bench) latency(ctx context.Context) error {
	k := b.kinds()[1]
	progress("%d updates a second for %s", updatesPerSecond, updatesFor)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := b.watchCopies(ctx)
	if err != nil {
		return err
	}
	total := int(updatesFor.Seconds()) * updatesPerSecond
	tick := time.NewTicker(time.Second / updatesPerSecond)
	defer tick.Stop()
	var mu sync.Mutex
	asked := map[string]time.Time{}
	var wg sync.WaitGroup
	var failure error
	for i := range total {
		<-tick.C
		wg.Go(func() {
			// Each round is on another object, so that no update overtakes another.
			value := fmt.Sprintf("update-%d", i)
			begun := time.Now()
			err := b.change(ctx, k, k.object(i%k.count), value)
			mu.Lock()
			defer mu.Unlock()
			asked[value] = begun
			if err != nil {
				failure = err
			}
		})
	}
	wg.Wait()
	if failure != nil {
		return failure
	}
	delays, err := seen.delays(ctx, asked)
	if err != nil {
		return err
	}
	slices.Sort(delays)
	percentile := func(p int) float64 { return float64(delays[(len(delays)-1)*p/100].Microseconds()) / 1000 }
	b.atMostTime(fmt.Sprintf("%d updates a second: half are there within", updatesPerSecond), percentile(50), 10, " ms")
	b.atMostTime("   99 of 100 within", percentile(99), 50, " ms")
	return nil
}

// arrivals are when copies were seen with which value.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
}

// watchCopies notes when ConfigMaps of the provider change.
func (b *bench) watchCopies(ctx context.Context) (*arrivals, error) {
	watcher, err := b.Provider.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(remoteNamespace).
		Watch(ctx, metav1.ListOptions{LabelSelector: label + "=yes"})
	if err != nil {
		return nil, err
	}
	a := &arrivals{at: map[string]time.Time{}}
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok {
				a.note(object.GetLabels()["changed"])
			}
		}
	}()
	return a, nil
}

func (a *arrivals) note(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.at[value]; !known {
		a.at[value] = time.Now()
	}
}

// delays waits until all that was asked for has arrived.
func (a *arrivals) delays(ctx context.Context, asked map[string]time.Time) ([]time.Duration, error) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		delays := a.known(asked)
		if len(delays) == len(asked) {
			return delays, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d updates never arrived", len(asked)-len(delays), len(asked))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *arrivals) known(asked map[string]time.Time) (delays []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for value, at := range asked {
		if there, ok := a.at[value]; ok {
			delays = append(delays, there.Sub(at))
		}
	}
	return delays
}
