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

// DirConfig configures a Dir.
type DirConfig struct {
	// Path of the directory, or of a symbolic link to it.
	Path string
	// Chains that its modules go into.
	Chains *Chains
	// OnStatus, if set, is called for each module whose status is new, and for each that is removed. It is called by
	// one goroutine at a time, and the next pass waits for it.
	OnStatus func(s Status, removed bool)
	// Quiet is how long the directory must not have changed before it is read: a file that is being copied is not
	// a broken one. 200 ms when zero.
	Quiet time.Duration
	// Poll is how often the directory is read without a notification, which is what finds changes on
	// file systems that do not notify. 10 s when zero.
	Poll time.Duration
	// Logger gets errors of the directory itself. Nil means slog.Default().
	Logger *slog.Logger
}

// patience is how many Quiet times a directory that changes all the time is waited for.
const patience = 20

// Dir keeps Chains in line with a directory.
type Dir struct {
	config  DirConfig
	watcher *fsnotify.Watcher // nil when the system has none left: then only Poll finds changes
	watched os.FileInfo       // the directory that is being watched

	published atomic.Pointer[[]Status]

	mu       sync.Mutex // held while modules compile
	statuses []Status
	read     map[string]seen // by name
	found    folder          // as it was read last
}

// NewDir requires that the directory exists. Changes are noticed from now on, and applied by Sync and Run.
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
	config.Quiet = cmp.Or(config.Quiet, 200*time.Millisecond)
	config.Poll = cmp.Or(config.Poll, 10*time.Second)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	d := &Dir{config: config}
	if d.watcher, err = fsnotify.NewWatcher(); err != nil {
		d.config.Logger.Warn("Cannot watch the plugin directory, polling it instead", "dir", config.Path, "interval", config.Poll, "err", err)
		return d, nil
	}
	d.watch()
	return d, nil
}

// watch follows the directory, and its parent for the moment in which the directory is replaced by another
// one. Watching again what is watched does nothing.
func (d *Dir) watch() {
	if d.watcher == nil {
		return
	}
	info, err := os.Stat(d.config.Path)
	if d.watched != nil && (err != nil || !os.SameFile(info, d.watched)) {
		_ = d.watcher.Remove(d.config.Path) // an error: it was deleted, and the watch with it
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

// concerns reports whether an event is about the directory or something in it.
func (d *Dir) concerns(e fsnotify.Event) bool {
	return e.Name == d.config.Path || filepath.Dir(e.Name) == d.config.Path
}

// Sync reads the directory as soon as it is quiet, and applies its content. Call it once before the first object is reflected. The
// error is about the directory; modules report through their status.
func (d *Dir) Sync(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch()
	found, modules, err := d.modules(ctx)
	if err != nil {
		return fmt.Errorf("reading plugin directory, its plugins stay as they are, %w", err)
	}
	before := d.statuses
	d.statuses = append(d.config.Chains.Apply(ctx, modules), found.ignored()...)
	statuses := slices.Clone(d.statuses)
	d.published.Store(&statuses)
	d.report(before)
	return nil
}

// Statuses returns the statuses of the last Sync: one for each module, and one for each file that is not read.
// They must not be modified.
func (d *Dir) Statuses() []Status {
	if statuses := d.published.Load(); statuses != nil {
		return *statuses
	}
	return nil
}

// seen is a module as it was read, with what its files looked like then.
type seen struct {
	module Module
	files  []os.FileInfo
	at     time.Time
}

// unchanged reports whether reading again would give the same.
func (s seen) unchanged(files []os.FileInfo) bool {
	return s.module.Err == nil && slices.EqualFunc(s.files, files, sameFile) &&
		!slices.ContainsFunc(files, func(info os.FileInfo) bool { return !isConclusive(info, s.at) })
}

// modules is ReadDir of a quiet directory that reads again only what has changed since the last time. Files that change while they
// are read are read again, so that a module and its options belong together.
func (d *Dir) modules(ctx context.Context) (folder, []Module, error) {
	end := time.Now().Add(patience * d.config.Quiet)
	found, err := look(d.config.Path)
	for {
		if err == nil {
			found, err = d.awaitQuiet(ctx, found, end)
		}
		if err != nil {
			return found, nil, err
		}
		modules, read := d.readChanged(found)
		now, err := look(d.config.Path)
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

// awaitQuiet returns the directory when it has not changed for the Quiet time, or as it was read last. It does not wait beyond end.
func (d *Dir) awaitQuiet(ctx context.Context, found folder, end time.Time) (folder, error) {
	for !found.sameAs(d.found) && time.Now().Before(end) {
		select {
		case <-time.After(d.config.Quiet):
		case <-ctx.Done():
			return found, ctx.Err()
		}
		now, err := look(d.config.Path)
		if err != nil || now.sameAs(found) {
			return now, err
		}
		found = now
	}
	return found, nil
}

func (d *Dir) readChanged(found folder) (modules []Module, read map[string]seen) {
	read = map[string]seen{}
	for _, name := range found.modules() {
		now := seen{at: time.Now(), files: []os.FileInfo{found.files[name]}}
		for _, suffix := range optionsSuffixes {
			now.files = append(now.files, found.files[stemOf(name)+suffix])
		}
		if known, ok := d.read[name]; ok && known.unchanged(now.files) && checkSpelling(stemOf(name), found.names()) == nil {
			now = known
		} else {
			now.module = found.read(name)
		}
		read[name] = now
		modules = append(modules, now.module)
	}
	return modules, read
}

func (d *Dir) report(before []Status) {
	if d.config.OnStatus == nil {
		return
	}
	for _, s := range d.statuses {
		if !slices.ContainsFunc(before, s.same) {
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

// Run applies changes of the directory until ctx ends. Its plugins stay in the chains then.
func (d *Dir) Run(ctx context.Context) error {
	events, failures := d.channels()
	defer d.close()
	poll := time.NewTicker(d.config.Poll)
	defer poll.Stop()
	d.pass(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		case err := <-failures: // events may be lost
			d.config.Logger.Warn("The watch of the plugin directory failed, waiting for the next poll", "dir", d.config.Path, "err", err)
		case e := <-events:
			if !d.concerns(e) {
				continue
			}
			drain(events)
		}
		d.pass(ctx)
	}
}

// drain drops the notifications that the next look covers.
func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

func (d *Dir) pass(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if err := d.Sync(ctx); err != nil {
		d.config.Logger.Error("Cannot load the plugin directory", "dir", d.config.Path, "err", err)
	}
}

func (d *Dir) channels() (<-chan fsnotify.Event, <-chan error) {
	if d.watcher == nil {
		return nil, nil
	}
	return d.watcher.Events, d.watcher.Errors
}

func (d *Dir) close() {
	if d.watcher != nil {
		_ = d.watcher.Close()
	}
}
