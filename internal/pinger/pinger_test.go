// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pinger

import (
	"errors"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestVerdictOnPings(t *testing.T) {
	for _, test := range []struct {
		code       int
		body, want string
	}{
		{200, "ok", ""},
		{200, "ok\n", ""},
		{200, "<html>please log in</html>", "another service responds there"},
		{401, "", "renew the kubeconfig"},
		{403, "", "peering"},
		{429, "", ""},
		{500, "", "is failing: x returned 500 Internal Server Error"},
	} {
		err := evaluateResponse("x", test.code, []byte(test.body))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d %q: %v, want %q", test.code, test.body, err, test.want)
		}
	}
}

func TestProviderIsDownAfterSomeLostPings(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	pinger := New(nil, 10*time.Second, time.Second, clk)
	changes := 0
	pinger.Subscribe(func() { changes++ })
	step := func(err error, wantNext time.Duration, wantDown bool, wantChanges int) {
		t.Helper()
		if next := pinger.recordResult(err); next != wantNext {
			t.Errorf("next ping in %s, want %s", next, wantNext)
		}
		if down := pinger.Unreachable() != nil; down != wantDown || changes != wantChanges {
			t.Errorf("down %v after %d changes, want %v after %d", down, changes, wantDown, wantChanges)
		}
	}
	first, second := errors.New("first"), errors.New("second")
	if settled(pinger) {
		t.Error("the state is known before the first ping")
	}
	step(nil, 10*time.Second, false, 1) // the server was down before this step
	if !settled(pinger) {
		t.Error("the state is not known after an answer")
	}
	step(first, time.Second, false, 1)
	step(first, time.Second, false, 1)
	step(first, 2*time.Second, true, 2)
	step(second, 2*time.Second, true, 2)
	if got := pinger.Unreachable(); !errors.Is(got, first) {
		t.Errorf("the reason changed to %v: that is a write for every ping", got)
	}
	step(nil, 10*time.Second, false, 3)
	step(second, time.Second, false, 3)
}

func settled(p *Pinger) bool {
	select {
	case <-p.Settled():
		return true
	default:
		return false
	}
}

func TestStateIsKnownAfterSomeLostPings(t *testing.T) {
	pinger := New(nil, 10*time.Second, time.Second, testclock.NewFakeClock(time.Now()))
	for attempt := 1; attempt <= lostPings; attempt++ {
		if settled(pinger) {
			t.Errorf("the state is known after %d lost pings", attempt-1)
		}
		pinger.recordResult(errors.New("lost"))
	}
	if !settled(pinger) {
		t.Error("the state is not known after all lost pings")
	}
}

func TestPingsCanBeSwitchedOff(t *testing.T) {
	pinger := New(nil, 0, time.Second, testclock.NewFakeClock(time.Now()))
	pinger.Run(t.Context())
	if err := pinger.Unreachable(); err != nil || !settled(pinger) {
		t.Errorf("without pings the server is down: %v", err)
	}
}
