// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host/document"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	return object
}

const running = `
phase: Running
podIP: 10.244.0.7
conditions:
- {type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: DisruptionTarget, status: "True", reason: EvictionByEvictionAPI}
containerStatuses:
- {name: web, ready: true, restartCount: 2, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}
- {name: sidecar, ready: true, restartCount: 0, state: {waiting: {reason: CrashLoopBackOff}}}
- {name: done, ready: false, restartCount: 0, state: {terminated: {exitCode: 137, reason: OOMKilled}}}
- {name: empty, restartCount: 0}
`

func TestReject(t *testing.T) {
	before := parse(t, running)
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	got := Reject(before, corev1.PodFailed, "OffloadingAborted", "why", now)
	want := parse(t, `
phase: Failed
reason: OffloadingAborted
message: why
podIP: 10.244.0.7
conditions:
- {type: Ready, status: "False", reason: OffloadingAborted, lastTransitionTime: "2026-02-03T04:05:06Z"}
- {type: DisruptionTarget, status: "True", reason: EvictionByEvictionAPI}
containerStatuses:
- {name: web, ready: false, restartCount: 2, state: {terminated: {exitCode: 1, reason: OffloadingAborted, startedAt: "2026-01-01T00:00:00Z", finishedAt: "2026-02-03T04:05:06Z"}}}
- {name: sidecar, ready: false, restartCount: 0, state: {terminated: {exitCode: 1, reason: OffloadingAborted, finishedAt: "2026-02-03T04:05:06Z"}}}
- {name: done, ready: false, restartCount: 0, state: {terminated: {exitCode: 137, reason: OOMKilled}}}
- {name: empty, ready: false, restartCount: 0, state: {terminated: {exitCode: 1, reason: OffloadingAborted, finishedAt: "2026-02-03T04:05:06Z"}}}
`)
	if !document.Of(want).Equal(document.Of(got)) {
		t.Errorf("rejected (-want +got):\n%s", cmp.Diff(want, got))
	}
	if diff := cmp.Diff(parse(t, running), before); diff != "" {
		t.Errorf("the cached status was modified:\n%s", diff)
	}
}

func TestRejectOthers(t *testing.T) {
	done := Reject(parse(t, running), corev1.PodSucceeded, "RemotePodTerminated", "", time.Now())
	if code := exitCode(byName(done["containerStatuses"])["web"]); code == nil || *code != 0 {
		t.Errorf("a container of a succeeded pod has the exit code %v, want 0", code)
	}
	waiting := Reject(parse(t, running), corev1.PodPending, "OffloadingBackOff", "", time.Now())
	if code := exitCode(byName(waiting["containerStatuses"])["web"]); code != nil {
		t.Errorf("a container of a waiting pod has ended with %d", *code)
	}
	if got := Reject(nil, corev1.PodPending, "OffloadingBackOff", "", time.Now()); got["phase"] != "Pending" || got["reason"] != "OffloadingBackOff" {
		t.Errorf("a pod without status became %v", got)
	}
}

// TestRestartsAreNoted checks that a later process continues with the counts of an earlier one, even if the pod was
// recreated in the same second that it started.
func TestRestartsAreNoted(t *testing.T) {
	shown := parse(t, "{startTime: T1, containerStatuses: [{name: c, restartCount: 4}]}")
	fresh := parse(t, "{startTime: T1, containerStatuses: [{name: c, restartCount: 0}]}")
	for text, want := range map[string]map[string]int64{
		`{"pod":"a","before":{"c":3}}`: {"c": 5}, // the note belongs to another pod
		`{"pod":"a"}`:                  {"c": 5},
		`{"pod":"b","before":{"c":4}}`: {"c": 4}, // the note belongs to this pod
		`{"pod":"b"}`:                  nil,
		`{"pod":"a","before":{"d":2}}`: {"c": 5, "d": 3},
		`{"pod":"a","before":{"c":9}}`: {"c": 10}, // the note is used, because the local status has lost the count
		// If there is no note, the difference between the counts is used.
		"":                                       {"c": 4},
		"nonsense":                               {"c": 4},
		`{"pod":"b","before":{"c":-1}}`:          {"c": 4},
		`{"pod":"b","before":{"c":99999999999}}`: {"c": 4},
	} {
		var restarts Restarts
		restarts.Recall(text)
		if diff := cmp.Diff(want, restarts.Extra("b", shown, fresh)); diff != "" {
			t.Errorf("with the note %q (-want +got):\n%s", text, diff)
		}
		var later Restarts
		later.Recall(restarts.Note())
		if diff := cmp.Diff(want, later.Extra("b", shown, fresh)); diff != "" {
			t.Errorf("with the note %q, a process later (-want +got):\n%s", text, diff)
		}
		before := restarts.Note()
		if restarts.Recall(`{"pod":"z"}`); restarts.Note() != before {
			t.Errorf("what was seen was replaced by a note: %s", restarts.Note())
		}
	}
	if note := new(Restarts).Note(); note != "" {
		t.Errorf("nothing was seen, and the note is %s", note)
	}
}

