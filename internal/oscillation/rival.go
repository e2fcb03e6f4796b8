// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package oscillation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
)

// fieldsMost is the maximum number of differing fields in an Event.
const fieldsMost = 5

// trackers contains labels and annotations that synchronization tools set on their objects. Such a tool may delete
// copies of its objects, because they have the same labels and annotations.
var trackers = map[string]string{
	"argocd.argoproj.io/tracking-id":   "Argo CD",
	"argocd.argoproj.io/instance":      "Argo CD",
	"app.kubernetes.io/instance":       "Argo CD",
	"kustomize.toolkit.fluxcd.io/name": "Flux",
	"helm.toolkit.fluxcd.io/name":      "Flux",
	"fleet.cattle.io/bundle-id":        "Fleet",
	"kapp.k14s.io/app":                 "kapp",
	"applyset.kubernetes.io/part-of":   "kubectl apply --prune",
}

// DescribeWriter describes the last client other than Refract that wrote an object or its subresource, and the fields
// that differ from the desired state.
func DescribeWriter(entries []metav1.ManagedFieldsEntry, subresource string, differing []string) string {
	fields := "the fields that it changes are right again"
	if len(differing) > 0 {
		fields = "differing: " + strings.Join(differing, ", ")
	}
	last := lastWriter(ownersOf(entries, differing), subresource)
	if last == nil {
		last = lastWriter(entries, subresource)
	}
	if last == nil {
		return "no other field manager is recorded, so a plugin is not idempotent, or another client removes fields (which is not recorded), or replaces or recreates the object; " + fields
	}
	return fmt.Sprintf("field manager %q (%s) wrote the same object at %s; %s; stop that client or let it ignore the object",
		last.Manager, last.Operation, last.Time.UTC().Format(time.RFC3339), fields)
}

// HasOtherWriter reports whether an object or its subresource has a field manager other than Refract.
func HasOtherWriter(entries []metav1.ManagedFieldsEntry, subresource string) bool {
	return lastWriter(entries, subresource) != nil
}

// DescribeDeleter describes the client that deletes an object, if the object's labels and annotations reveal it. The
// API server records which field managers write an object, but not who deletes it.
func DescribeDeleter(labels, annotations map[string]string) string {
	text := "another client deletes it; the audit log of that cluster (verb delete) names the client"
	for _, key := range slices.Sorted(maps.Keys(trackers)) {
		for _, has := range []map[string]string{labels, annotations} {
			if value, ok := has[key]; ok {
				return fmt.Sprintf("%s. It bears %s=%s, by which %s may take it for its own: exclude it there", text, key, value, trackers[key])
			}
		}
	}
	return text
}

// ownersOf returns the entries of the field managers that own at least one of the fields. Objects such as Nodes have
// many writers, and the last one need not be the one that writes these fields.
func ownersOf(entries []metav1.ManagedFieldsEntry, paths []string) (owners []metav1.ManagedFieldsEntry) {
	for _, exact := range []bool{true, false} {
		for i := range entries {
			var owned map[string]any
			if entries[i].FieldsV1 == nil || json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &owned) != nil {
				continue
			}
			if slices.ContainsFunc(paths, func(path string) bool { return ownsField(owned, path, exact) }) {
				owners = append(owners, entries[i])
			}
		}
		if len(owners) > 0 {
			break
		}
	}
	return owners
}

// ownsField reports whether a set of owned fields contains the field at a path. Unless exact is true, it is sufficient
// if a field above it is owned as a whole. Names of fields, such as the keys of labels, may contain dots, so each part
// of the path that ends before a dot is tried as a name.
func ownsField(owned map[string]any, path string, exact bool) bool {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '.' {
			continue
		}
		below, ok := owned["f:"+path[:end]].(map[string]any)
		switch {
		case !ok:
		case end == len(path), len(below) == 0 && !exact, len(below) > 0 && ownsField(below, path[end+1:], exact):
			return true
		}
	}
	return false
}

// lastWriter returns the last entry of a client other than Refract for an object or its subresource. It returns nil if
// there is none.
func lastWriter(entries []metav1.ManagedFieldsEntry, subresource string) (last *metav1.ManagedFieldsEntry) {
	for i := range entries {
		entry := &entries[i]
		if entry.Subresource != subresource || entry.Time == nil || wire.IsFieldManager(entry.Manager) {
			continue
		}
		if last == nil || last.Time.Before(entry.Time) {
			last = entry
		}
	}
	return last
}

// Differences returns the paths of up to fieldsMost fields that are missing or differ from the desired state. Lists are
// compared as a whole. If exact is true, additional fields count, too.
func Differences(desired, actual map[string]any, exact bool) (paths []string) {
	walkDifferences("", desired, actual, exact, func(path string) { paths = append(paths, path) })
	return firstPaths(paths)
}

// PatchedFields returns the paths of up to fieldsMost fields that a merge patch sets or removes.
func PatchedFields(patch map[string]any) (paths []string) {
	walkPatch("", patch, func(path string) { paths = append(paths, path) })
	return firstPaths(paths)
}

func walkPatch(path string, patch map[string]any, changes func(string)) {
	for key, value := range patch {
		at := strings.TrimPrefix(path+"."+key, ".")
		if below, isMap := value.(map[string]any); isMap {
			walkPatch(at, below, changes)
			continue
		}
		changes(at)
	}
}

func firstPaths(paths []string) []string {
	slices.Sort(paths)
	if len(paths) > fieldsMost {
		paths = append(paths[:fieldsMost], "…")
	}
	return paths
}

func walkDifferences(path string, desired, actual map[string]any, exact bool, differs func(string)) {
	for key, value := range desired {
		at := strings.TrimPrefix(path+"."+key, ".")
		below, isMap := value.(map[string]any)
		present, alsoMap := actual[key].(map[string]any)
		switch {
		case isMap && alsoMap:
			walkDifferences(at, below, present, exact, differs)
		case !equality.Semantic.DeepEqual(value, actual[key]):
			differs(at)
		}
	}
	if !exact {
		return
	}
	for key := range actual {
		if _, ok := desired[key]; !ok {
			differs(strings.TrimPrefix(path+"."+key, "."))
		}
	}
}
