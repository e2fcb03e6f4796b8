// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/nodeleg"
)

// The reasons of Events about the nodes that do not reach the active pod of a gateway, and do again.
const (
	nodesMissingReason = "NodesUnreachable"
	nodesReachedReason = "NodesReachable"
)

// legEventInterval is the minimum time between two Events about missing nodes. With a shorter one, a node that comes and goes hides
// other Events.
const legEventInterval = time.Minute

// maxNames limits the names in one message.
const maxNames = 10

// legReporter writes Events about the nodes that do not reach this gateway: one when nodes are missing that were not
// before, and one when all are back.
type legReporter struct {
	record func(kind, reason, text string)
	// latest contains the last result that run has not processed.
	latest chan nodeleg.Reached

	// The other fields belong to the goroutine that calls update.

	// reported contains the names in the last warning. It is empty after all nodes were back.
	reported []string
	warned   time.Time
}

func newLegReporter(record func(kind, reason, text string)) *legReporter {
	return &legReporter{record: record, latest: make(chan nodeleg.Reached, 1)}
}

// recordReport processes a Report of package gateway. It does not block.
func (l *legReporter) recordReport(r gateway.Report) {
	if r.Leg != nil {
		replaceValue(l.latest, *r.Leg)
	}
}

// run writes the Events until ctx is done.
func (l *legReporter) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for result := (nodeleg.Reached{}); ; {
		select {
		case <-ctx.Done():
			return nil
		case result = <-l.latest:
		case <-timer.C:
		}
		if wait := l.update(result, time.Now()); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// update writes an Event if the result requires one. If another one was written too recently, it returns how long to wait.
func (l *legReporter) update(result nodeleg.Reached, now time.Time) (wait time.Duration) {
	isNew := func(name string) bool { return !slices.Contains(l.reported, name) }
	switch missing := result.Missing; {
	case slices.ContainsFunc(missing, isNew):
		if wait := legEventInterval - now.Sub(l.warned); !l.warned.IsZero() && wait > 0 {
			return wait
		}
		l.reported, l.warned = missing, now
		consequence := ""
		if isCutOff(result) {
			consequence = ". Until a node reaches this gateway, its Connection is not connected"
		}
		const text = "%d of %d nodes do not reach this gateway, so their pods do not reach the peer: %s%s. " +
			"Allow UDP port %d in both directions between these nodes and the pods of gateways (NetworkPolicies, firewalls, security groups), and see that the agent runs on them"
		l.record(corev1.EventTypeWarning, nodesMissingReason,
			fmt.Sprintf(text, len(missing), result.Total, formatNames(missing), consequence, desired.VXLANPort))
	case len(missing) == 0 && len(l.reported) > 0:
		l.reported = nil
		if result.Total > 0 { // otherwise another pod has become active
			l.record(corev1.EventTypeNormal, nodesReachedReason, fmt.Sprintf("all nodes reach this gateway again (%d)", result.Total))
		}
	}
	return 0
}

// isCutOff reports whether there are several nodes, and none of them reaches the active pod of the gateway. The only node of
// a cluster is also missing while its agent is replaced, and still sends packets then.
func isCutOff(r nodeleg.Reached) bool { return r.Total > 1 && len(r.Missing) == r.Total }

// formatNames returns the first names of a list, and how many there are in addition.
func formatNames(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