func TestUntouched(t *testing.T) {
	for text, want := range map[string]bool{
		"{}": true, "{phase: Pending}": true, "{phase: Pending, conditions: [{type: PodScheduled}]}": true,
		"{phase: Pending, containerStatuses: [{name: web}]}": false, "{phase: Pending, initContainerStatuses: [{name: init}]}": false,
		"{phase: Running}": false, "{phase: Failed}": false,
	} {
		if got := Untouched(parse(t, text)); got != want {
			t.Errorf("Untouched(%s) = %t, want %t", text, got, want)
		}
	}
}

func TestRestarts(t *testing.T) {
	type step struct {
		uid, local, remote string
		want               map[string]int64
	}
	for name, steps := range map[string][]step{
		"nothing known":           {{"a", "{}", "{}", nil}},
		"more shown than counted": {{"a", "{containerStatuses: [{name: c, restartCount: 5}]}", "{containerStatuses: [{name: c, restartCount: 3}]}", map[string]int64{"c": 2}}},
		"the same":                {{"a", "{containerStatuses: [{name: c, restartCount: 5}]}", "{containerStatuses: [{name: c, restartCount: 5}]}", nil}},
		"fewer shown":             {{"a", "{containerStatuses: [{name: c, restartCount: 3}]}", "{containerStatuses: [{name: c, restartCount: 5}]}", nil}},
		"another container":       {{"a", "{containerStatuses: [{name: c, restartCount: 5}]}", "{containerStatuses: [{name: d, restartCount: 1}]}", nil}},
		"re-created while nobody looked": {
			{"b", "{startTime: T1, containerStatuses: [{name: c, restartCount: 2}]}", "{startTime: T2, containerStatuses: [{name: c, restartCount: 0}]}", map[string]int64{"c": 3}},
		},
		"re-created and not started yet": {
			{"b", "{startTime: T1, containerStatuses: [{name: c, restartCount: 2}]}", "{}", map[string]int64{"c": 3}},
		},
		"the same pod, started": {
			{"a", "{startTime: T1, containerStatuses: [{name: c, restartCount: 2}]}", "{startTime: T1, containerStatuses: [{name: c, restartCount: 1}]}", map[string]int64{"c": 1}},
		},
		"re-created twice": {
			{"a", "{}", "{containerStatuses: [{name: c, restartCount: 5}]}", nil},
			{"b", "{containerStatuses: [{name: c, restartCount: 5}, {name: d, restartCount: 0}]}", "{}", map[string]int64{"c": 6, "d": 1}},
			{"b", "{containerStatuses: [{name: c, restartCount: 6}]}", "{containerStatuses: [{name: c, restartCount: 0}]}", map[string]int64{"c": 6, "d": 1}},
			{"c", "{containerStatuses: [{name: c, restartCount: 6}], initContainerStatuses: [{name: i, restartCount: 1}]}", "{}", map[string]int64{"c": 7, "d": 2, "i": 2}},
		},
		"re-created while nothing is shown": {
			{"a", "{}", "{containerStatuses: [{name: c, restartCount: 5}]}", nil},
			{"b", "{containerStatuses: [{name: c, restartCount: 5}]}", "{}", map[string]int64{"c": 6}},
			{"c", "{phase: Pending}", "{}", map[string]int64{"c": 7}},
		},
	} {
		var restarts Restarts
		for i, s := range steps {
			if diff := cmp.Diff(s.want, restarts.Extra(s.uid, parse(t, s.local), parse(t, s.remote))); diff != "" {
				t.Errorf("%s, step %d (-want +got):\n%s", name, i+1, diff)
			}
		}
	}
}

