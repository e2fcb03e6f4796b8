// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

func TestRenewalOfTokens(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	h := &Handler{Base: engine.Base{Env: engine.EnvOf(engine.Options{Clock: clock})}}
	in := func(left, life time.Duration) token {
		return token{value: "x", expires: clock.Now().Add(left), life: life}
	}
	for name, test := range map[string]struct {
		held        map[string]token
		least, most time.Duration
	}{
		"fresh":            {map[string]token{"a": in(time.Hour, time.Hour)}, 48 * time.Minute, 51 * time.Minute},
		"the first counts": {map[string]token{"a": in(time.Hour, time.Hour), "b": in(10*time.Minute, 10*time.Minute)}, 8 * time.Minute, 8*time.Minute + 30*time.Second},
		"a year":           {map[string]token{"a": in(8760*time.Hour, 8760*time.Hour)}, 7008 * time.Hour, 7008*time.Hour + maxTokenJitterDelay},
		"clocks disagree":  {map[string]token{"a": in(-time.Hour, time.Hour)}, minTokenInterval, minTokenInterval},
		"no life at all":   {map[string]token{"a": {value: "x", expires: clock.Now()}}, minTokenInterval, minTokenInterval},
	} {
		if wait := h.untilRenewal(test.held); wait < test.least || wait > test.most {
			t.Errorf("%s: in %s, want %s to %s", name, wait, test.least, test.most)
		}
	}
}

func TestLabelOfALongServiceAccount(t *testing.T) {
	t.Parallel()
	if got := labelValue("robot"); got != "robot" {
		t.Errorf("a short name became %q", got)
	}
	one, other := labelValue(strings.Repeat("x", 63)+"a"), labelValue(strings.Repeat("x", 63)+"b")
	if len(one) != 63 || one == other {
		t.Errorf("long names became %q and %q", one, other)
	}
}

// TestNotesOnTokensThatMakeNoSense checks that a token counts as missing if the notes on its Secret are unreadable or
// do not match.
func TestNotesOnTokensThatMakeNoSense(t *testing.T) {
	t.Parallel()
	sources := []tokenSource{{key: "a", seconds: 600}}
	for name, annotations := range map[string]map[string]any{
		"none at all":  nil,
		"no pod":       {TokensAnnotation: `{"a":{"expires":"2026-01-01T00:00:00Z","seconds":600}}`},
		"no JSON":      {"offloading.liqo.io/service-account-for-pod-uid": "u", TokensAnnotation: "{"},
		"another sum":  {"offloading.liqo.io/service-account-for-pod-uid": "u", TokensAnnotation: `{"a":{"expires":"2026-01-01T00:00:00Z","seconds":600,"sum":"x"}}`},
		"no time":      {"offloading.liqo.io/service-account-for-pod-uid": "u", "offloading.liqo.io/service-account-expiration": "soon"},
		"another time": {"offloading.liqo.io/service-account-for-pod-uid": "u", TokensAnnotation: `{"a":{"expires":5}}`},
	} {
		secret := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": annotations}, "data": map[string]any{"a": "eA=="}}}
		if held := heldTokens(secret, sources, nil); len(held) != 0 {
			t.Errorf("%s: %v", name, held)
		}
	}
}
