// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package compiler

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

// codeCache stores compiled modules in a folder, so that they survive restarts. The folder may be deleted at any
// time: a module that is missing, damaged or from another version is compiled again, and if the folder is not
// writable, modules are compiled at each start.
//
// wazero executes the code in its cache folder without verifying all of it. Therefore wazero uses a scratch folder of
// this process. The entry of the module that is being compiled is copied there after its digest was verified.
type codeCache struct {
	dir         string
	logger      *slog.Logger
	instantiate Instantiate

	// mu serializes compilations, because the scratch folder may contain the entry of only one module.
	mu      sync.Mutex
	engine  wazero.Runtime
	files   wazero.CompilationCache
	scratch string // cache folder that wazero uses
	resume  time.Time

	failures atomic.Int64
}

const (
	// maxCacheBytes limits the total size of all files below the folder. Above it, the least recently used files are
	// removed. The default plugins need about a twentieth of it.
	maxCacheBytes = 256 << 20
	// cacheRetryDelay is the time for which the cache is not used after a failed write to the folder.
	cacheRetryDelay = time.Minute
	// abandonedAge is the age after which a scratch folder counts as left over from a killed process.
	abandonedAge = time.Hour

	scratchPrefix = "scratch-"
	codeSuffix    = ".code"
)

// compileCached returns the module and its runtime. It returns an error if the cache could not be used, or if the
// module does not compile. The caller then compiles the module without the cache.
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

// pauseCache logs and counts an error because of which compileCached could not use the folder. It also disables the
// cache for cacheRetryDelay, because after a failed write, wazero may keep the code of the module in memory.
func (c *codeCache) pauseCache(err error) {
	if errors.Is(err, errCachePaused) {
		return
	}
	c.mu.Lock()
	c.resume = time.Now().Add(cacheRetryDelay)
	c.mu.Unlock()
	c.warnUnusable(err)
}

func (c *codeCache) warnUnusable(err error) {
	c.failures.Add(1)
	c.logger.Warn("The cache of compiled plugins cannot be used: plugins are compiled again, which only costs time", "folder", c.dir, "err", err)
}

// openFolders creates the folders that are missing, and starts the engine that uses them.
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

// startEngine creates an engine whose cache is in the folder root. wazero creates a subfolder there that is named
// after its version and the platform.
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
	if err := c.instantiate(ctx, engine); err != nil {
		return errors.Join(err, engine.Close(ctx), files.Close(ctx))
	}
	c.engine, c.files, c.scratch = engine, files, filepath.Join(root, made[0].Name())
	return nil
}

// An entry has three parts: the file name in wazero's cache, the digest of name and code, and the code.
const (
	entryName   = 2 * sha256.Size
	entryHeader = entryName + sha256.Size
)

// copyEntry copies the stored entry of a module to the scratch folder and returns its file name there, or "" if there
// is no usable entry. An unreadable or damaged entry is removed.
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
	// The time of use is recorded, because pruneFiles removes the least recently used files.
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

// keepEntry stores the file that wazero has written to the scratch folder as an entry, unless it is the file of the
// known entry, which wazero has only read.
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
	// If the scratch folder cannot be removed now, a later process removes it: see pruneFiles.
	_ = os.RemoveAll(filepath.Dir(c.scratch))
	return errors.Join(c.engine.Close(ctx), c.files.Close(ctx))
}
