// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func read(t *testing.T) *durations {
	t.Helper()
	found, err := readDurations(root)
	require.NoError(t, err)
	return found
}

func TestPageIsUpToDate(t *testing.T) {
	committed, err := os.ReadFile(root + "/docs/durations.md")
	require.NoError(t, err)
	if page(read(t)) != string(committed) {
		t.Error("docs/durations.md is stale: run make generate")
	}
}

// TestDurationsAreNamed checks that every duration has a name by which it can be found, compared and explained.
func TestDurationsAreNamed(t *testing.T) {
	for _, at := range read(t).bare {
		t.Errorf("%s: a duration without a name: make it a constant with a comment that says what gets worse when it changes", at)
	}
}

// purpose matches the permitted suffixes of names. The suffix says what the duration bounds.
var purpose = regexp.MustCompile(`(?i)(Timeout|Interval|Backoff|Grace|Period|Delay|Age|Lifetime|Skew|Window)$`)

// olderNames lists existing names without such a suffix. Do not add more.
var olderNames = map[string][]string{
	"internal/oscillation":          {"Protective", "Standard"}, // each of these names is a struct with several durations
	"vk/reflection/internal/copies": {"Soon"},
	"vk/reflection/internal/engine": {"behindFirst", "behindLong", "behindMost", "emptyAfter", "emptyRecheck", "ipDebounce", "sameChange", "throttledLong"},
	"vk/reflection/internal/queue":  {"backoffFirst", "backoffMost", "FirstPartRetry", "firstPluginRetry", "mostPartRetry", "mostPluginRetry"},
}

func TestDurationsAreExplained(t *testing.T) {
	for _, one := range read(t).named {
		if one.meaning == "" {
			t.Errorf("%s: %s has no comment: say what it bounds, and what gets worse when it changes", one.pos, one.name)
		}
		if !one.isFlag && !purpose.MatchString(one.name) && !slices.Contains(olderNames[one.pkg], one.name) {
			t.Errorf("%s: the name of %s does not say what it bounds: end it with Timeout, Interval, Backoff, Grace or Period, or with Delay, Age, Lifetime, Skew or Window", one.pos, one.name)
		}
	}
}

// TestReader checks that the reader distinguishes named durations, unnamed durations and conversions.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range productFolders {
		require.NoError(t, os.MkdirAll(dir+"/"+folder, 0o755))
	}
	require.NoError(t, os.WriteFile(dir+"/vk/vk.go", []byte(`package vk

import "time"

const attempts = 3

// lookInterval is short.
const lookInterval = 2 * time.Second

const (
	allTimeout = attempts * lookInterval
	oldAge     = 48 * time.Hour // counts as old
)

func f(seconds int, d time.Duration) {
	const localDelay = time.Minute
	_ = time.Duration(seconds) * time.Second
	_ = int(d / time.Second)
	_ = d.Truncate(time.Second)
	time.Sleep(5 * time.Second)
	_ = max(d, time.Millisecond)
	flags.DurationVar(&d, "wait", 90*time.Second, "how long " + "to wait")
}
`), 0o600))
	found, err := readDurations(dir)
	require.NoError(t, err)
	type row struct{ name, value, meaning string }
	var rows []row
	for _, one := range found.named {
		rows = append(rows, row{one.name, one.value, one.meaning})
	}
	assert.Equal(t, []row{
		{"--wait", "1m30s", "how long to wait"},
		{"localDelay", "1m", ""},
		{"lookInterval", "2s", "lookInterval is short."},
		{"oldAge", "2 days", "counts as old"},
	}, rows)
	var lines []int
	for _, at := range found.bare {
		assert.Equal(t, "vk/vk.go", at.Filename)
		lines = append(lines, at.Line)
	}
	assert.Equal(t, []int{20, 21}, lines)
}
