// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/refract-project/refract/host"
)

// Origin is the source of a plugin.
type Origin string

// Origins of plugins.
const (
	OriginDefault  Origin = "default"
	OriginFolder   Origin = "folder"
	OriginDeclared Origin = "declared"
)

// Declared is a plugin that is declared in the API. While it cannot run, the objects that it selects wait, unless its
// Options have IgnoreFailure.
type Declared struct {
	// Name is the name of the plugin, which must be unique. See Module.Name.
	Name string
	// Revision is the name of the revision in the Status.
	Revision string
	// Digest is the digest of the module, "sha256:<hex>".
	Digest string
	// Read returns the module. It is called only if no module with this digest and these options is loaded. If the
	// digest of the returned module differs from Digest, the module is rejected.
	Read     func(ctx context.Context) ([]byte, error)
	Options  Options
	Selector host.Selector
	// Manifest is the manifest of the module, or nil if it is not known. If it is known, only objects of the plugin's
	// kinds wait while the module cannot be read.
	Manifest *host.Manifest
	// Err, if set, is the reason why the plugin cannot run.
	Err error
}

// Declare replaces the declared plugins, in addition to the plugins of Apply. It loads new and changed plugins, removes
// plugins that are no longer in the list, swaps all changed chains at once, and closes unused plugins. If a plugin
// cannot run, its previous version is used. If it has no previous version, objects of its kinds wait, unless its
// options have IgnoreFailure. To retry, for example after Read has failed, call Declare again. The result has one
// status for each plugin.
func (c *Chains) Declare(ctx context.Context, plugins []Declared) []Status {
	c.applying.Lock()
	defer c.applying.Unlock()
	list := wantedOf(plugins)
	return c.installPlugins(ctx, list, c.accept(ctx, OriginDeclared, list))
}

// wanted is a plugin that should run.
type wanted struct {
	Module
	origin   Origin
	revision string
	digest   digest // digest of the module
	selector host.Selector
	manifest *host.Manifest // nil if the manifest is not known before the module is loaded
	read     func(ctx context.Context) ([]byte, error)
}

// wantedOf returns the wanted plugins for declarations.
func wantedOf(plugins []Declared) []wanted {
	list := make([]wanted, 0, len(plugins))
	for _, d := range plugins {
		w := wanted{
			Module: Module{Name: d.Name, Options: d.Options, Err: d.Err, hasOptions: true},
			origin: OriginDeclared, revision: d.Revision, selector: d.Selector, manifest: d.Manifest,
		}
		var err error
		if w.digest, err = parseDigest(d.Digest); err != nil && w.Err == nil {
			w.Err = err
		}
		w.read = func(ctx context.Context) ([]byte, error) { return readDeclared(ctx, d) }
		list = append(list, w)
	}
	return list
}

func parseDigest(text string) (d digest, err error) {
	const prefix = "sha256:"
	if len(text) != len(prefix)+2*len(d) || text[:len(prefix)] != prefix {
		return d, fmt.Errorf("the digest of its module is %q, not sha256: and %d hexadecimal digits", text, 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(text[len(prefix):])); err != nil {
		return d, fmt.Errorf("reading the digest of its module, %w", err)
	}
	return d, nil
}

// readDeclared reads the module of a declared plugin and checks its digest.
func readDeclared(ctx context.Context, d Declared) ([]byte, error) {
	wasm, err := d.Read(ctx)
	if err != nil {
		return nil, &readError{err}
	}
	if sum := sha256.Sum256(wasm); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest {
		return nil, &readError{fmt.Errorf("it has the digest sha256:%x and not %s: it is not the module of revision %s", sum, d.Digest, d.Revision)}
	}
	return wasm, nil
}

// readError is the error for a module that could not be read. The next attempt may succeed.
type readError struct{ err error }

func (e *readError) Error() string { return "reading its module, " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// wantedModules returns the wanted plugins for modules of the directory.
func wantedModules(modules []Module) []wanted {
	list := make([]wanted, 0, len(modules))
	for _, m := range modules {
		list = append(list, wantedModule(m))
	}
	return list
}

func wantedModule(m Module) wanted {
	return wanted{Module: m, origin: OriginFolder, digest: sha256.Sum256(m.Wasm),
		read: func(context.Context) ([]byte, error) { return m.Wasm, nil }}
}
