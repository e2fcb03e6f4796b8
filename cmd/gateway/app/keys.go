// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/check"
)

// keyCheckInterval is how often the mounted keys are compared. With a longer interval, a gateway uses a replaced key for longer, and it takes
// longer until a new key is announced to the peer.
const keyCheckInterval = 10 * time.Second

// maxKeyFile limits how much of the file is read. It is longer than a key, so that a file that is too long is detected.
const maxKeyFile = 1024

// keyFiles are the mounted private keys. The Secret in the directory current is in use, unless the gateway has changed to the other one.
// The key in use stays if its file disappears or contains no key, because the connection needs it.
type keyFiles struct {
	current, other string
	last           []byte
}

// read returns the private key in use, and all public keys of the gateway, first the one in use. isOther is true if the gateway uses the
// Secret in the directory other. private is nil if there was no key yet. If the file cannot be used, read returns the last key and an
// error. read is not safe for concurrent use.
func (k *keyFiles) read(isOther bool) (private []byte, public [][]byte, err error) {
	directories := []string{k.current, k.other}
	if isOther {
		slices.Reverse(directories)
	}
	key, err := readKey(directories[0])
	switch {
	case err != nil && k.last == nil:
		return nil, nil, fmt.Errorf("waiting for the private key, which the Secret of the gateway contains: %w", err)
	case err != nil:
		err = fmt.Errorf("the private key is no longer mounted, the last one is used: %w", err)
	default:
		k.last = key
	}
	own := wgtypes.Key(k.last).PublicKey()
	public = [][]byte{own[:]}
	// Without a second key, none is about to be replaced.
	for _, directory := range directories {
		key, unreadable := readKey(directory)
		if unreadable == nil && !bytes.Equal(key, k.last) && len(public) < check.MaxKeys {
			next := wgtypes.Key(key).PublicKey()
			public = append(public, next[:])
		}
	}
	return k.last, public, err
}

// readKey returns the 32 bytes of the private key in a directory.
func readKey(directory string) ([]byte, error) {
	if directory == "" {
		return nil, fs.ErrNotExist
	}
	file, err := os.Open(filepath.Join(directory, wire.PrivateKeyField))
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

// watchKeys sends to changed after a key has changed, until ctx is done. Kubernetes replaces the files of a Secret in a running pod.
func watchKeys(ctx context.Context, directories []string, changed chan<- struct{}) error {
	last := make([][]byte, len(directories))
	for i, directory := range directories {
		last[i], _ = readKey(directory)
	}
	timer := time.NewTicker(keyCheckInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		isChanged := false
		for i, directory := range directories {
			key, err := readKey(directory)
			if err != nil && !errors.Is(err, fs.ErrNotExist) || bytes.Equal(key, last[i]) {
				continue
			}
			last[i], isChanged = key, true
		}
		if !isChanged {
			continue
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}
