// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"sync"
	"time"
)

const (
	// maxMeasurementAge is how long a measurement of the network is valid if it is not refreshed. A gateway refreshes
	// its Connection every ten seconds. With a longer age, endpoints stay ready for longer after their gateway is gone.
	maxMeasurementAge = time.Minute
	// maxReadGap is the maximum time between two reads of a measurement. After a longer gap, the age of the measurement
	// starts again at zero, because the API server was probably unavailable to the gateways, too.
	maxReadGap = 3 * refreshInterval
)

// measurements records when measurements were refreshed, by the clock of this process, because the clock of a gateway
// may be wrong. It is safe for concurrent use.
type measurements struct {
	mu   sync.Mutex
	seen map[string]map[string]measurement // keyed by cluster ID and object
}

// measurement is the last value of one object.
type measurement struct {
	value       string    // time stamp of the gateway
	since, read time.Time // times at which this process has read the value first and last
	stale       bool
}

// isStale reports whether the value of an object has not changed for too long. A value that this process reads for the
// first time may have any age. It counts as new, unless an earlier process has found it stale.
func (m *measurements) isStale(cluster, object, value string, wasStale bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.seen[cluster][object]
	switch {
	case !ok:
		known = measurement{value: value, since: now, stale: wasStale}
	case known.value != value:
		known = measurement{value: value, since: now}
	case now.Sub(known.read) > maxReadGap:
		known.since = now
	}
	known.stale = known.stale || now.Sub(known.since) > maxMeasurementAge
	known.read = now
	if m.seen[cluster] == nil {
		m.seen[cluster] = map[string]measurement{}
	}
	m.seen[cluster][object] = known
	return known.stale
}

// wasStale reports whether the measurement of an object was stale when it was read last.
func (m *measurements) wasStale(cluster, object string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[cluster][object].stale
}

func (m *measurements) dropCluster(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, cluster)
}
