// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// maxNamed is the maximum number of remote namespaces in an Event.
const maxNamed = 8

// requests records the remote namespaces that this process has requested from each provider. The requests of earlier
// processes are in the status of the NamespaceMap if the provider has confirmed them. The zero value is empty.
type requests struct {
	mu   sync.Mutex
	sent map[types.NamespacedName]sentMap
}

// sentMap contains the entries of a NamespaceMap that this process has replicated.
type sentMap struct {
	uid     types.UID
	entries map[entry]bool
}

type entry struct{ namespace, remoteNamespace string }

// recordSent records the replicated entries of a map.
func (r *requests) recordSent(key types.NamespacedName, local *offloading.NamespaceMap, replicated offloading.NamespaceMapSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent == nil {
		r.sent = map[types.NamespacedName]sentMap{}
	}
	if r.sent[key].uid != local.UID {
		r.sent[key] = sentMap{local.UID, map[entry]bool{}}
	}
	for namespace, remoteNamespace := range local.Spec.DesiredMapping {
		if replicated.DesiredMapping[namespace] == remoteNamespace {
			r.sent[key].entries[entry{namespace, remoteNamespace}] = true
		}
	}
}

// dropMap drops the record of a deleted map.
func (r *requests) dropMap(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sent, key)
}

// mergeEntries returns the desired spec of the copy. It contains the entries of the map, and the entries of the copy
// that this cluster is not known to have requested. An entry that this cluster requested earlier but no longer requests
// is not included, so that the provider deletes the remote namespace.
func (r *requests) mergeEntries(key types.NamespacedName, local, copied *offloading.NamespaceMap) (desired offloading.NamespaceMapSpec, others map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent[key]
	desired, others = *local.Spec.DeepCopy(), map[string]string{}
	for namespace, remoteNamespace := range copied.Spec.DesiredMapping {
		// An entry of the copy is dropped if it is a withdrawn request, or if another client has replaced a request of
		// this cluster by it.
		now, requests := local.Spec.DesiredMapping[namespace]
		if now != remoteNamespace && !sent.wasRequested(local, entry{namespace, remoteNamespace}) && !(requests && sent.wasRequested(local, entry{namespace, now})) {
			others[namespace] = remoteNamespace
		}
	}
	if len(others) > 0 && desired.DesiredMapping == nil {
		desired.DesiredMapping = map[string]string{}
	}
	maps.Copy(desired.DesiredMapping, others)
	for e := range sent.entries {
		if copied.Spec.DesiredMapping[e.namespace] != e.remoteNamespace && local.Spec.DesiredMapping[e.namespace] != e.remoteNamespace {
			// The copy no longer contains the entry.
			delete(sent.entries, e)
		}
	}
	return desired, others
}

// wasRequested reports whether this cluster is known to have requested an entry of the map.
func (s sentMap) wasRequested(local *offloading.NamespaceMap, e entry) bool {
	status, answered := local.Status.CurrentMapping[e.namespace]
	return answered && status.RemoteNamespace == e.remoteNamespace || s.uid == local.UID && s.entries[e]
}

// describeOthers returns the note of the Event about remote namespaces that this cluster is not known to have
// requested. It contains their names and the remedies.
func describeOthers(local, copied *offloading.NamespaceMap, others map[string]string) string {
	var named, renamed []string
	for _, namespace := range slices.Sorted(maps.Keys(others)) {
		switch requested := local.Spec.DesiredMapping[namespace]; {
		case requested != "" && len(renamed) < maxNamed:
			renamed = append(renamed, fmt.Sprintf("%.63q is %.63q there, and not %.63q", namespace, others[namespace], requested))
		case requested == "" && len(named) < maxNamed:
			named = append(named, fmt.Sprintf("%.63q (of namespace %.63q)", others[namespace], namespace))
		}
	}
	note := fmt.Sprintf("NamespaceMap %s/%s of provider %s has %d remote namespaces that this cluster does not request; they were left unchanged and nothing is reflected to them",
		copied.Namespace, copied.Name, local.Name, len(others))
	if len(named) > 0 {
		note += ": " + strings.Join(named, ", ") + ". To use one again, offload its namespace to this provider; to delete one, offload its namespace and unoffload it, or have it removed from spec.desiredMapping there"
	}
	if len(renamed) > 0 {
		note += ". Namespaces with another remote name there are not offloaded: " + strings.Join(renamed, ", ") +
			"; offload them again with that name, or have it removed from spec.desiredMapping there"
	}
	return note
}