func TestSettle(t *testing.T) {
	local := parse(t, `{qosClass: Burstable, initContainerStatuses: [{name: init, state: {terminated: {exitCode: 0}}}],
  containerStatuses: [{name: ok, state: {terminated: {exitCode: 0}}}, {name: bad, state: {terminated: {exitCode: 3}}}]}`)
	remote := `{qosClass: Guaranteed, nominatedNodeName: worker-1, phase: Running,
  containerStatuses: [{name: ok, state: {running: {}}}, {name: bad, state: {running: {}}}]}`
	for policy, wantBad := range map[string]bool{"Always": true, "OnFailure": true, "Never": false} {
		spec := parse(t, "{restartPolicy: "+policy+", initContainers: [{name: init}], containers: [{name: ok}, {name: bad}]}")
		got := AdaptStatus(parse(t, remote), local, spec)
		if got["qosClass"] != "Burstable" || got["nominatedNodeName"] != nil {
			t.Errorf("%s: class %v, nominated node %v", policy, got["qosClass"], got["nominatedNodeName"])
		}
		containers := byName(got["containerStatuses"])
		if runs := exitCode(containers["ok"]) == nil; runs != (policy == "Always") {
			t.Errorf("%s: container that ended well runs: %t", policy, runs)
		}
		if runs := exitCode(containers["bad"]) == nil; runs != wantBad {
			t.Errorf("%s: container that failed runs: %t, want %t", policy, runs, wantBad)
		}
		if _, kept := byName(got["initContainerStatuses"])["init"]; kept != (policy != "Always") {
			t.Errorf("%s: the ended init container is kept: %t", policy, kept)
		}
	}
	if got := AdaptStatus(parse(t, "{qosClass: Guaranteed}"), map[string]any{}, parse(t, "{restartPolicy: Always}")); got["qosClass"] != nil {
		t.Errorf("a pod without a class got %v", got["qosClass"])
	}
}

