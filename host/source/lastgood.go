// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// lastGood is a folder with the last good version of each plugin, so that a file which breaks while the process is down
// does not let objects cross without what the plugin did to them. The zero value keeps nothing.
type lastGood struct{ dir string }

// keptSuffix ends the names of its files, one for each plugin: a file appears whole or not at all.
const keptSuffix = ".plugin.json"

// kept is what such a file holds.
type kept struct {
	Options Options `json:"options"`
	Wasm    []byte  `json:"wasm"`
	// Digest is that of both: the folder may have survived a full disk or a crash of the machine.
	Digest []byte `json:"digest"`
}

func (l lastGood) path(name string) string { return filepath.Join(l.dir, name+keptSuffix) }

// keep writes the module down unless it is there already.
func (l lastGood) keep(m Module) error {
	if l.dir == "" {
		return nil
	}
	if present, err := l.recall(m.Name); err == nil && present.digest() == m.digest() {
		return nil
	}
	digest := m.digest()
	content, err := json.Marshal(kept{Options: m.Options, Wasm: m.Wasm, Digest: digest[:]})
	if err == nil {
		err = l.write(m.Name, content)
	}
	if err != nil {
		return fmt.Errorf("keeping plugin %s for the next start, %w", m.Name, err)
	}
	return nil
}

func (l lastGood) write(name string, content []byte) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(l.dir, ".*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), l.path(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// recall reads a module back; fs.ErrNotExist when none was kept.
func (l lastGood) recall(name string) (Module, error) {
	if l.dir == "" {
		return Module{}, fs.ErrNotExist
	}
	content, err := os.ReadFile(l.path(name))
	if err != nil {
		return Module{}, err
	}
	var k kept
	if err := json.Unmarshal(content, &k); err != nil {
		return Module{}, fmt.Errorf("reading %s, %w", l.path(name), err)
	}
	m := Module{Name: name, Path: l.path(name), Wasm: k.Wasm, Options: k.Options}
	if digest := m.digest(); string(digest[:]) != string(k.Digest) {
		return Module{}, fmt.Errorf("reading %s, its content is damaged", l.path(name))
	}
	return m, nil
}

// forget drops what is kept of plugins other than the named ones: they were removed on purpose.
func (l lastGood) forget(modules []Module) error {
	if l.dir == "" {
		return nil
	}
	present := map[string]bool{}
	for _, m := range modules {
		present[m.Name] = true
	}
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		name, ours := strings.CutSuffix(entry.Name(), keptSuffix)
		if ours && !present[name] {
			err = errors.Join(err, os.Remove(l.path(name)))
		}
	}
	return err
}
