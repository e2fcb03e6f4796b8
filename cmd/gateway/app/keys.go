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
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/check"
)

// keyCheckInterval is how often the mounted keys are compared. With a longer interval, a gateway uses a replaced key for
// longer, and it takes longer until a new key is announced to the peer.
const keyCheckInterval = 10 * time.Second

// maxKeyFile limits how much of the file is read. It is longer than a key, so that a file that is too long is detected.
const maxKeyFile = 1024

// keyFiles are the mounted private keys. The Secret in the directory current is in use, unless the gateway has changed to the other one.
// The key in use stays if its file disappears or contains no key, because the connection needs it.
type keyFiles struct {
	current, other string
	last           []byte
	// isTurned makes the gateway use the second key that the peer has accepted, because it does not answer to the first one.
	isTurned atomic.Bool
}

// tryOther makes the next call of read return the other key first, if the peer has accepted two.
func (k *keyFiles) tryOther() { k.isTurned.Store(!k.isTurned.Load()) }

// read returns the private key to use, and all public keys of the gateway, first the one to use. isOther is true if the gateway has
// changed to the Secret in the directory other. Kubernetes mounts a Secret in each pod at another time, so a key that the peer accepts
// comes before another one, if accepted is not empty. private is nil if there was no key yet. If no file can be used, read returns the
// last key and an error. read is not safe for concurrent use.
func (k *keyFiles) read(isOther bool, accepted [][]byte) (private []byte, public [][]byte, err error) {
	directories := []string{k.current, k.other}
	if isOther {
		slices.Reverse(directories)
	}
	var keys, unaccepted [][]byte
	for i, directory := range directories {
		key, unreadable := readKey(directory)
		switch {
		case unreadable != nil:
			if i == 0 {
				err = unreadable
			}
		case slices.ContainsFunc(accepted, func(a []byte) bool { return bytes.Equal(a, publicKey(key)) }):
			keys = append(keys, key)
		default:
			unaccepted = append(unaccepted, key)
		}
	}
	if len(keys) < 2 {
		k.isTurned.Store(false)
	} else if k.isTurned.Load() {
		slices.Reverse(keys)
	}
	switch {
	case len(keys) > 0:
		err = nil // if it is not the one that the gateway has changed to, this pod does not have that one yet
	case err != nil && k.last == nil:
		return nil, nil, fmt.Errorf("waiting for the private key, which the Secret of the gateway contains: %w", err)
	case err != nil:
		keys, err = [][]byte{k.last}, fmt.Errorf("the private key is no longer mounted, the last one is used: %w", err)
	}
	for _, key := range unaccepted {
		if !slices.ContainsFunc(keys, func(other []byte) bool { return bytes.Equal(key, other) }) {
			keys = append(keys, key)
		}
	}
	keys = keys[:min(len(keys), check.MaxKeys)]
	for _, key := range keys {
		public = append(public, publicKey(key))
	}
	k.last = keys[0]
	return keys[0], public, err
}

func publicKey(private []byte) []byte {
	public := wgtypes.Key(private).PublicKey()
	return public[:]
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
