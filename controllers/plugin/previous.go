// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginrevision"
)

// isProven reports whether the probation of the active revision is over on all virtual nodes to which the revision
// applies. This includes virtual nodes that are not reachable, because the copies that the revision would remove there
// are still held. A revision that applies to none of the virtual nodes is not proven.
func (c *Controller) isProven(ctx context.Context, p *plugins.ReflectionPlugin, nodes []virtualNode) (bool, error) {
	if p.Status.PromotedAt == nil || len(nodes) == 0 {
		return true, nil // a proven revision was restored, or there are no copies
	}
	active, err := c.getRevision(ctx, p.Status.ActiveRevision)
	if err != nil || active == nil {
		return false, err
	}
	begunBefore := c.options.Clock.Now().Add(-pluginrevision.ProbationPeriod(p))
	concerned := selectNodes(nodes, active)
	return len(concerned) > 0 && !slices.ContainsFunc(concerned, func(n virtualNode) bool {
		return !hasPassed(findEntry(active, n.name), p.Status.PromotedAt, begunBefore)
	}), nil
}

// hasPassed reports whether an entry is about a probation after this promotion that has begun before a time, and was passed.
func hasPassed(entry *plugins.VirtualNodePlugin, promotedAt *metav1.Time, begunBefore time.Time) bool {
	return entry != nil && entry.State != plugins.RolledBackPlugin && entry.PromotedAt.Equal(promotedAt) &&
		entry.ActiveSince != nil && entry.ActiveSince.Time.Before(begunBefore)
}

// replaceActive makes a revision active. The previous revision is then the last proven one. Objects that an unproven
// revision skips must not count as already skipped, because the copies that its probation holds would then be removed.
// Before any revision is proven, the previous revision is the first one, and removals are compared with no revision.
func replaceActive(p *plugins.ReflectionPlugin, name string, isProven bool, now time.Time) {
	s := &p.Status
	active := s.ActiveRevision
	s.ActiveRevision, s.PromotedAt = name, &metav1.Time{Time: now.Truncate(time.Second)}
	switch {
	case active == "":
	case isProven:
		s.PreviousRevision, s.PreviousUnproven = active, false
	case s.PreviousRevision == name:
		if !s.PreviousUnproven {
			s.PromotedAt = nil // copies of objects that it skips were removed before
		}
		s.PreviousRevision, s.PreviousUnproven = "", false
	case s.PreviousRevision == "":
		s.PreviousRevision, s.PreviousUnproven = active, true
	}
}
