// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"encoding/json"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

const (
	// maxVirtualNodes is the maximum number of entries of a PluginRevision. The limit in the CRD is the same.
	maxVirtualNodes = 256
	// maxDetails is the maximum size of the paths, conflicts and examples in one entry, in bytes of JSON. Together with
	// the other fields of an entry, its managed fields and the longest names, maxVirtualNodes entries fit into the 1.5
	// MiB that etcd accepts.
	maxDetails = 3072
	// maxEntryMessage is the maximum length of the message in one entry, in bytes. The CRD permits the same number of
	// characters, and an API server rejects the whole status if a message is longer.
	maxEntryMessage = 1024
)

// countsOf returns a copy of a result without paths, conflicts and examples. An active revision only keeps the counts,
// because the number of approved removals is one of them.
func countsOf(result *plugins.PluginRehearsalResult) *plugins.PluginRehearsalResult {
	if result == nil {
		return nil
	}
	counts := *result
	counts.Paths, counts.Conflicts, counts.Examples = nil, nil, nil
	return &counts
}

// limitDetails returns a copy of a result with as many paths, conflicts and examples as fit into maxDetails, beginning
// with the first ones of each list. The counts do not change.
func limitDetails(result *plugins.PluginRehearsalResult) *plugins.PluginRehearsalResult {
	limited, left := countsOf(result), maxDetails
	for n := range max(len(result.Paths), len(result.Conflicts), len(result.Examples)) {
		limited.Examples = appendFitting(limited.Examples, result.Examples, n, &left)
		limited.Paths = appendFitting(limited.Paths, result.Paths, n, &left)
		limited.Conflicts = appendFitting(limited.Conflicts, result.Conflicts, n, &left)
	}
	return limited
}

// appendFitting appends the n-th detail to the kept ones if it exists and fits into the bytes that are left.
func appendFitting[T any](kept, all []T, n int, left *int) []T {
	if n >= len(all) {
		return kept
	}
	text, err := json.Marshal(all[n])
	if size := len(text) + 1; err == nil && size <= *left { // one byte is for a comma
		*left -= size
		return append(kept, all[n])
	}
	return kept
}
