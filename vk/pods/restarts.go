// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"math"
)

// Restarts keeps the restart counts of one pod from falling when the provider's pod is recreated. The reconciler of the
// pod keeps it in memory, and writes Note with every status; the zero value is empty. Not safe for concurrent use.
type Restarts struct {
	uid   string
	extra map[string]int64
}

// note is what is kept of Restarts with the pod.
type note struct {
	Pod    string           `json:"pod"`              // uid of the provider's pod that was counted last
	Before map[string]int64 `json:"before,omitempty"` // what was counted for earlier ones, per container
}

// Note returns the state for a later process, "" before anything was observed.
func (r *Restarts) Note() string {
	if r.uid == "" {
		return ""
	}
	text, err := json.Marshal(note{r.uid, r.extra}) // sorts the containers
	if err != nil {
		return ""
	}
	return string(text)
}

// Recall restores the note of an earlier process, unless this one has observed restarts itself. An invalid or missing
// note is ignored.
func (r *Restarts) Recall(text string) {
	var noted note
	if r.uid != "" || json.Unmarshal([]byte(text), &noted) != nil {
		return
	}
	for _, n := range noted.Before {
		if n < 0 || n > math.MaxInt32/2 {
			return // a count like that would be refused
		}
	}
	r.uid, r.extra = noted.Pod, noted.Before
}

// Extra returns, per container, what is to be added to the counts of the provider's pod with the given uid; the map
// must not be modified. local is the status shown so far.
//
// When the provider's pod is another one than before, all that was counted is kept and the re-creation itself counts
// as one restart, so a count never falls. (Liqo adds one and forgets the counts of the lost pod.)
//
// Without a note the difference between what is shown and what the provider counts is what an earlier process added,
// and a pod that was recreated unobserved is recognised by its start time, which a pod keeps for life.
func (r *Restarts) Extra(uid string, local, remote map[string]any) map[string]int64 {
	if r.uid == uid {
		return r.extra
	}
	known, recreated := r.extra, r.uid != "" || startedAnew(local, remote)
	r.uid, r.extra = uid, nil
	for name, before := range known { // also of a container that is not shown for the moment
		r.add(name, before+1)
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		counted := byName(remote[list])
		for name, shown := range byName(local[list]) {
			before, _ := number(shown["restartCount"])
			now, counts := number(counted[name]["restartCount"])
			switch {
			case recreated:
				r.add(name, max(before, known[name])+1)
			case counts && before > now:
				r.add(name, before-now)
			}
		}
	}
	return r.extra
}

// startedAnew reports whether what is shown is of an earlier pod than the provider's present one.
func startedAnew(local, remote map[string]any) bool {
	shown, known := local["startTime"].(string)
	return known && shown != "" && shown != remote["startTime"]
}

func (r *Restarts) add(name string, n int64) {
	if r.extra == nil {
		r.extra = map[string]int64{}
	}
	r.extra[name] = n
}
