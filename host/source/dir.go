// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// DirConfig is the configuration of a Dir.
type DirConfig struct {
	// Path is the directory, or a symbolic link to it.
	Path string
	// Chains receives the modules of the directory.
	Chains *Chains
	// OnStatus, if set, is called for each module whose status has changed, and for each module that was removed.
	// Only one goroutine at a time calls it, and the next Sync waits until it returns.
	OnStatus func(s Status, removed bool)
	// Quiet is how long the directory must be unchanged before it is read. If it is too short, a file that is still
	// being copied is reported as broken. The default is 200 ms.
	Quiet time.Duration
	// Poll is how often the directory is read without a notification. It is needed because some file systems send no
	// notifications. The default is 10 s.
	Poll time.Duration
	// Logger logs errors of the directory itself. If it is nil, slog.Default() is used.
	Logger *slog.Logger
}

// patience limits how long Sync waits for the end of the changes in a directory that changes all the time, in
// multiples of Quiet.
const patience = 20

// Dir keeps Chains consistent with a directory.
type Dir struct {
	config  DirConfig
	watcher *fsnotify.Watcher // nil if the system cannot create another one; changes are then found only by polling
	watched os.FileInfo       // the directory to which the watch belongs, to notice that it was replaced

	published atomic.Pointer[[]Status]

	mu       sync.Mutex // held while modules are compiled
	statuses []Status
	read     map[string]seen // keyed by module name
	found    folder          // last known state of the directory
}

const (
	// defaultQuietPeriod is how long a directory must be unchanged before it is read. With a shorter period, files
	// that are still being written are read.
	defaultQuietPeriod = 200 * time.Millisecond
	// defaultPollInterval is how often a directory is read without a notification, because some file systems send no
	// notifications.
	defaultPollInterval = 10 * time.Second
)

// NewDir returns a Dir for a directory, which must exist. Changes to the directory are recorded from now on. Sync and
// Run apply them.
func NewDir(config DirConfig) (*Dir, error) {
	info, err := os.Stat(config.Path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("opening plugin directory %s, %w: create it, or name another one", config.Path, err)
	}
	if config.Path, err = filepath.Abs(config.Path); err != nil {
		return nil, fmt.Errorf("opening plugin directory %s, %w", config.Path, err)
	}
	config.Quiet = cmp.Or(config.Quiet, defaultQuietPeriod)
	config.Poll = cmp.Or(config.Poll, defaultPollInterval)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	d := &Dir{config: config}
	if d.watcher, err = fsnotify.NewWatcher(); err != nil {
		d.config.Logger.Warn("Cannot watch the plugin directory, polling it instead", "dir", config.Path, "interval", config.Poll, "err", err)
		return d, nil
	}
	d.watchFolder()
	return d, nil
}

// watchFolder watches the directory. It also watches the parent, because the directory may be replaced. If the
// directory is already watched, watchFolder has no effect.
func (d *Dir) watchFolder() {
	if d.watcher == nil {
		return
	}
	info, err := os.Stat(d.config.Path)
	if d.watched != nil && (err != nil || !os.SameFile(info, d.watched)) {
		// Remove fails if the directory was deleted, because then the watch is also gone.
		_ = d.watcher.Remove(d.config.Path)
		d.watched = nil
	}
	if err != nil {
		return
	}
	for _, path := range []string{d.config.Path, filepath.Dir(d.config.Path)} {
		if err := d.watcher.Add(path); err != nil {
			d.config.Logger.Warn("Cannot watch the plugin directory, polling it instead", "path", path, "interval", d.config.Poll, "err", err)
		}
	}
	d.watched = info
}

// concernsFolder reports whether an event concerns the directory or a file in it, and not another entry of the
// parent.
func (d *Dir) concernsFolder(e fsnotify.Event) bool {
	return e.Name == d.config.Path || filepath.Dir(e.Name) == d.config.Path
}

// Sync waits until the directory is quiet, reads it, and applies its content. It must be called once before the first
// object is reflected. The returned error concerns the directory. The errors of single modules are in their statuses.
func (d *Dir) Sync(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchFolder()
	found, modules, err := d.readModules(ctx)
	if err != nil {
		return fmt.Errorf("reading plugin directory, its plugins stay as they are, %w", err)
	}
	before := d.statuses
	d.statuses = append(d.config.Chains.Apply(ctx, modules), found.ignoredFiles()...)
	statuses := slices.Clone(d.statuses)
	d.published.Store(&statuses)
	d.reportChanges(before)
	return nil
}

