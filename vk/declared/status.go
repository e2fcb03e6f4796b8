// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/fieldmanager"
	"github.com/refract-project/refract/internal/printable"
)

// reported is the entry that was written last. The watch may not have reported it yet. The field entry is nil if the
// last write has removed the entry.
type reported struct {
	uid     types.UID
	version string
	entry   *plugins.VirtualNodePlugin
}

// ReportState sets the entry of this virtual node for a revision that is not active. This is the candidate of a plugin,
// or a revision that was rolled back here. The replica that is the leader writes the entry if it has changed.
// ReportState returns false if the entry was already set.
func (f *Follower) ReportState(revision string, entry plugins.VirtualNodePlugin) (isChanged bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry.Name = f.options.NodeName
	entry.Message = printable.Shorten(printable.Line(entry.Message), maxEntryMessage)
	if before, ok := f.others[revision]; ok && equality.Semantic.DeepEqual(before, entry) {
		return false
	}
	f.others[revision] = entry
	f.refreshSoon()
	return true
}

// WithdrawState removes the entry of this virtual node for a revision that is not active.
func (f *Follower) WithdrawState(revision string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.others, revision)
	f.refreshSoon()
}

// reportStates writes the entries of this virtual node that have changed, and returns the delay until the next attempt;
// 0 means never.
func (f *Follower) reportStates(ctx context.Context, all []*plugins.ReflectionPlugin) (retry time.Duration) {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	existing := map[string]bool{}
	for _, object := range f.revisions.GetStore().List() {
		revision, err := decodeObject[plugins.PluginRevision](object.(*unstructured.Unstructured))
		if err != nil {
			continue // a newer version of Refract has written this revision
		}
		existing[revision.Name] = true
		err = f.reportState(ctx, revision, all)
		if ctx.Err() != nil {
			continue
		}
		f.reportDenial(revision, err)
		if err != nil {
			retry = f.options.RetryMost
			if text := err.Error(); text != f.said {
				f.said = text
				f.log.Warn("The state of a declared plugin cannot be reported", "revision", revision.Name, "err", err)
			}
		}
	}
	for name := range f.reported {
		if !existing[name] {
			delete(f.reported, name)
		}
	}
	return retry
}

// reportDenial writes an Event on the revision if an admission policy has denied the write of its status.
func (f *Follower) reportDenial(revision *plugins.PluginRevision, err error) {
	about := &corev1.ObjectReference{APIVersion: plugins.GroupVersion.String(), Kind: plugins.PluginRevisionKind, Name: revision.Name, UID: revision.UID}
	f.denials.Report(f.options.Events, about, revision.UID, f.options.NodeName, err)
}

// reportState writes or removes the entry for a revision, unless it is already as desired.
func (f *Follower) reportState(ctx context.Context, revision *plugins.PluginRevision, all []*plugins.ReflectionPlugin) error {
	present := f.ownEntry(revision)
	desired := f.desiredEntry(revision, present, all)
	if equality.Semantic.DeepEqual(present, desired) {
		return nil
	}
	entries := []any{}
	if desired != nil {
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": plugins.GroupVersion.String(), "kind": plugins.PluginRevisionKind,
		"metadata": map[string]any{"name": revision.Name, "uid": string(revision.UID)},
		"status":   map[string]any{"virtualNodes": entries},
	}}
	ctx, cancel := f.withTimeout(ctx)
	defer cancel()
	stored, err := f.client.Resource(revisionsResource).ApplyStatus(ctx, revision.Name, status, metav1.ApplyOptions{FieldManager: fieldmanager.OfNode(f.options.NodeName), Force: true})
	// The revision is gone or was replaced. The watch will report this.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		f.reported[revision.Name] = reported{revision.UID, stored.GetResourceVersion(), desired}
	}
	return err
}

// ownEntry returns the entry of this virtual node, which is at least as new as the last write. It returns nil if there
// is none.
func (f *Follower) ownEntry(revision *plugins.PluginRevision) *plugins.VirtualNodePlugin {
	if last, ok := f.reported[revision.Name]; ok && last.uid == revision.UID {
		if order, err := resourceversion.CompareResourceVersion(revision.ResourceVersion, last.version); err == nil && order < 0 {
			return last.entry
		}
	}
	return f.entryIn(revision)
}

// desiredEntry returns the entry of this virtual node for a revision, or nil if there must be none.
func (f *Follower) desiredEntry(revision *plugins.PluginRevision, present *plugins.VirtualNodePlugin, all []*plugins.ReflectionPlugin) *plugins.VirtualNodePlugin {
	var p *plugins.ReflectionPlugin
	if i := slices.IndexFunc(all, func(p *plugins.ReflectionPlugin) bool { return p.Name == revision.Spec.Plugin }); i >= 0 {
		p = all[i]
	}
	other := f.otherEntry(revision.Name, p)
	isActive := p != nil && p.Status.ActiveRevision == revision.Name
	if isActive { // the rollback is reported even if the revision continues to run because the previous one is lost
		for _, entry := range []*plugins.VirtualNodePlugin{other, present} {
			if isRollBack(entry, p) {
				return entry
			}
		}
	}
	if s := f.known[revision.Spec.Plugin]; s != nil && s.revision == revision.Name {
		entry := &plugins.VirtualNodePlugin{Name: f.options.NodeName, State: s.state, Reason: s.reason, Message: printable.Shorten(s.message, maxEntryMessage)}
		if s.running != s.revision {
			entry.RunningRevision = s.running
		}
		if present != nil {
			entry.Rehearsal = countsOf(present.Rehearsal)
		}
		if isActive {
			entry.PromotedAt = p.Status.PromotedAt
			if b := f.begun[p.Name]; b.occasion == occasionOf(p) {
				entry.ActiveSince = &metav1.Time{Time: b.since}
			}
		}
		return entry
	}
	if other != nil {
		return other
	}
	// If an earlier leader has reported a candidate or a revision that failed, this report is valid until the next
	// evaluation.
	if !isActive && isConcerned(p, revision.Name) && present != nil && present.State != plugins.ActivePlugin && present.State != plugins.LoadingPlugin {
		return present
	}
	return nil
}

// otherEntry returns the entry for a revision that is not active (see ReportState), or nil. It removes the entry of a
// revision that was rolled back earlier if it is no longer needed.
func (f *Follower) otherEntry(revision string, p *plugins.ReflectionPlugin) *plugins.VirtualNodePlugin {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry, ok := f.others[revision]
	if !ok {
		return nil
	}
	if entry.State == plugins.RolledBackPlugin {
		isActive := p != nil && p.Status.ActiveRevision == revision
		if isActive && !isRollBack(&entry, p) || !isActive && !isConcerned(p, revision) {
			delete(f.others, revision)
			return nil
		}
	}
	return &entry
}

// isConcerned reports whether a revision is the candidate of its plugin, or was rejected.
func isConcerned(p *plugins.ReflectionPlugin, revision string) bool {
	return p != nil && (p.Status.CandidateRevision == revision || p.Status.IsRejected(revision))
}
