// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import (
	"fmt"
	"strings"
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
		{"web", "a", func() { m.DropText("web", "a") }, true},
		{"web", "b", nil, false},
		{"web", "b", func() { m.Clear("web") }, true},
		{"db", "a", nil, false},
	} {
		if step.do != nil {
			step.do()
		}
		if got := m.IsNews(step.subject, step.text); got != step.news {
			t.Errorf("step %d, %s of %s: news %t", i, step.text, step.subject, got)
		}
	}
	// The size of the memory must be limited even for an object whose message differs each time.
	for i := range 3 * textsMost {
		m.IsNews("web", fmt.Sprint(i))
	}
	if n := len(m.said["web"]); n > textsMost {
		t.Errorf("%d texts of one object are remembered", n)
	}
	for i := range subjectsMost + 10 {
		m.IsNews(fmt.Sprint(i), "a")
	}
	if n := len(m.said); n > subjectsMost {
		t.Errorf("%d objects are remembered", n)
	}
}

// TestOnce checks that a message that could not be written is reported the next time, and that messages which differ
// only in the part that is cut off count as the same.
func TestOnce(t *testing.T) {
	var m Memory[string]
	var written []string
	say := func(about, message string, taken bool) {
		m.WriteOnce("web", about, message, func(text string) bool {
			written = append(written, about+": "+text)
			return taken
		})
	}
	long := strings.Repeat("x", Limit)
	for _, step := range []struct {
		about, message string
		taken, news    bool
	}{
		{"Failed", "a", false, true},
		{"Failed", "a", true, true},
		{"Failed", "a", true, false},
		{"Done", "a", true, true},
		{"Failed", long + "1", true, true},
		{"Failed", long + "2", true, false},
	} {
		written = nil
		if say(step.about, step.message, step.taken); (len(written) == 1) != step.news || step.news && len(written[0]) > len(step.about)+2+Limit {
			t.Errorf("%s %.10s is written as %.30q, want news %t", step.about, step.message, written, step.news)
		}
	}
}
