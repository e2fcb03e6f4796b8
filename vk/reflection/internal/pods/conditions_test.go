// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// conditions returns a status with the usual conditions of a pod and additional ones.
func conditions(t *testing.T, ready, reason, more string) map[string]any {
	t.Helper()
	return parse(t, fmt.Sprintf(`{conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: %q, reason: %q, lastTransitionTime: T1}%s]}`, ready, reason, more))
}

func gate(name, status string) string {
	return fmt.Sprintf(`, {type: %s, status: %q, lastTransitionTime: T0}`, name, status)
}

func TestGates(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	const closed = gatesNotReady
	for name, tc := range map[string]struct {
		theirs, own     string // readiness gates of the provider's pod and of the local pod
		ready, reason   string // status and reason of the condition Ready on the provider
		types           []string
		wantA, wantB    string // expected status of the conditions a and b
		want, wantSince string // expected status and transition time of the condition Ready
		ignored         bool   // whether the provider's values of readiness gates are ignored
	}{
		"no gates":                     {ready: "True", want: "True", wantSince: "T1"},
		"a gate nobody has written":    {ready: "False", reason: closed, types: []string{"a"}, want: "False", wantSince: "T1"},
		"theirs alone":                 {gate("a", "True"), "", "True", "", []string{"a"}, "True", "", "True", "T1", false},
		"ours alone, open":             {"", gate("a", "True"), "False", closed, []string{"a"}, "True", "", "True", "2026-02-03T04:05:06Z", false},
		"ours alone, closed":           {"", gate("a", "False"), "False", closed, []string{"a"}, "False", "", "False", "T1", false},
		"ours contradicts":             {gate("a", "True"), gate("a", "False"), "True", "", []string{"a"}, "False", "", "False", "2026-02-03T04:05:06Z", false},
		"one of each, open":            {gate("b", "True"), gate("a", "True"), "False", closed, []string{"a", "b"}, "True", "True", "True", "2026-02-03T04:05:06Z", false},
		"one of each, theirs closed":   {gate("b", "False"), gate("a", "True"), "False", closed, []string{"a", "b"}, "True", "False", "False", "T1", false},
		"not ready for another reason": {"", gate("a", "True"), "False", "RemoteClusterUnavailable", []string{"a"}, "True", "", "False", "T1", false},
		"ours that is no gate":         {"", gate("a", "True"), "False", closed, nil, "True", "", "False", "T1", false},
		"theirs that is no gate":       {gate("a", "False"), "", "True", "", nil, "False", "", "True", "T1", false},

		"theirs alone, not believed":    {gate("a", "True"), "", "True", "", []string{"a"}, "", "", "False", "2026-02-03T04:05:06Z", true},
		"ours open, theirs not heard":   {gate("a", "False"), gate("a", "True"), "False", closed, []string{"a"}, "True", "", "True", "2026-02-03T04:05:06Z", true},
		"ours closed, theirs not heard": {gate("a", "True"), gate("a", "False"), "True", "", []string{"a"}, "False", "", "False", "2026-02-03T04:05:06Z", true},
		"nobody's, not believed":        {"", "", "True", "", []string{"a"}, "", "", "False", "2026-02-03T04:05:06Z", true},
		"no gate, not believed":         {gate("a", "False"), "", "True", "", nil, "False", "", "True", "T1", true},
	} {
		t.Run(name, func(t *testing.T) {
			next, local := conditions(t, tc.ready, tc.reason, tc.theirs), conditions(t, tc.ready, tc.reason, tc.own)
			followed := []string{"*"}
			if tc.ignored {
				followed = nil
			}
			got, note := Conditions(next, local, tc.types, followed, "", now)
			ready := findCondition(got, "Ready")
			found := []any{findCondition(got, "a")["status"], findCondition(got, "b")["status"], ready["status"], ready["lastTransitionTime"]}
			for i, want := range []string{tc.wantA, tc.wantB, tc.want, tc.wantSince} {
				if found[i] != want && !(found[i] == nil && want == "") {
					t.Errorf("%v, want %s of [a b Ready since]", found, want)
				}
			}
			if diff := cmp.Diff(conditions(t, tc.ready, tc.reason, tc.theirs), next); diff != "" {
				t.Errorf("the provider's status was modified:\n%s", diff)
			}
			again, noteAgain := Conditions(next, got, tc.types, followed, note, now.Add(time.Hour))
			if diff := cmp.Diff(got, again); diff != "" || note != noteAgain {
				t.Errorf("shown once, it changes again, the note from %s to %s:\n%s", note, noteAgain, diff)
			}
		})
	}
}

// TestConditionsFollowWhoeverWrites checks that a condition that was reflected from the provider follows the provider's
// changes, and that a condition that a local client has written is no longer changed.
func TestConditionsFollowWhoeverWrites(t *testing.T) {
	t.Run("of a gate", func(t *testing.T) { followsWhoeverWrites(t, "a") })
	t.Run("of no gate", func(t *testing.T) { followsWhoeverWrites(t) })
}

func followsWhoeverWrites(t *testing.T, types ...string) {
	now := time.Now()
	shown, note := Conditions(conditions(t, "True", "", gate("a", "True")), conditions(t, "True", "", ""), types, types, "", now)
	if note == "" {
		t.Fatal("nothing tells that the condition is the provider's")
	}
	// The provider first changes the condition, and then removes it.
	for _, theirs := range []string{gate("a", "False"), ""} {
		got, noted := Conditions(conditions(t, "False", gatesNotReady, theirs), shown, types, types, note, now)
		if diff := cmp.Diff(conditions(t, "False", gatesNotReady, theirs), got); diff != "" || noted == note {
			t.Errorf("the provider's condition became %q, note %s (-want +got):\n%s", theirs, noted, diff)
		}
	}
	ours := conditions(t, "True", "", `, {type: a, status: "False", reason: Draining}`)
	for range 2 {
		shown, note = Conditions(conditions(t, "True", "", gate("a", "True")), ours, types, types, note, now)
		if findCondition(shown, "a")["reason"] != "Draining" || isTrue(findCondition(shown, "Ready")) != (types == nil) {
			t.Errorf("what was written here became %v", shown)
		}
		ours = shown
	}
	if _, note := Conditions(conditions(t, "True", "", gate("a", "True")), conditions(t, "True", "", ""), types, types, "no note", now); note == "" || note == "no note" {
		t.Errorf("a note that is none became %q", note)
	}
}

// TestConditionsOfKubelets checks that conditions written by kubelets are always taken from the provider. The order of
// the local conditions must not change, because a different order would require a write.
func TestConditionsOfKubelets(t *testing.T) {
	next := parse(t, `{conditions: [{type: Initialized, status: "True"}, {type: Ready, status: "True"}]}`)
	local := parse(t, `{conditions: [{type: DisruptionTarget, status: "True"}, {type: Ready, status: "False"}, {type: PodResizePending, status: "True"}]}`)
	want := parse(t, `{conditions: [{type: DisruptionTarget, status: "True"}, {type: Ready, status: "True"}, {type: Initialized, status: "True"}]}`)
	got, note := Conditions(next, local, nil, nil, "", time.Now())
	if diff := cmp.Diff(want, got); diff != "" || note != "" {
		t.Errorf("note %q (-want +got):\n%s", note, diff)
	}
}
