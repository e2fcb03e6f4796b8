// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
)

// State is the offloading state of a namespace of this cluster.
type State int

const (
	// Unknown is the state of a namespace if there is no map, or if the map does not determine the state: the remote
	// namespace does not exist yet or is being deleted, or the map is new and does not contain the namespace yet.
	Unknown State = iota
	// NotOffloaded is the state of a namespace that is not in the map.
	NotOffloaded
	// Mapped is the state of a namespace whose remote namespace exists and may be used.
	Mapped
)

// table is the content of a NamespaceMap.
type table struct {
	remoteNamespaces map[string]string // accepted entries: remote namespaces by namespace
	// named contains the namespaces of all entries, accepted or not, and of all requests of the consumer.
	named    map[string]bool
	doubtful map[string]bool // namespaces with invalid entries; nothing changes for them
}

// parseMap reads a map without typed decoding, so that a malformed entry does not affect the others. A namespace is
// mapped if this cluster requests it in the spec and the provider has accepted it in the status. The problems are
// sentences for users, in a stable order. If the provider has accepted the same remote namespace for two namespaces,
// both entries are invalid, because it is unclear which namespace the remote namespace belongs to. If one of them is
// already being reflected, its reflection continues.
func parseMap(object *unstructured.Unstructured) (parsed table, problems []string, err error) {
	parsed = table{remoteNamespaces: map[string]string{}, named: map[string]bool{}, doubtful: map[string]bool{}}
	desired, _, err := unstructured.NestedMap(object.Object, "spec", "desiredMapping")
	if err != nil {
		return parsed, nil, fmt.Errorf("reading spec.desiredMapping, %w", err)
	}
	for local := range desired {
		parsed.named[local] = true
	}
	entries, _, err := unstructured.NestedFieldNoCopy(object.Object, "status", "currentMapping")
	if err != nil {
		return parsed, nil, fmt.Errorf("reading status.currentMapping, %w", err)
	}
	if entries == nil {
		return parsed, nil, nil
	}
	mapping, ok := entries.(map[string]any)
	if !ok {
		return parsed, nil, fmt.Errorf("status.currentMapping is %T, want a map from the local to the remote namespace", entries)
	}
	taken := map[string]string{}
	for _, local := range slices.Sorted(maps.Keys(mapping)) {
		parsed.named[local] = true
		remote, accepted, problem := parseEntry(mapping[local])
		// A namespace is reflected only if this cluster has requested it. Otherwise the provider could add namespaces.
		if asked, _ := desired[local].(string); problem == "" && accepted && asked != remote {
			accepted = false
			if asked != "" {
				problem = fmt.Sprintf("was requested to be mapped to %s, but the provider maps it to %s: the mapping is left unchanged", asked, remote)
			}
		}
		if other, twice := taken[remote]; problem == "" && twice {
			problem = fmt.Sprintf("is mapped to %s, and so is %s: use a different remote namespace for each namespace", remote, other)
			delete(parsed.remoteNamespaces, other)
			parsed.doubtful[other] = true
		}
		switch {
		case problem != "":
			parsed.doubtful[local] = true
			problems = append(problems, fmt.Sprintf("namespace %s %s", local, problem))
		case accepted:
			taken[remote] = local
			parsed.remoteNamespaces[local] = remote
		}
	}
	return parsed, problems, nil
}

func parseEntry(value any) (remote string, accepted bool, problem string) {
	entry, ok := value.(map[string]any)
	if !ok {
		return "", false, fmt.Sprintf("has an entry of type %T, want {remoteNamespace, phase}", value)
	}
	phase, isText := entry["phase"].(string)
	if _, present := entry["phase"]; present && !isText {
		return "", false, "has a phase that is not a string"
	}
	if offloadingv1beta1.MappingPhase(phase) != offloadingv1beta1.MappingAccepted {
		return "", false, ""
	}
	remote, _ = entry["remoteNamespace"].(string)
	if faults := validation.IsDNS1123Label(remote); len(faults) > 0 {
		return "", false, fmt.Sprintf("has the remote namespace %q, which is not a valid name: %s", remote, faults[0])
	}
	return remote, true, ""
}

// namespaceChanges contains the differences between two tables. Stops are processed before starts, because a namespace
// whose remote namespace changes is stopped and started again.
type namespaceChanges struct {
	stop  []string
	start map[string]string
}

// diffTable compares running, the namespaces that are being reflected, with the table.
func diffTable(running map[string]string, next table) namespaceChanges {
	result := namespaceChanges{start: map[string]string{}}
	for local, remote := range running {
		if now, ok := next.remoteNamespaces[local]; now != remote && (ok || !next.doubtful[local]) {
			result.stop = append(result.stop, local)
		}
	}
	slices.Sort(result.stop)
	// Namespaces with invalid entries are not changed. They keep their remote namespaces, so that no other namespace
	// may use these.
	held := map[string]bool{}
	for local, remote := range running {
		held[remote] = next.doubtful[local]
	}
	for local, remote := range next.remoteNamespaces {
		if running[local] != remote && !held[remote] {
			result.start[local] = remote
		}
	}
	return result
}
