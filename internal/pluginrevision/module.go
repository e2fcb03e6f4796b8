// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginrevision

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

const (
	// maxPartBytes is the maximum number of bytes of a compressed module in one PluginModule. With base64 encoding and
	// metadata, the object remains smaller than etcd's limit of 1.5 MiB.
	maxPartBytes = 900_000
	// maxParts is the maximum number of parts that the API accepts. It limits the number of reads if an object was
	// altered in etcd.
	maxParts = 64
)

// MissingError is the error for a module with a missing part.
type MissingError struct {
	// Part is the name of the missing PluginModule.
	Part string
}

func (e *MissingError) Error() string { return "PluginModule " + e.Part + " does not exist" }

// DamagedError is the error for a module whose content does not match its sha256.
type DamagedError struct {
	// Module is the name of the module's first PluginModule.
	Module string
	// Problem describes what is wrong with the content.
	Problem string
}

func (e *DamagedError) Error() string { return "PluginModule " + e.Module + ": " + e.Problem }

// Get returns the PluginModule with the given name, or the error from the API server.
type Get func(ctx context.Context, name string) (*plugins.PluginModule, error)

// ReadModule returns the module with the given sha256. The module may have at most maxBytes. The errors are
// *MissingError, *DamagedError, and the errors of get.
func ReadModule(ctx context.Context, get Get, digest string, maxBytes int64) ([]byte, error) {
	damaged := func(format string, args ...any) error {
		return &DamagedError{plugins.PluginModuleName(digest, 0), fmt.Sprintf(format, args...)}
	}
	var packed bytes.Buffer
	for part, parts := 0, 1; part < parts; part++ {
		name := plugins.PluginModuleName(digest, part)
		module, err := get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			return nil, &MissingError{name}
		case err != nil:
			return nil, fmt.Errorf("getting PluginModule %s, %w", name, err)
		}
		if parts = int(module.Spec.Parts); parts > maxParts {
			return nil, damaged("it claims to have %d parts, the maximum is %d", parts, maxParts)
		}
		packed.Write(module.Spec.Data)
	}
	wasm, err := decompress(&packed, maxBytes)
	if err != nil {
		return nil, damaged("decompressing it, %v", err)
	}
	if int64(len(wasm)) > maxBytes {
		return nil, damaged("it has more than the %d bytes of the module with sha256 %s", maxBytes, digest)
	}
	if sum := sha256.Sum256(wasm); hex.EncodeToString(sum[:]) != digest {
		return nil, damaged("the sha256 of its content is %x, not %s", sum, digest)
	}
	return wasm, nil
}

// SplitModule returns the parts of a module, with their names.
func SplitModule(wasm []byte, digest string) (parts []*plugins.PluginModule, err error) {
	packed, err := compress(wasm)
	if err != nil {
		return nil, err
	}
	chunks := slices.Collect(slices.Chunk(packed, maxPartBytes))
	for part, data := range chunks {
		module := &plugins.PluginModule{Spec: plugins.PluginModuleSpec{SHA256: digest, Parts: int32(len(chunks)), Part: int32(part), Data: data}}
		module.Name = plugins.PluginModuleName(digest, part)
		parts = append(parts, module)
	}
	return parts, nil
}

func compress(wasm []byte) ([]byte, error) {
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = writer.Write(wasm)
	err = errors.Join(err, writer.Close())
	return packed.Bytes(), err
}

// decompress decompresses packed. It returns at most maxBytes+1 bytes, so that the caller can detect that the limit is
// exceeded.
func decompress(packed io.Reader, maxBytes int64) ([]byte, error) {
	reader, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(reader, maxBytes+1))
}