// Statuses returns the statuses from the last Sync: one for each module, and one for each ignored file. Callers must
// not modify them.
func (d *Dir) Statuses() []Status {
	if statuses := d.published.Load(); statuses != nil {
		return *statuses
	}
	return nil
}

// seen is a module that was read, with the FileInfos of its files at that time.
type seen struct {
	module Module
	files  []os.FileInfo
	at     time.Time
}

// isUnchanged reports whether the module would be the same if its files were read again.
func (s seen) isUnchanged(files []os.FileInfo) bool {
	return s.module.Err == nil && slices.EqualFunc(s.files, files, sameFile) &&
		!slices.ContainsFunc(files, func(info os.FileInfo) bool { return !isConclusive(info, s.at) })
}

// readModules reads the modules of a quiet directory. In contrast to ReadDir, it reads only modules that have changed
// since the last call. If files change while they are read, they are read again, so that a module is never combined
// with options of another version.
func (d *Dir) readModules(ctx context.Context) (folder, []Module, error) {
	end := time.Now().Add(patience * d.config.Quiet)
	found, err := readFolder(d.config.Path)
	for {
		if err == nil {
			found, err = d.awaitQuiet(ctx, found, end)
		}
		if err != nil {
			return found, nil, err
		}
		modules, read := d.readChanged(found)
		now, err := readFolder(d.config.Path)
		if err != nil {
			return found, nil, err
		}
		if now.sameAs(found) || !time.Now().Before(end) {
			d.read, d.found = read, found
			return found, modules, nil
		}
		found = now
	}
}

// awaitQuiet waits until the directory has been unchanged for the period Quiet, or equals its last known state, and
// returns its state. It waits until end at the latest.
func (d *Dir) awaitQuiet(ctx context.Context, found folder, end time.Time) (folder, error) {
	for !found.sameAs(d.found) && time.Now().Before(end) {
		select {
		case <-time.After(d.config.Quiet):
		case <-ctx.Done():
			return found, ctx.Err()
		}
		now, err := readFolder(d.config.Path)
		if err != nil || now.sameAs(found) {
			return now, err
		}
		found = now
	}
	return found, nil
}

func (d *Dir) readChanged(found folder) (modules []Module, read map[string]seen) {
	read = map[string]seen{}
	for _, name := range found.moduleNames() {
		now := seen{at: time.Now(), files: []os.FileInfo{found.files[name]}}
		for _, suffix := range optionsSuffixes {
			now.files = append(now.files, found.files[stemOf(name)+suffix])
		}
		if known, ok := d.read[name]; ok && known.isUnchanged(now.files) && checkSpelling(stemOf(name), found.fileNames()) == nil {
			now = known
		} else {
			now.module = found.readModule(name)
		}
		read[name] = now
		modules = append(modules, now.module)
	}
	return modules, read
}

func (d *Dir) reportChanges(before []Status) {
	if d.config.OnStatus == nil {
		return
	}
	for _, s := range d.statuses {
		if !slices.ContainsFunc(before, s.equalsStatus) {
			d.config.OnStatus(s, false)
		}
	}
	for _, s := range before {
		if !slices.ContainsFunc(d.statuses, func(now Status) bool { return now.Name == s.Name }) {
			s.Running = false
			d.config.OnStatus(s, true)
		}
	}
}

// Run applies changes in the directory until ctx is done. The plugins stay in the chains after Run has returned.
func (d *Dir) Run(ctx context.Context) error {
	events, failures := d.watcherChannels()
	defer d.closeWatcher()
	poll := time.NewTicker(d.config.Poll)
	defer poll.Stop()
	d.applyFolder(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		// After an error of the watcher, the directory is read again, because notifications may have been lost.
		case err := <-failures:
			d.config.Logger.Warn("The watch of the plugin directory failed. The directory is read now, and at each poll", "dir", d.config.Path, "err", err)
		case e := <-events:
			if !d.concernsFolder(e) {
				continue
			}
			drainEvents(events)
		}
		d.applyFolder(ctx)
	}
}

// drainEvents drops the pending notifications, because the next Sync covers them.
func drainEvents(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

func (d *Dir) applyFolder(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if err := d.Sync(ctx); err != nil {
		d.config.Logger.Error("Cannot load the plugin directory", "dir", d.config.Path, "err", err)
	}
}

func (d *Dir) watcherChannels() (<-chan fsnotify.Event, <-chan error) {
	if d.watcher == nil {
		return nil, nil
	}
	return d.watcher.Events, d.watcher.Errors
}

func (d *Dir) closeWatcher() {
	if d.watcher != nil {
		_ = d.watcher.Close()
	}
}
