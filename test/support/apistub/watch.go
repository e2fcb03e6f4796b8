// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package apistub

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// stored is a change in the store, which watches report.
type stored struct {
	key
	version       int
	before, after *unstructured.Unstructured // copies of the object; nil if there was or is none
}

// record adds a change to the history, and notifies the watches.
func (s *Server) record(k key, before, after *unstructured.Unstructured) {
	s.history = append(s.history, stored{k, s.version, before.DeepCopy(), after.DeepCopy()})
	close(s.changed)
	s.changed = make(chan struct{})
}

// since returns the changes after a version, and a channel that is closed when the next change occurs.
func (s *Server) since(version int) ([]stored, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.history)
	for at > 0 && s.history[at-1].version > version {
		at--
	}
	return s.history[at:], s.changed
}

// watch serves a watch until the client closes the connection or the server stops. It first sends the current objects
// if the client requests them, and then each change.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, k key) {
	query := r.URL.Query()
	isSelected, err := selectorOf(r)
	if err != nil {
		answer(w, http.StatusBadRequest, statusOf(http.StatusBadRequest, metav1.StatusReasonBadRequest, k))
		return
	}
	asMetadata := isMetadataOnly(r)
	version, err := strconv.Atoi(query.Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	send := func(event watch.EventType, object any) bool {
		return out.Encode(map[string]any{"type": event, "object": object}) == nil
	}
	if query.Get("sendInitialEvents") == "true" || err != nil {
		s.mu.Lock()
		items := s.list(r, k, asMetadata)
		version = s.version
		s.mu.Unlock()
		for _, item := range items["items"].([]any) {
			if !send(watch.Added, item) {
				return
			}
		}
		end := &unstructured.Unstructured{Object: map[string]any{"apiVersion": items["apiVersion"], "kind": s.kindOf(k, asMetadata)}}
		end.SetResourceVersion(strconv.Itoa(version))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		if !send(watch.Bookmark, end.Object) {
			return
		}
	}
	for flush := http.NewResponseController(w).Flush; flush() == nil; {
		changes, changed := s.since(version)
		for _, c := range changes {
			version = c.version
			if event, object := c.event(k, isSelected); object != nil && !send(event, present(object, asMetadata)) {
				return
			}
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// event returns the type and the object of the event with which a watch reports a change. The object is nil if the
// watch does not report the change.
func (c stored) event(k key, isSelected func(*unstructured.Unstructured) bool) (watch.EventType, *unstructured.Unstructured) {
	if c.GroupVersionResource != k.GroupVersionResource || k.namespace != "" && c.namespace != k.namespace {
		return "", nil
	}
	selects := func(object *unstructured.Unstructured) bool {
		return object != nil && isSelected(object)
	}
	switch was, is := selects(c.before), selects(c.after); {
	case was && is:
		return watch.Modified, c.after
	case is:
		return watch.Added, c.after
	case was:
		gone := c.before.DeepCopy()
		gone.SetResourceVersion(strconv.Itoa(c.version))
		return watch.Deleted, gone
	}
	return "", nil
}

func (s *Server) kindOf(k key, asMetadata bool) string {
	if asMetadata {
		return "PartialObjectMetadata"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resources[k.GroupVersionResource].kind
}
