// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/stretchr/testify/require"
)

// event is an entry of an audit log.
type event struct {
	Verb      string `json:"verb"`
	User      struct{ Username string }
	ObjectRef struct{ Resource, Subresource, Name string }
}

// auditEnd returns the current end of the audit log, which is a marker for the other functions.
func (s *suite) auditEnd() int64 {
	s.Helper()
	info, err := os.Stat(s.consumer.AuditLogPath())
	require.NoError(s, err)
	return info.Size()
}

// since returns the requests that the virtual kubelet has sent after marker.
func (s *suite) since(marker int64) []event {
	s.Helper()
	file, err := os.Open(s.consumer.AuditLogPath())
	require.NoError(s, err)
	defer file.Close()
	_, err = file.Seek(marker, 0)
	require.NoError(s, err)
	var events []event
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 10<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.User.Username == "vk" {
			events = append(events, e)
		}
	}
	return events
}

// writesSince returns the writes after marker, except for writes of leases.
func (s *suite) writesSince(marker int64) []string {
	s.Helper()
	var writes []string
	for _, e := range s.since(marker) {
		reads := e.Verb == "get" || e.Verb == "list" || e.Verb == "watch"
		if !reads && e.ObjectRef.Resource != "leases" {
			writes = append(writes, strings.Join([]string{e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name}, " "))
		}
	}
	return writes
}

func (s *suite) requestsSince(marker int64, verb, resource string) int {
	s.Helper()
	count := 0
	for _, e := range s.since(marker) {
		if e.Verb == verb && e.ObjectRef.Resource == resource {
			count++
		}
	}
	return count
}

// renewals waits until the lease was renewed the given number of times after marker.
func (s *suite) renewals(marker int64, times int) {
	s.Helper()
	s.expect("renewals of the lease", func(context.Context) string {
		if s.requestsSince(marker, "update", "leases") < times {
			return "too few"
		}
		return ""
	})
}
