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

// codeCache keeps compiled modules in a folder, across restarts. Everything in the folder can be derived again: a
// module that is missing, damaged or of another version is compiled, and an unwritable folder costs only the time to
// compile.
//
// wazero executes the files in its cache folder and checks only a part of them. It is therefore given a scratch folder
// of this process, with at most the entry of the module that is being compiled, after the digest of the entry was
// verified.
type codeCache struct {
	dir     string
	logger  *slog.Logger
	imports imports

	// mu serializes compilations: the scratch folder has the entry of one module.
	mu      sync.Mutex
	engine  wazero.Runtime
	files   wazero.CompilationCache
	scratch string // cache folder of wazero
	resume  time.Time

	failures atomic.Int64
}

const (
	// maxCacheBytes limits all files below the folder; above it the least recently used are removed. The default
	// plugins need about a twentieth.
	maxCacheBytes = 256 << 20
	// cachePause is how long the cache is not used after the folder could not be written.
	cachePause = time.Minute
	// abandonedAge is the age at which a scratch folder is considered left over from a process that was killed.
	abandonedAge = time.Hour

	scratchPrefix = "scratch-"
	codeSuffix    = ".code"
)

// compileCached returns the module and its runtime, or an error if the cache could not be used. The caller then compiles
// without the cache. A module that does not compile is such an error, too.
func (c *codeCache) compileCached(ctx context.Context, wasm []byte) (wazero.CompiledModule, wazero.Runtime, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.resume) {
		return nil, nil, errCachePaused
	}
	if err := c.openFolders(ctx); err != nil {
		return nil, nil, err
	}
	defer c.emptyScratch()
	entry := filepath.Join(c.dir, filepath.Base(c.scratch), hexDigest(wasm)+codeSuffix)
	known, err := c.copyEntry(entry)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compileIn(ctx, c.engine, wasm)
	if err != nil {
		return nil, nil, err
	}
	if err := c.keepEntry(entry, known); err != nil {
		c.warnUnusable(err)
	}
	return compiled, c.engine, nil
}

var errCachePaused = errors.New("the folder of compiled plugins could not be used a moment ago")

// pauseCache logs and counts the reason why compileCached could not use the folder, and pauses the cache: wazero may keep the code
// of a module that it could not write.
func (c *codeCache) pauseCache(err error) {
	if errors.Is(err, errCachePaused) {
		return
	}
	c.mu.Lock()
	c.resume = time.Now().Add(cachePause)
	c.mu.Unlock()
	c.warnUnusable(err)
}

func (c *codeCache) warnUnusable(err error) {
	c.failures.Add(1)
	c.logger.Warn("The cache of compiled plugins cannot be used: plugins are compiled again, which only costs time", "folder", c.dir, "err", err)
}

// openFolders creates the missing folders and the engine that uses them.
func (c *codeCache) openFolders(ctx context.Context) error {
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
	if err := c.startEngine(ctx, root); err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	return c.pruneFiles()
}

// startEngine lets wazero use a folder. wazero creates a subfolder named after its version and the platform.
func (c *codeCache) startEngine(ctx context.Context, root string) error {
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
	if err := c.imports.instantiateModules(ctx, engine); err != nil {
		return errors.Join(err, engine.Close(ctx), files.Close(ctx))
	}
	c.engine, c.files, c.scratch = engine, files, filepath.Join(root, made[0].Name())
	return nil
}

// An entry consists of the file name in wazero's cache, the digest of name and code, and the code.
const (
	entryName   = 2 * sha256.Size
	entryHeader = entryName + sha256.Size
)

// copyEntry copies a kept entry into the scratch folder and returns its name there, or "" if there is no entry. A damaged
// entry is removed.
func (c *codeCache) copyEntry(entry string) (name string, err error) {
	content, err := os.ReadFile(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || !isWhole(content) {
		if err == nil {
			err = fmt.Errorf("%s is damaged", entry)
		}
		c.warnUnusable(errors.Join(err, os.RemoveAll(entry)))
		return "", nil
	}
	now := time.Now()
	// prune removes the least recently used files.
	_ = os.Chtimes(entry, now, now)
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

// keepEntry stores the files that wazero wrote as an entry, unless wazero found the known one.
func (c *codeCache) keepEntry(entry, known string) error {
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
		return c.pruneFiles()
	}
	return nil
}

// emptyScratch removes all files from the scratch folder.
func (c *codeCache) emptyScratch() {
	files, _ := os.ReadDir(c.scratch)
	for _, file := range files {
		_ = os.RemoveAll(filepath.Join(c.scratch, file.Name()))
	}
}

func hexDigest(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// closeCache frees the code and removes the scratch folder.
func (c *codeCache) closeCache(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine == nil {
		return nil
	}
	// A scratch folder that cannot be removed is removed by a later process: see pruneFiles.
	_ = os.RemoveAll(filepath.Dir(c.scratch))
	return errors.Join(c.engine.Close(ctx), c.files.Close(ctx))
}
