// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// unfinishedAge is how long an operation may take until it counts as interrupted. It is the default timeout of helm
// and of refractctl install. With a shorter time, an installation that is still running could be taken over; with a
// longer one, users would have to wait longer after an interruption.
const unfinishedAge = 5 * time.Minute

// takeOver prepares the upgrade of a release whose last operation was interrupted, because the process was killed or
// lost its connection to the API server. Helm refuses to upgrade such a release until its Secret is edited. takeOver
// marks the last revision of the release as failed. In a dry run, it does so only in memory. It fails if the operation
// may still be running.
func (i *Installer) takeOver(config *action.Configuration, dryRun bool) error {
	history, err := listRevisions(config, i.Name)
	if err != nil {
		return err
	}
	last := history[len(history)-1]
	status, begun := last.Info.Status, last.Info.LastDeployed
	if status == common.StatusUninstalling {
		begun = last.Info.Deleted
	}
	if !status.IsPending() && status != common.StatusUninstalling {
		return nil
	}
	// If the clock of the other program is ahead, begun may be in the future. The operation then counts as recent until
	// that time has passed.
	if until := begun.Add(unfinishedAge); time.Now().Before(until) {
		return fmt.Errorf("release %s/%s: another installation is in progress since %s (revision %d is %s): wait for it, or run the command again after %s if it was interrupted",
			i.Namespace, i.Name, begun.UTC().Format(time.RFC3339), last.Version, status, until.UTC().Format(time.RFC3339))
	}
	last.SetStatus(common.StatusFailed, fmt.Sprintf("Interrupted while it was %s", status))
	if !dryRun {
		i.Progress.Report("revision %d of release %s was interrupted (%s since %s), continuing", last.Version, i.Name, status, begun.UTC().Format(time.RFC3339))
		if err := config.Releases.Update(last); err != nil {
			return fmt.Errorf("marking revision %d of release %s/%s as failed, %w", last.Version, i.Namespace, i.Name, err)
		}
		return nil
	}
	memory := driver.NewMemory()
	memory.SetNamespace(i.Namespace)
	config.Releases = storage.Init(memory)
	for _, revision := range history {
		if err := config.Releases.Create(revision); err != nil {
			return fmt.Errorf("copying revision %d of release %s/%s, %w", revision.Version, i.Namespace, i.Name, err)
		}
	}
	return nil
}

// listRevisions returns the revisions of a release in ascending order. The result is empty if the release does not
// exist.
func listRevisions(config *action.Configuration, name string) ([]*releasev1.Release, error) {
	stored, err := config.Releases.History(name)
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, fmt.Errorf("reading the history of release %s, %w", name, err)
	}
	history := make([]*releasev1.Release, 0, len(stored))
	for _, s := range stored {
		revision, ok := s.(*releasev1.Release)
		if !ok || revision.Info == nil {
			return nil, fmt.Errorf("reading the history of release %s: a revision is of type %T: use the version of helm that wrote it", name, s)
		}
		history = append(history, revision)
	}
	slices.SortFunc(history, func(a, b *releasev1.Release) int { return a.Version - b.Version })
	return history, nil
}
