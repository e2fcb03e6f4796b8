// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// TestRollBacksOfEarlierPromotionsAreIgnored checks that an entry about the rollback of an earlier promotion does not
// roll back the present promotion.
func TestRollBacksOfEarlierPromotionsAreIgnored(t *testing.T) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	before := metav1.NewTime(now.Add(-time.Hour))
	nodes := []virtualNode{{name: "milan"}}
	for _, c := range []struct {
		promotedAt *metav1.Time
		isFound    bool
	}{{&before, false}, {&now, true}, {nil, true}} {
		r := &plugins.PluginRevision{}
		r.Status.VirtualNodes = []plugins.VirtualNodePlugin{{Name: "milan", State: plugins.RolledBackPlugin, PromotedAt: c.promotedAt}}
		assert.Equal(t, c.isFound, findRolledBack(r, &now, nodes) != nil, c.promotedAt)
	}
}
