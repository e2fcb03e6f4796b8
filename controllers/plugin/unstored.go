// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"sync"

	"github.com/refract-project/refract/internal/pluginsource"
)

// maxUnstoredBytes limits the total size of the modules that are kept in memory because they cannot be stored. It is
// sufficient for two modules of the maximum size. A module that was dropped because of the limit is fetched again.
const maxUnstoredBytes = 2 * pluginsource.MaxModuleBytes

// unstoredModules contains the fetched modules that are neither stored nor refused yet, one for each plugin. The zero value is empty. It is
// safe for concurrent use.
type unstoredModules struct {
	mu   sync.Mutex
	kept []unstoredModule // sorted by age, the oldest first
}

type unstoredModule struct {
	plugin string
	*module
}

// keep stores the module of a plugin, and drops the plugin's former module. While all modules together exceed the
// limit, the oldest modules of other plugins are dropped.
func (u *unstoredModules) keep(plugin string, m *module) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(plugin)
	u.kept = append(u.kept, unstoredModule{plugin, m})
	total := 0
	for _, k := range u.kept {
		total += len(k.wasm)
	}
	for ; total > maxUnstoredBytes && len(u.kept) > 1; u.kept = slices.Delete(u.kept, 0, 1) {
		total -= len(u.kept[0].wasm)
	}
}

// drop drops the module of a plugin.
func (u *unstoredModules) drop(plugin string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(plugin)
}

func (u *unstoredModules) remove(plugin string) {
	u.kept = slices.DeleteFunc(u.kept, func(k unstoredModule) bool { return k.plugin == plugin })
}

// find returns the module of a plugin if it has the digest, and nil if it is not kept.
func (u *unstoredModules) find(plugin, digest string) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range u.kept {
		if k.plugin == plugin && k.digest == digest {
			return k.wasm
		}
	}
	return nil
}
