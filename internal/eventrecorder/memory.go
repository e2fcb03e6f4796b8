// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import "sync"

const (
	// subjectsMost is the maximum number of objects whose Events are remembered to avoid duplicates. When it has been
	// reached, the next Event drops all records.
	subjectsMost = 50000
	// textsMost is the maximum number of remembered Events of one object. When it has been reached, the next Event
	// drops the records of the object.
	textsMost = 32
)

// Memory records which Events were reported for each object. Without it, each retry of a controller would write
// another Event, which costs a request to the API server and is noise for users. The zero value is ready for use.
// Memory is safe for concurrent use.
type Memory[K comparable] struct {
	mu   sync.Mutex
	said map[K]map[string]bool
}

// IsNews records that the text is reported for the object. It returns true if the text was not already recorded since
// the last Clear.
func (m *Memory[K]) IsNews(subject K, text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said == nil || len(m.said) >= subjectsMost {
		m.said = map[K]map[string]bool{}
	}
	if m.said[subject] == nil || len(m.said[subject]) >= textsMost {
		m.said[subject] = map[string]bool{}
	}
	known := m.said[subject][text]
	m.said[subject][text] = true
	return !known
}

// WriteOnce calls write with the shortened message, unless a message about the same problem was already reported for
// the subject since the last Clear. Two messages are about the same problem if they differ only in times, identifiers
// and the like. about contains the other fields of the Event. If write returns false, the message is not recorded as
// reported.
func (m *Memory[K]) WriteOnce(subject K, about, message string, write func(message string) (taken bool)) {
	message = Shorten(message)
	cause := about + causeOf(message)
	if m.IsNews(subject, cause) && !write(message) {
		m.DropText(subject, cause)
	}
}

// DropText removes the record of a text that could not be written after all.
func (m *Memory[K]) DropText(subject K, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.said[subject], text)
}

// Clear removes the records of an object that no longer exists or no longer has a problem. The next problem is then
// reported again.
func (m *Memory[K]) Clear(subject K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.said, subject)
}
