// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/refract-project/refract/api/wire"
)

// keyCheckInterval is how often the mounted keys are compared. With a longer interval, a gateway uses a replaced key for longer.
const keyCheckInterval = 10 * time.Second

// maxKeyFile limits how much of the file is read. It is longer than a key, so that a file that is too long is detected.
const maxKeyFile = 1024

// keyFile is the mounted private key. The key stays if its file disappears or contains no key, because the connection needs it.
type keyFile struct {
	path string
	last []byte
}

// read returns the key, or nil if there was none yet. If the file cannot be used, it returns the last key and an error.
// read is not safe for concurrent use.
func (k *keyFile) read() ([]byte, error) {
	key, err := readKey(k.path)
	switch {
	case err != nil && k.last == nil:
		return nil, fmt.Errorf("waiting for the private key, which the Secret of the gateway contains: %w", err)
	case err != nil:
		return k.last, fmt.Errorf("the private key is no longer mounted, the last one is used: %w", err)
	}
	k.last = key
	return key, nil
}

// readKey returns the 32 bytes of the private key in a file.
func readKey(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	key, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err == nil && len(key) != wgtypes.KeyLen {
		const text = "%s of the Secret has %d bytes instead of %d: delete the Secret, and then the pods of the gateway, to make new keys"
		return nil, fmt.Errorf(text, wire.PrivateKeyField, len(key), wgtypes.KeyLen)
	}
	return key, err
}

// watchKey sends to changed after the key has changed, until ctx is done. Kubernetes replaces the files of a Secret in a running pod.
func watchKey(ctx context.Context, dir string, changed chan<- struct{}) error {
	path := filepath.Join(dir, wire.PrivateKeyField)
	last, _ := readKey(path)
	timer := time.NewTicker(keyCheckInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		key, err := readKey(path)
		if err != nil || bytes.Equal(key, last) {
			continue
		}
		last = key
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}
