// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginrevision

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// defaultProbationPeriod is the default of the API. With a shorter period, a revision that fails only rarely would not
// be rolled back, and removals would be held only briefly.
const defaultProbationPeriod = 10 * time.Minute

// ProbationPeriod returns how long a revision of the plugin is on probation.
func ProbationPeriod(p *plugins.ReflectionPlugin) time.Duration {
	if p.Spec.Rollout.Probation != nil {
		return p.Spec.Rollout.Probation.Duration
	}
	return defaultProbationPeriod
}

// OthersKey identifies the active revisions of all plugins except the given one. A rehearsal of a plugin is valid only
// while this key is unchanged, because the rehearsed chains also contain the other plugins. Plugins for other providers
// are included, so that the controller manager and the virtual kubelets compute the same key.
func OthersKey(all []*plugins.ReflectionPlugin, plugin string) string {
	var parts []string
	for _, p := range all {
		if p.Name != plugin && p.Status.ActiveRevision != "" {
			parts = append(parts, p.Name+"="+p.Status.ActiveRevision)
		}
	}
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(parts, " ")))
	return fmt.Sprintf("%x", sum[:8])
}
