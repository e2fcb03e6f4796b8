// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestLater(t *testing.T) {
	refused, soon := errors.New("refused"), errors.New("unavailable")
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"a refusal":           {Later(refused, time.Minute), time.Minute},
		"with more said":      {fmt.Errorf("creating it, %w", Later(refused, time.Minute)), time.Minute},
		"two refusals":        {errors.Join(Later(refused, time.Hour), Later(refused, time.Minute)), time.Minute},
		"a refusal and more":  {errors.Join(Later(refused, time.Minute), soon), 0},
		"joined with nothing": {errors.Join(nil, Later(refused, time.Minute)), time.Minute},
		"another error":       {soon, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var counted error
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, c.err })
			result, err := Failures(inner, func(err error) { counted = err }).Reconcile(t.Context(), reconcile.Request{})
			if result.RequeueAfter != c.want || (err == nil) != (c.want > 0) {
				t.Errorf("result = %v, error = %v, want another attempt after %s", result, err, c.want)
			}
			if !errors.Is(counted, c.err) {
				t.Errorf("counted %v", counted)
			}
		})
	}
}

// TestRequestsAreRepeatedWhenTheAPIServerSuggests checks that a request to an overloaded API server is repeated after
// the delay that the API server suggests, within limits.
func TestRequestsAreRepeatedWhenTheAPIServerSuggests(t *testing.T) {
	for suggested, want := range map[int]time.Duration{0: time.Second, 7: 7 * time.Second, 3600: 30 * time.Second} {
		inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, fmt.Errorf("creating it, %w", apierrors.NewTooManyRequests("too many requests", suggested))
		})
		result, err := Failures(inner, nil).Reconcile(t.Context(), reconcile.Request{})
		if err != nil || result.RequeueAfter < want || result.RequeueAfter > want+want/2 {
			t.Errorf("%d seconds: after %s, %v, want %s", suggested, result.RequeueAfter, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	var r Refusals
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	for i, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if wait := r.Next(key, "1"); wait < most*time.Minute || wait >= 2*most*time.Minute {
			t.Errorf("refusal %d: %s, want %d to %d minutes", i, wait, most, 2*most)
		}
	}
	for range 100 {
		if wait := r.Next(key, "1"); wait < maxRefusalDelay || wait > 2*maxRefusalDelay {
			t.Fatalf("wait = %s", wait)
		}
	}
	if wait := r.Next(key, "2"); wait >= 2*time.Minute {
		t.Errorf("another version waits %s", wait)
	}
	if keys := r.In("shop"); len(keys) != 1 || keys[0] != key || len(r.In("bank")) > 0 {
		t.Errorf("in shop %v, in bank %v", keys, r.In("bank"))
	}
	if r.Drop(key); len(r.In("shop")) > 0 {
		t.Error("it is not forgotten")
	}
}

// TestRefusalsByFormerRules checks that refusals while admission may apply outdated rules are followed by an attempt at
// the end of this time, for each version of the object. These refusals must not lengthen later delays.
func TestRefusalsByFormerRules(t *testing.T) {
	var r Refusals
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	r.Next(key, "1")
	r.RetryAt(key, time.Now().Add(30*time.Second))
	for _, version := range []string{"1", "1", "2", "2"} {
		if wait := r.Next(key, version); wait <= 0 || wait > 30*time.Second {
			t.Errorf("version %s: %s, want the rest of 30 seconds", version, wait)
		}
	}
	r.RetryAt(key, time.Now())
	if wait := r.Next(key, "2"); wait < time.Minute || wait >= 2*time.Minute {
		t.Errorf("afterwards: %s, want 1 to 2 minutes", wait)
	}
}
