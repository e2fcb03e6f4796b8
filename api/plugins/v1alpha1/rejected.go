// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// maxEarlierRejectedRevisions is the maximum length of EarlierRejectedRevisions.
const maxEarlierRejectedRevisions = 20

// IsRejected reports whether the revision was rolled back in its probation.
func (s *ReflectionPluginStatus) IsRejected(revision string) bool {
	return revision != "" && (revision == s.RejectedRevision || slices.Contains(s.EarlierRejectedRevisions, revision))
}

// RejectRevision records that the revision was rolled back. The oldest rejection is dropped if there are too many.
func (s *ReflectionPluginStatus) RejectRevision(revision string) {
	earlier := s.EarlierRejectedRevisions
	if s.RejectedRevision != "" {
		earlier = slices.Concat([]string{s.RejectedRevision}, earlier)
	}
	earlier = slices.DeleteFunc(slices.Clone(earlier), func(name string) bool { return name == revision })
	s.RejectedRevision, s.EarlierRejectedRevisions = revision, earlier[:min(len(earlier), maxEarlierRejectedRevisions)]
}
