// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package apistub

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Events is an EventSink that stores the Events in memory. The zero value is ready for use. It is safe for concurrent
// use.
type Events struct {
	mu   sync.Mutex
	seen []string
}

// Create implements record.EventSink.
func (e *Events) Create(event *corev1.Event) (*corev1.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, event.Reason+" "+event.InvolvedObject.Name+": "+event.Message)
	return event, nil
}

// Update implements record.EventSink.
func (e *Events) Update(event *corev1.Event) (*corev1.Event, error) { return e.Create(event) }

// Patch implements record.EventSink.
func (e *Events) Patch(event *corev1.Event, _ []byte) (*corev1.Event, error) { return e.Create(event) }

// Await waits for an Event that contains all texts.
func (e *Events) Await(t *testing.T, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		seen := strings.Join(e.seen, "\n")
		for _, event := range e.seen {
			if containsAll(event, texts) {
				e.mu.Unlock()
				return
			}
		}
		e.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("no Event has %q; the Events are:\n%s", texts, seen)
		}
	}
}

// Count returns the number of Events so far.
func (e *Events) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
