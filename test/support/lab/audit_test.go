// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

const (
	created = `{"verb":"create","user":{"username":"refract:home"},"objectRef":{"resource":"services","namespace":"shop-home","name":"web"},"responseStatus":{"code":201}}` + "\n"
	listed  = `{"verb":"list","user":{"username":"refract:home"},"objectRef":{"resource":"services"},"responseStatus":{"code":200}}` + "\n"
	review  = `{"verb":"create","user":{"username":"refract:home"},"objectRef":{"resource":"tokenreviews"},"responseStatus":{"code":201}}` + "\n"
	refused = `{"verb":"patch","user":{"username":"another"},"objectRef":{"resource":"pods","subresource":"status","namespace":"a","name":"b"},"responseStatus":{"code":409}}` + "\n"
	lease   = `{"verb":"update","user":{"username":"refract:home"},"objectRef":{"resource":"leases","namespace":"a","name":"b"},"responseStatus":{"code":200}}` + "\n"
)

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appendTo(t, path, created)
	journal, err := NewJournal(path)
	require.NoError(t, err)
	// Existing lines are skipped. A new line is read when it is complete.
	appendTo(t, path, listed+review+refused+created[:40])
	got, err := journal.Next()
	require.NoError(t, err)
	want := []Write{{Verb: "patch", User: "another", Resource: "pods", Subresource: "status", Namespace: "a", Name: "b", Failed: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first reading (-want +got):\n%s", diff)
	}
	appendTo(t, path, created[40:]+lease)
	got, err = journal.Next()
	require.NoError(t, err)
	if diff := cmp.Diff(map[string]int{"create services": 1, "update leases": 1}, Tally(got)); diff != "" {
		t.Errorf("second reading (-want +got):\n%s", diff)
	}
	if own := Of(got, "another"); len(own) != 0 {
		t.Errorf("writes of another user: %v", own)
	}
	if !got[1].IsRoutine() || got[0].IsRoutine() || got[0].IsEvent() {
		t.Errorf("kinds are mixed up: %+v", got)
	}
}

func TestJournalOfRubbish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	appendTo(t, path, "")
	journal, err := NewJournal(path)
	require.NoError(t, err)
	appendTo(t, path, "not JSON\n")
	if got, err := journal.Next(); err == nil {
		t.Errorf("no error, but %v", got)
	}
	if _, err := NewJournal(path + ".missing"); err == nil {
		t.Error("no error for a log that does not exist")
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = file.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}
