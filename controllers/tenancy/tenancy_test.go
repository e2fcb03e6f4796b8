// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// A consumer chooses what a refusal quotes. An Event and a condition must still take it, with the remedy.
func TestRefusalsAreShort(t *testing.T) {
	p, err := NewPolicy(Options{})
	require.NoError(t, err)
	refusal := p.CheckPod(&corev1.Namespace{}, nil, nil, map[string]any{"priorityClassName": strings.Repeat("x", 100_000)})
	if refusal == nil {
		t.Fatal("the pod is allowed")
	}
	text := refusal.Error()
	if len(text) > 1024 || !strings.HasSuffix(text, refusal.Remedy) {
		t.Errorf("%d bytes: %.80s … %s", len(text), text, text[max(0, len(text)-80):])
	}
}
