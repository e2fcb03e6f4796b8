// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"sync"

	"github.com/refract-project/refract/host"
)

// loader loads modules to test them, one at a time, because compiling a large module takes much memory. The zero value is ready for use.
type loader struct {
	mu   sync.Mutex
	host *host.Host // nil before the first load
}

// load returns the manifest of a module. The caller must not modify the manifest.
func (l *loader) load(ctx context.Context, name string, wasm []byte, config host.PluginConfig) (*host.Manifest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host == nil {
		var err error
		if l.host, err = host.New(context.WithoutCancel(ctx), host.NewConfig()); err != nil {
			return nil, err
		}
	}
	plugin, err := l.host.Load(ctx, name, wasm, config)
	if err != nil {
		return nil, err
	}
	return plugin.Manifest(), plugin.Close(context.WithoutCancel(ctx))
}

// Start implements manager.Runnable. It closes the host when ctx ends.
func (l *loader) Start(ctx context.Context) error {
	<-ctx.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host == nil {
		return nil
	}
	err := l.host.Close(context.WithoutCancel(ctx))
	l.host = nil
	return errors.Join(err)
}
