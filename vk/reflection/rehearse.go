// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"

	"k8s.io/utils/clock"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
	"github.com/refract-project/refract/vk/reflection/internal/rehearsal"
)

// PluginCandidate is a revision of a plugin that is not used yet.
type PluginCandidate = rehearsal.Candidate

// RehearsePlugin evaluates the cached objects of the candidate's kinds with the current chains and with the next
// chains, and returns the differences. It writes no objects. Reflection has priority. If ctx ends, RehearsePlugin
// returns early with the error of ctx.
func RehearsePlugin(ctx context.Context, m *Manager, c PluginCandidate) (*plugins.PluginRehearsalResult, error) {
	return rehearsal.Run(ctx, m, c)
}

// Types for the probation of promoted plugin revisions; see Options.Probations.
type (
	// Probations contains all probations of a virtual kubelet.
	Probations = probation.Set
	// Probation is the probation of one promoted revision.
	Probation = probation.Probation
	// ProbationOptions are the options of a Probation.
	ProbationOptions = probation.Options
)

// NewProbations returns an empty set of probations.
func NewProbations(clock clock.PassiveClock) *Probations { return probation.NewSet(clock) }

// NewProbation returns a Probation without any counts.
func NewProbation(o ProbationOptions) *Probation { return probation.New(o) }