// TestContainersThatThePodHasNotHereAreLeftOut checks that the statuses of containers that the local pod does not have
// are omitted. Clients compare the number of statuses with the spec, so kubectl would show READY 2/1.
func TestContainersThatThePodHasNotHereAreLeftOut(t *testing.T) {
	spec := parse(t, "{restartPolicy: Never, initContainers: [{name: init}], containers: [{name: web}], ephemeralContainers: [{name: debug}]}")
	next := parse(t, `{containerStatuses: [{name: istio-proxy, ready: true}, {name: web, ready: true}], ephemeralContainerStatuses: [{name: theirs}, {name: debug}],
  initContainerStatuses: [{name: istio-init}], conditions: [{type: ContainersReady, status: "False", message: "containers with unready status: [istio-proxy]"}]}`)
	// An earlier version of Refract wrote the status of istio-proxy. It must be removed, too.
	local := parse(t, "{containerStatuses: [{name: istio-proxy, state: {terminated: {exitCode: 0}}}, {name: web}]}")
	want := parse(t, `{containerStatuses: [{name: web, ready: true}], ephemeralContainerStatuses: [{name: debug}],
  conditions: [{type: ContainersReady, status: "False", message: "containers with unready status: [istio-proxy]"}]}`)
	if diff := cmp.Diff(want, AdaptStatus(next, local, spec)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMayRestart checks that the restart rules of a container take precedence over its restart policy, and this policy
// over the restart policy of the pod.
func TestMayRestart(t *testing.T) {
	const rules = ", restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [3, 4]}}, {action: Restart, exitCodes: {operator: NotIn, values: [0, 1, 5]}}]"
	for _, tc := range []struct {
		list, container, policy string
		again, ended            []int64
	}{
		{"initContainer", "{name: c, restartPolicy: Always}", "Never", []int64{0, 1}, nil},
		{"initContainer", "{name: c}", "Never", nil, []int64{0, 1}},
		{"container", "{name: c, restartPolicy: Never}", "Always", nil, []int64{0, 1}},
		{"container", "{name: c, restartPolicy: OnFailure}", "Never", []int64{1}, []int64{0}},
		{"container", "{name: c, restartPolicy: Never" + rules + "}", "Always", []int64{2, 3, 4}, []int64{0, 1, 5}},
		{"container", "{name: c, restartPolicy: OnFailure" + rules + "}", "Never", []int64{1, 3, 5}, []int64{0}},
		{"ephemeralContainer", "{name: c}", "Always", nil, []int64{0, 1}},
		{"container", "{name: c}, {name: d, restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [9]}}]}", "Never", []int64{0, 1}, nil},
	} {
		status := func(state string) map[string]any {
			return parse(t, fmt.Sprintf("{%sStatuses: [{name: c, state: {%s}}]}", tc.list, state))
		}
		spec := parse(t, fmt.Sprintf("{restartPolicy: %s, %ss: [%s]}", tc.policy, tc.list, tc.container))
		for _, code := range append(tc.again, tc.ended...) {
			got := AdaptStatus(status("running: {}"), status(fmt.Sprintf("terminated: {exitCode: %d}", code)), spec)
			if runs := exitCode(byName(got[tc.list+"Statuses"])["c"]) == nil; runs != slices.Contains(tc.again, code) {
				t.Errorf("%s %s of a pod with %s that ended with %d runs again: %t", tc.list, tc.container, tc.policy, code, runs)
			}
		}
	}
}

func TestSpec(t *testing.T) {
	have := parse(t, `{containers: [{name: a, image: "a:1", env: [{name: X}]}, {name: b, image: "b:1", resources: {limits: {cpu: "1"}}}], initContainers: [{name: i, image: "i:1"}],
  resources: {limits: {cpu: "1"}}, tolerations: [{key: x}], nodeSelector: {disk: ssd}, newField: kept}`)
	for name, tc := range map[string]struct {
		want    string
		changed bool
	}{
		"the same":                    {`{containers: [{name: a, image: "a:1"}, {name: b, image: "b:1"}], initContainers: [{name: i, image: "i:1"}], tolerations: [{key: x}]}`, false},
		"fixed fields differ":         {`{containers: [{name: b, image: "b:1"}, {name: a, image: "a:1"}], tolerations: [{key: x}], nodeSelector: {disk: hdd}}`, false},
		"an image":                    {`{containers: [{name: a, image: "a:2"}], tolerations: [{key: x}]}`, true},
		"an image in other places":    {`{containers: [{name: b, image: "b:2"}, {name: a, image: "a:1"}], tolerations: [{key: x}]}`, true},
		"an init image":               {`{initContainers: [{name: i, image: "i:2"}], tolerations: [{key: x}]}`, true},
		"a size":                      {`{containers: [{name: b, image: "b:1", resources: {limits: {cpu: "2"}}}], tolerations: [{key: x}]}`, true},
		"a size where there was none": {`{containers: [{name: a, image: "a:1", resources: {limits: {cpu: "2"}}}], tolerations: [{key: x}]}`, false},
		"no size":                     {`{containers: [{name: a, image: "a:1", resources: {}}], resources: {}, tolerations: [{key: x}]}`, false},
		"the pod's size":              {`{resources: {limits: {cpu: "2"}}, tolerations: [{key: x}]}`, true},
		"an ephemeral container":      {`{ephemeralContainers: [{name: e, image: "e:1"}], tolerations: [{key: x}]}`, true},
		"a deadline":                  {`{activeDeadlineSeconds: 60, tolerations: [{key: x}]}`, true},
		"a toleration":                {`{tolerations: [{key: x}, {key: y}]}`, true},
		"no tolerations":              {`{}`, true},
	} {
		doc := document.New()
		doc.Reset(parse(t, tc.want))
		view := doc.Root().View()
		if got := SpecChanged(view, Changeable(have)); got != tc.changed {
			t.Errorf("%s: by what is kept of it, changed is %v, want %v", name, got, tc.changed)
		}
		if got := SpecChanged(view, have); got != tc.changed {
			t.Errorf("%s: changed = %t, want %t", name, got, tc.changed)
		}
		updated := UpdateSpec(view, have)
		if SpecChanged(view, updated) {
			t.Errorf("%s: still changed after the update: %v", name, updated)
		}
		if updated["newField"] != "kept" || cmp.Diff(have["nodeSelector"], updated["nodeSelector"]) != "" {
			t.Errorf("%s: the update touched a field that may not change: %v", name, updated)
		}
	}
}

func TestSpecOfNothing(t *testing.T) {
	doc := document.New()
	doc.Reset(parse(t, `{tolerations: []}`))
	if SpecChanged(doc.Root().View(), map[string]any{}) {
		t.Error("an empty list of tolerations differs from none")
	}
}
