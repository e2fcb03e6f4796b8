// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

// Restarts keeps the restart counts of one pod from falling when the provider's pod is re-created. It is kept in
// memory by whoever reconciles the pod; the zero value has seen nothing. Not for concurrent use.
type Restarts struct {
	uid   string
	extra map[string]int64
}

// Extra returns, per container, what is to be added to the counts of the provider's pod with the given uid; the map
// must not be modified. local is the status shown so far.
//
// On first sight (this process has just started) the difference between what is shown and what the provider counts
// is what an earlier process added. When the provider's pod changes, all that was shown is kept and the re-creation
// itself counts as one restart, so a count never falls. (Liqo adds one and forgets the counts of the lost pod.) A pod
// that was re-created while nobody looked is told by its start time, which a pod keeps for life.
func (r *Restarts) Extra(uid string, local, remote map[string]any) map[string]int64 {
	if r.uid == uid {
		return r.extra
	}
	recreated := r.uid != "" || startedAnew(local, remote)
	r.uid, r.extra = uid, nil
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		counted := byName(remote[list])
		for name, shown := range byName(local[list]) {
			before, _ := number(shown["restartCount"])
			now, known := number(counted[name]["restartCount"])
			switch {
			case recreated:
				r.add(name, before+1)
			case known && before > now:
				r.add(name, before-now)
			}
		}
	}
	return r.extra
}

// startedAnew tells whether what is shown is of an earlier pod than the provider's present one.
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
