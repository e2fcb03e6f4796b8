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

	mu       sync.Mutex
	statuses []Status
	read     map[string]seen // by path
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

// Sync reads the directory and applies its content. Call it once before the first object is reflected. The
// error is about the directory; modules report through their status.
func (d *Dir) Sync(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch()
	modules, err := d.modules()
	if err != nil {
		return fmt.Errorf("reading plugin directory, its plugins stay as they are, %w", err)
	}
	before := d.statuses
	d.statuses = d.config.Chains.Apply(ctx, modules)
	d.report(before)
	return nil
}

// seen is a module as it was read, with what its files looked like then.
type seen struct {
	module        Module
	wasm, options os.FileInfo // nil when there was none
}

// modules is ReadDir that reads again only what has changed since the last time.
func (d *Dir) modules() ([]Module, error) {
	entries, err := os.ReadDir(d.config.Path)
	if err != nil {
		return nil, err
	}
	var modules []Module
	read := map[string]seen{}
	for _, name := range candidates(entries) {
		file := filepath.Join(d.config.Path, name)
		now := seen{wasm: stat(file), options: stat(optionsOf(file))}
		if known, ok := d.read[file]; ok && known.module.Err == nil && sameFile(known.wasm, now.wasm) && sameFile(known.options, now.options) {
			now.module = known.module
		} else {
			var ok bool
			if now.module, ok = readModule(os.DirFS(d.config.Path), name, file); !ok {
				continue
			}
		}
		read[file] = now
		modules = append(modules, now.module)
	}
	d.read = read
	return modules, nil
}

func stat(file string) os.FileInfo {
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	return info
}

// sameFile reports whether a file looks as it did. One that was written within the second before it was read may have been
// written again within the grain of its time stamp.
func sameFile(was, is os.FileInfo) bool {
	if was == nil || is == nil {
		return was == nil && is == nil
	}
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime()) && time.Since(was.ModTime()) > time.Second
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
			d.settle(ctx, events)
		}
		d.pass(ctx)
	}
}

// settle waits until the directory has been quiet for a while, but not forever.
func (d *Dir) settle(ctx context.Context, events <-chan fsnotify.Event) {
	quiet := time.NewTimer(d.config.Quiet)
	defer quiet.Stop()
	end := time.NewTimer(patience * d.config.Quiet)
	defer end.Stop()
	for {
		select {
		case e := <-events:
			if d.concerns(e) {
				quiet.Reset(d.config.Quiet)
			}
		case <-quiet.C:
			return
		case <-end.C:
			return
		case <-ctx.Done():
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
