// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/refract-project/refract/host/internal/atomicfile"
)

// codeCache keeps compiled modules in a folder, across restarts. All of it is derived: what is missing, damaged or of another
// version is compiled, and a folder that cannot be written costs the time to compile and nothing else.
//
// wazero executes what it finds in its cache folder, and checks only a part of it. So it gets a folder of this process, the
// scratch folder, with at most the entry of the module that is being compiled, after the entry was compared with its digest.
type codeCache struct {
	dir     string
	logger  *slog.Logger
	imports imports

	mu      sync.Mutex // one compilation at a time: the scratch folder has the entry of one module
	engine  wazero.Runtime
	files   wazero.CompilationCache
	scratch string // the folder that wazero reads and writes
	resume  time.Time

	failures atomic.Int64
}

const (
	// maxCacheBytes of all files below the folder; the least recently used are removed above it. The default plugins need
	// about a twentieth.
	maxCacheBytes = 256 << 20
	// cachePause is how long a folder that could not be written is left alone.
	cachePause = time.Minute
	// abandonedAge is the age from which on a scratch folder is one of a process that was killed.
	abandonedAge = time.Hour

	scratchPrefix = "scratch-"
	codeSuffix    = ".code"
)

// compile returns the module and the runtime that it belongs to, or the reason why the cache could not be used: the caller
// compiles without it then. A module that does not compile is such a reason, too.
func (c *codeCache) compile(ctx context.Context, wasm []byte) (wazero.CompiledModule, wazero.Runtime, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.resume) {
		return nil, nil, errCachePaused
	}
	if err := c.open(ctx); err != nil {
		return nil, nil, err
	}
	defer c.empty()
	entry := filepath.Join(c.dir, filepath.Base(c.scratch), hexDigest(wasm)+codeSuffix)
	known, err := c.lay(entry)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compileIn(ctx, c.engine, wasm)
	if err != nil {
		return nil, nil, err
	}
	if err := c.keep(entry, known); err != nil {
		c.warn(err)
	}
	return compiled, c.engine, nil
}

var errCachePaused = errors.New("the folder of compiled plugins could not be used a moment ago")

// fail reports why compile could not use the folder, and leaves it alone for a while: wazero may keep the code of a module that
// it could not write.
func (c *codeCache) fail(err error) {
	if errors.Is(err, errCachePaused) {
		return
	}
	c.mu.Lock()
	c.resume = time.Now().Add(cachePause)
	c.mu.Unlock()
	c.warn(err)
}

func (c *codeCache) warn(err error) {
	c.failures.Add(1)
	c.logger.Warn("The cache of compiled plugins cannot be used: plugins are compiled again, which only costs time", "folder", c.dir, "err", err)
}

// open makes the folders that are missing, and the engine that uses them.
func (c *codeCache) open(ctx context.Context) error {
	if c.scratch != "" {
		return os.MkdirAll(c.scratch, 0o700)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	root, err := os.MkdirTemp(c.dir, scratchPrefix)
	if err != nil {
		return err
	}
	if err := c.start(ctx, root); err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	return c.prune()
}

// start has wazero use a folder. It makes one below it, whose name tells its version and the platform.
func (c *codeCache) start(ctx context.Context, root string) error {
	files, err := wazero.NewCompilationCacheWithDir(root)
	if err != nil {
		return err
	}
	made, err := os.ReadDir(root)
	if err == nil && len(made) != 1 {
		err = fmt.Errorf("%d folders in %s", len(made), root)
	}
	if err != nil {
		return errors.Join(err, files.Close(ctx))
	}
	engine := wazero.NewRuntimeWithConfig(ctx, runtimeConfig().WithCompilationCache(files))
	if err := c.imports.instantiate(ctx, engine); err != nil {
		return errors.Join(err, engine.Close(ctx), files.Close(ctx))
	}
	c.engine, c.files, c.scratch = engine, files, filepath.Join(root, made[0].Name())
	return nil
}

// An entry is the name under which wazero asks for it, the digest of name and code, and the code.
const (
	entryName   = 2 * sha256.Size
	entryHeader = entryName + sha256.Size
)

// lay puts a kept entry where wazero finds it, and returns its name there; empty if there is none. A damaged one is removed.
func (c *codeCache) lay(entry string) (name string, err error) {
	content, err := os.ReadFile(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || !isWhole(content) {
		if err == nil {
			err = fmt.Errorf("%s is damaged", entry)
		}
		c.warn(errors.Join(err, os.RemoveAll(entry)))
		return "", nil
	}
	now := time.Now()
	_ = os.Chtimes(entry, now, now) // see prune
	name = string(content[:entryName])
	return name, os.WriteFile(filepath.Join(c.scratch, name), content[entryHeader:], 0o600)
}

func isWhole(content []byte) bool {
	if len(content) < entryHeader {
		return false
	}
	if _, err := hex.DecodeString(string(content[:entryName])); err != nil {
		return false
	}
	digest := entryDigest(content[:entryName], content[entryHeader:])
	return string(digest[:]) == string(content[entryName:entryHeader])
}

func entryDigest(name, code []byte) [sha256.Size]byte {
	ofCode := sha256.Sum256(code)
	return sha256.Sum256(slices.Concat(name, ofCode[:]))
}

// keep makes an entry of what wazero wrote, unless it found what it looked for.
func (c *codeCache) keep(entry, known string) error {
	files, err := os.ReadDir(c.scratch)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Name() == known || len(file.Name()) != entryName {
			continue
		}
		code, err := os.ReadFile(filepath.Join(c.scratch, file.Name()))
		if err != nil {
			return err
		}
		digest := entryDigest([]byte(file.Name()), code)
		if err := atomicfile.Write(entry, slices.Concat([]byte(file.Name()), digest[:], code)); err != nil {
			return err
		}
		return c.prune()
	}
	return nil
}

// empty leaves nothing for wazero to find.
func (c *codeCache) empty() {
	files, _ := os.ReadDir(c.scratch)
	for _, file := range files {
		_ = os.RemoveAll(filepath.Join(c.scratch, file.Name()))
	}
}

func hexDigest(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// close frees the code and removes the scratch folder.
func (c *codeCache) close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine == nil {
		return nil
	}
	_ = os.RemoveAll(filepath.Dir(c.scratch)) // or by a later process, see prune
	return errors.Join(c.engine.Close(ctx), c.files.Close(ctx))
}
