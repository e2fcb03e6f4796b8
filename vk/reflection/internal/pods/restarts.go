// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"math"
)

// Restarts ensures that the restart counts of a pod do not decrease when the provider's pod is recreated. The
// reconciler keeps a Restarts for each pod in memory, and stores its Note with every status. The zero value is empty.
// Restarts is not safe for concurrent use.
type Restarts struct {
	uid   string
	extra map[string]int64
}

// note is the stored form of Restarts.
type note struct {
	Pod    string           `json:"pod"`              // UID of the last observed pod on the provider
	Before map[string]int64 `json:"before,omitempty"` // sum of the counts of earlier pods, by container
}

// Note returns the state as a text for a later process. It returns an empty string if no pod has been observed yet.
func (r *Restarts) Note() string {
	if r.uid == "" {
		return ""
	}
	text, err := json.Marshal(note{r.uid, r.extra}) // The encoding is stable, because the keys of maps are sorted.
	if err != nil {
		return ""
	}
	return string(text)
}

// Recall restores the state from the note of an earlier process, unless this process has already observed the pod. A
// missing or invalid note is ignored.
func (r *Restarts) Recall(text string) {
	var noted note
	if r.uid != "" || json.Unmarshal([]byte(text), &noted) != nil {
		return
	}
	for _, n := range noted.Before {
		if n < 0 || n > math.MaxInt32/2 {
			return // The API server would reject such a count, so the note is ignored.
		}
	}
	r.uid, r.extra = noted.Pod, noted.Before
}

// Extra returns, for each container, the number that must be added to the restart count in the provider's pod, which
// has the given UID. Callers must not modify the map. local is the current status in this cluster, and remote is the
// status of the provider's pod.
//
// If the provider's pod was recreated, the previous counts are added, and the re-creation counts as one restart, so
// that a count never decreases. (Liqo adds one and drops the counts of the lost pod.)
//
// If there is no note, Extra uses the difference between the local count and the provider's count, which an earlier
// process must have added. A pod that was recreated while no process was running is recognized by its start time,
// because the start time of a pod never changes.
func (r *Restarts) Extra(uid string, local, remote map[string]any) map[string]int64 {
	if r.uid == uid {
		return r.extra
	}
	known, recreated := r.extra, r.uid != "" || startedAnew(local, remote)
	r.uid, r.extra = uid, nil
	// The loop includes containers whose status is temporarily missing.
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

// startedAnew reports whether the local status belongs to an earlier pod on the provider, and not to the current one.
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
