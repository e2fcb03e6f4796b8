// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"math"
)

// Restarts prevents the restart counts of a pod from decreasing when the provider's pod is recreated. The reconciler of
// the pod keeps it in memory, and stores Note with every status. The zero value is empty. Not safe for concurrent use.
type Restarts struct {
	uid   string
	extra map[string]int64
}

// note is the stored form of Restarts.
type note struct {
	Pod    string           `json:"pod"`              // UID of the provider's pod that was counted last
	Before map[string]int64 `json:"before,omitempty"` // counts of earlier pods, per container
}

// Note returns the state for a later process, or an empty string if no pod was observed yet.
func (r *Restarts) Note() string {
	if r.uid == "" {
		return ""
	}
	text, err := json.Marshal(note{r.uid, r.extra}) // the encoding sorts the containers
	if err != nil {
		return ""
	}
	return string(text)
}

// Recall restores the note of an earlier process, unless this process has already observed the pod. An invalid or
// missing note is ignored.
func (r *Restarts) Recall(text string) {
	var noted note
	if r.uid != "" || json.Unmarshal([]byte(text), &noted) != nil {
		return
	}
	for _, n := range noted.Before {
		if n < 0 || n > math.MaxInt32/2 {
			return // the API server would refuse such a count
		}
	}
	r.uid, r.extra = noted.Pod, noted.Before
}

// Extra returns, per container, the number to add to the counts of the provider's pod with the given UID. The map must
// not be modified. local is the current local status.
//
// If the provider's pod was recreated, the previous counts are kept, and the re-creation counts as one restart, so that
// a count never decreases. (Liqo adds one and drops the counts of the lost pod.)
//
// Without a note, the difference between the local and the provider's counts was added by an earlier process. A pod that
// was recreated unobserved is recognized by its start time, which is constant for the life of a pod.
func (r *Restarts) Extra(uid string, local, remote map[string]any) map[string]int64 {
	if r.uid == uid {
		return r.extra
	}
	known, recreated := r.extra, r.uid != "" || startedAnew(local, remote)
	r.uid, r.extra = uid, nil
	// This includes containers that are temporarily not shown.
	for name, before := range known {
		r.addRestarts(name, before+1)
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		counted := byName(remote[list])
		for name, shown := range byName(local[list]) {
			before, _ := wholeNumber(shown["restartCount"])
			now, counts := wholeNumber(counted[name]["restartCount"])
			switch {
			case recreated:
				r.addRestarts(name, max(before, known[name])+1)
			case counts && before > now:
				r.addRestarts(name, before-now)
			}
		}
	}
	return r.extra
}

// startedAnew reports whether the local status belongs to an earlier pod than the provider's current one.
func startedAnew(local, remote map[string]any) bool {
	shown, known := local["startTime"].(string)
	return known && shown != "" && shown != remote["startTime"]
}

func (r *Restarts) addRestarts(name string, n int64) {
	if r.extra == nil {
		r.extra = map[string]int64{}
	}
	r.extra[name] = n
}
