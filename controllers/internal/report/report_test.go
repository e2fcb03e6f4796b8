// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/eventrecorder"
)

// recorder records the notes of Events.
type recorder struct{ notes []string }

func (r *recorder) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(note, args...))
}

func TestWarnsOnceUntilCleared(t *testing.T) {
	kept := &recorder{}
	r := New(kept)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	warn := func(note string) { r.Warn(pod, "Reason", "Action", note) }
	warn("first")
	warn("first")
	warn("second")
	r.Clear(client.ObjectKeyFromObject(pod))
	warn("second")
	pod.UID = "2"
	warn("second")
	if want := []string{"first", "second", "second", "second"}; !slices.Equal(kept.notes, want) {
		t.Errorf("notes = %q, want %q", kept.notes, want)
	}
}

func TestNotesFitIntoAnEvent(t *testing.T) {
	kept := &recorder{}
	New(kept).Tell(&corev1.Pod{}, nil, "Reason", "Action", strings.Repeat("ü", eventrecorder.Limit))
	if note := kept.notes[0]; len(note) > eventrecorder.Limit || !utf8.ValidString(note) || !strings.HasSuffix(note, "…") {
		t.Errorf("note of %d bytes: %q", len(note), note)
	}
}
