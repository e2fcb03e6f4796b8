// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

func TestMessagesAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", MaxMessageBytes)
	status := map[string]any{
		"message": long, "phase": long, // the phase is not a message, so it is not truncated
		"conditions": []any{map[string]any{"type": "Ready", "message": "short"}, map[string]any{"type": "Other", "message": long}},
	}
	before := runtime.DeepCopyJSON(status)
	cut := CutStatus(status)
	if !reflect.DeepEqual(status, before) {
		t.Error("the cached status changed")
	}
	second := cut["conditions"].([]any)[1].(map[string]any)
	for _, text := range []any{cut["message"], second["message"]} {
		if s := text.(string); len(s) > MaxMessageBytes || !strings.HasSuffix(s, cutMark) {
			t.Errorf("%d bytes: …%s", len(s), s[len(s)-20:])
		}
	}
	if cut["phase"] != long || cut["conditions"].([]any)[0].(map[string]any)["message"] != "short" {
		t.Error("something else was cut")
	}
	if again := CutStatus(cut); !same(again, cut) {
		t.Error("what is cut is cut again")
	}
	var refused *failure.InputError
	if err := CheckStatusSize(map[string]any{"a": strings.Repeat("x", maxStatusBytes)}); !errors.As(err, &refused) {
		t.Errorf("%v, want a status that large to be refused", err)
	}
}

func TestTextsAreEscaped(t *testing.T) {
	t.Parallel()
	event := map[string]any{
		"message": "x\x1b[2K", "count": int64(3), "source": map[string]any{"component": "kubelet\u202e", "host": "worker"},
		"series": []any{"\u009b", "plain"}, "none": nil,
	}
	before := runtime.DeepCopyJSON(event)
	escaped := EscapeTexts(event)
	if !reflect.DeepEqual(event, before) {
		t.Error("the cached Event changed")
	}
	want := map[string]any{
		"message": `x\u001b[2K`, "count": int64(3), "source": map[string]any{"component": `kubelet\u202e`, "host": "worker"},
		"series": []any{`\u009b`, "plain"}, "none": nil,
	}
	if !reflect.DeepEqual(escaped, want) {
		t.Errorf("got %v, want %v", escaped, want)
	}
	if again := EscapeTexts(escaped); !same(again, escaped) {
		t.Error("what is escaped is escaped again")
	}
}
