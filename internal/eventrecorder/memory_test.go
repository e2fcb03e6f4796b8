// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import (
	"fmt"
	"testing"
)

func TestMemory(t *testing.T) {
	var m Memory[string]
	for i, step := range []struct {
		subject, text string
		do            func()
		news          bool
	}{
		{"web", "a", nil, true},
		{"web", "a", nil, false},
		{"web", "b", nil, true},
		{"web", "a", nil, false},
		{"db", "a", nil, true},
		{"web", "a", func() { m.Unsay("web", "a") }, true},
		{"web", "b", nil, false},
		{"web", "b", func() { m.Clear("web") }, true},
		{"db", "a", nil, false},
	} {
		if step.do != nil {
			step.do()
		}
		if got := m.News(step.subject, step.text); got != step.news {
			t.Errorf("step %d, %s of %s: news %t", i, step.text, step.subject, got)
		}
	}
	// It is bounded, also for an object whose message differs each time.
	for i := range 3 * textsMost {
		m.News("web", fmt.Sprint(i))
	}
	if n := len(m.said["web"]); n > textsMost {
		t.Errorf("%d texts of one object are remembered", n)
	}
	for i := range subjectsMost + 10 {
		m.News(fmt.Sprint(i), "a")
	}
	if n := len(m.said); n > subjectsMost {
		t.Errorf("%d objects are remembered", n)
	}
}
