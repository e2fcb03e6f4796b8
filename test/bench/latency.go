// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// updatesPerSecond is the rate of the updates. updatesFor is how long they are sent.
	updatesPerSecond = 100
	updatesFor       = 10 * time.Second
)

// latency measures the delay between a change on the consumer and the resulting change to the copy on the provider.
func (b *bench) latency(ctx context.Context) error {
	progress("%d updates a second for %s", updatesPerSecond, updatesFor)
	delays, err := b.updates(ctx, b.kinds()[1])
	if err != nil {
		return err
	}
	b.atMostTime(fmt.Sprintf("%d updates a second: half are there within", updatesPerSecond), milliseconds(percentile(delays, 50)), 10, " ms")
	b.atMostTime("   99 of 100 within", milliseconds(percentile(delays, 99)), 50, " ms")
	b.found("   99 of 100 where nothing is reflected", "%.2f ms", milliseconds(b.plain.slowestUpdates))
	b.atMostTime("   ratio of the two", percentile(delays, 99).Seconds()/b.plain.slowestUpdates.Seconds(), 5, "")
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentile returns the percentile p of sorted delays.
func percentile(delays []time.Duration, p int) time.Duration { return delays[(len(delays)-1)*p/100] }

// updates changes objects of a kind. It returns the sorted delays until the copies were changed.
func (b *bench) updates(ctx context.Context, k *kind) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := b.watchCopies(ctx, k)
	if err != nil {
		return nil, err
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
			// Successive updates change different objects, so that an update cannot overtake another update of the same
			// object.
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
		return nil, failure
	}
	delays, err := seen.delays(ctx, asked)
	slices.Sort(delays)
	return delays, err
}

// arrivals records when each value first arrived in a copy.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
}

// watchCopies watches copies and records when they change.
func (b *bench) watchCopies(ctx context.Context, k *kind) (*arrivals, error) {
	_, copies := b.ends(k)
	// The watch starts at the current version, because listing the existing copies would delay the first updates.
	now, err := copies.List(ctx, metav1.ListOptions{LabelSelector: label + "=yes", Limit: 1})
	if err != nil {
		return nil, err
	}
	watcher, err := copies.Watch(ctx, metav1.ListOptions{LabelSelector: label + "=yes", ResourceVersion: now.GetResourceVersion()})
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

// delays waits until all requested changes have arrived, and returns their delays.
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
