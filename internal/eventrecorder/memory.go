// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import "sync"

const (
	// subjectsMost is how many objects' Events are remembered in order not to repeat them; then it begins again.
	subjectsMost = 50000
	// textsMost is how many different Events of one object are remembered, likewise.
	textsMost = 32
)

// Memory knows what was reported of objects. A controller retries; without memory each attempt would be another Event, which is a
// write to the API server and noise for the reader. The zero value is ready. Safe for concurrent use.
type Memory[K comparable] struct {
	mu   sync.Mutex
	said map[K]map[string]bool
}

// News reports whether the same was not reported of an object since Clear, and remembers that it is now.
func (m *Memory[K]) News(subject K, text string) bool {
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

// Once hands a message, as much of it as fits, to write, unless the same was reported of the subject since Clear, apart from what differs with
// each attempt; about is the rest of the Event. What write does not take is news the next time, too.
func (m *Memory[K]) Once(subject K, about, message string, write func(message string) (taken bool)) {
	message = Shorten(message)
	cause := about + causeOf(message)
	if m.News(subject, cause) && !write(message) {
		m.Unsay(subject, cause)
	}
}

// Unsay forgets one text, which was not written after all.
func (m *Memory[K]) Unsay(subject K, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.said[subject], text)
}

// Clear forgets what was reported of an object: it is fine now, or gone, and the next problem is reported again.
func (m *Memory[K]) Clear(subject K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.said, subject)
}
