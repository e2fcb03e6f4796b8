// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownedfields finds out which labels and annotations a field manager wrote, according to the managedFields of
// an object. A controller may remove only these labels and annotations, because others own the rest.
package ownedfields

import (
	"encoding/json"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Only returns the entries of manager, without entries about subresources. A cache does not need the other entries.
func Only(entries []metav1.ManagedFieldsEntry, manager string) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if entry.Manager == manager && entry.Subresource == "" {
			kept = append(kept, entry)
		}
	}
	return kept
}

// Metadata contains the keys of the labels and annotations that one manager wrote.
type Metadata struct {
	Labels, Annotations map[string]struct{}
}

// OwnsLabel reports whether the manager wrote the label with this key.
func (m Metadata) OwnsLabel(key string) bool { _, ok := m.Labels[key]; return ok }

// OwnsAnnotation reports whether the manager wrote the annotation with this key.
func (m Metadata) OwnsAnnotation(key string) bool { _, ok := m.Annotations[key]; return ok }

// Of returns the labels and annotations that manager wrote according to entries. The fields of an entry that cannot be
// parsed are not included, so that they are not removed.
func Of(entries []metav1.ManagedFieldsEntry, manager string) Metadata {
	owned := Metadata{Labels: map[string]struct{}{}, Annotations: map[string]struct{}{}}
	for _, entry := range Only(entries, manager) {
		if entry.FieldsV1 == nil {
			continue
		}
		owned.read(entry.FieldsV1.GetRawReader())
	}
	return owned
}

// fields is the part of the trie in FieldsV1 that this package reads. A key is "f:" followed by the name of the field.
type fields struct {
	Metadata struct {
		Labels      map[string]json.RawMessage `json:"f:labels"`
		Annotations map[string]json.RawMessage `json:"f:annotations"`
	} `json:"f:metadata"`
}

func (m Metadata) read(r io.Reader) {
	var f fields
	if json.NewDecoder(r).Decode(&f) != nil {
		return
	}
	collect(m.Labels, f.Metadata.Labels)
	collect(m.Annotations, f.Metadata.Annotations)
}

func collect(into map[string]struct{}, from map[string]json.RawMessage) {
	for key := range from {
		if name, ok := strings.CutPrefix(key, "f:"); ok {
			into[name] = struct{}{}
		}
	}
}
