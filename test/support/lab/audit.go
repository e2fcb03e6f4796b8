// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Write is a request to change an object, from the audit log of an API server.
type Write struct {
	Verb        string
	User        string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	// Failed is true if the API server refused the request. Such a request costs a round trip, too.
	Failed bool
}

// IsEvent reports whether the write is a Kubernetes Event.
func (w Write) IsEvent() bool { return w.Resource == "events" }

// IsRoutine reports whether the write is a part of a leader election, a heartbeat, or a health check of a peer. These
// writes do not depend on reflection.
func (w Write) IsRoutine() bool { return w.Resource == "leases" || w.Resource == "foreignclusters" }

// Kind returns the resource of the written object, such as "pods" or "pods/status".
func (w Write) Kind() string {
	if w.Subresource == "" {
		return w.Resource
	}
	return w.Resource + "/" + w.Subresource
}

// auditEvent contains the fields of an audit.k8s.io/v1 Event that this package uses.
type auditEvent struct {
	Verb string
	User struct{ Username string }
	// ObjectRef is empty if the request is not for a resource.
	ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// writeVerbs are the verbs of requests that store objects. Reviews, such as TokenReviews, also have the verb create,
// but they are not stored.
var writeVerbs = map[string]bool{"create": true, "update": true, "patch": true, "delete": true, "deletecollection": true}

func (e auditEvent) write() (Write, bool) {
	if !writeVerbs[e.Verb] || strings.HasSuffix(e.ObjectRef.Resource, "reviews") {
		return Write{}, false
	}
	return Write{
		Verb: e.Verb, User: e.User.Username, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Failed: e.ResponseStatus.Code >= 400,
	}, true
}

// Journal reads the writes in the audit log of an API server. It returns each write once. It is not safe for concurrent
// use.
type Journal struct {
	path   string
	offset int64
}

// NewJournal returns a journal that begins at the current end of the log.
func NewJournal(path string) (*Journal, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log, %w", err)
	}
	return &Journal{path: path, offset: info.Size()}, nil
}

// Next returns the writes since the previous call. An incomplete last line is left for the next call.
func (j *Journal) Next() ([]Write, error) {
	file, err := os.Open(j.path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log, %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(j.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log, %w", err)
	}
	var writes []Write
	for reader := bufio.NewReaderSize(file, 1<<16); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log, %w", err)
		}
		j.offset += int64(len(line))
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("reading the audit log, %w", err)
		}
		if write, ok := event.write(); ok {
			writes = append(writes, write)
		}
	}
}

// Tally counts writes by verb and resource. A key is, for example, "create shadowpods".
func Tally(writes []Write) map[string]int {
	tally := map[string]int{}
	for _, w := range writes {
		tally[w.Verb+" "+w.Kind()]++
	}
	return tally
}

// Of returns the writes that the given users have made.
func Of(writes []Write, users ...string) []Write {
	var own []Write
	for _, w := range writes {
		for _, user := range users {
			if w.User == user {
				own = append(own, w)
			}
		}
	}
	return own
}

// Denials returns the requests of Refract's processes that an admission policy has denied since the Lab was started, in
// the format "USER VERB RESOURCE NAME: message".
func (l *Lab) Denials() (denied []string, err error) {
	for _, side := range []*Side{l.Consumer, l.Provider} {
		text, err := os.ReadFile(side.AuditLogPath())
		if err != nil {
			return nil, fmt.Errorf("reading the audit log of %s, %w", side.ID, err)
		}
		for line := range bytes.Lines(text) {
			var event auditEvent
			if json.Unmarshal(line, &event) == nil && slices.Contains(Users(), event.User.Username) && strings.Contains(event.ResponseStatus.Message, "ValidatingAdmissionPolicy '") {
				denied = append(denied, fmt.Sprintf("%s %s %s %s: %s", event.User.Username, event.Verb, event.ObjectRef.Resource, event.ObjectRef.Name, event.ResponseStatus.Message))
			}
		}
	}
	return denied, nil
}
