// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refract-project/refract/host/internal/atomicfile"
)

// lastGood is a folder with the last good version of each plugin, so that objects are still mutated by a plugin whose
// file breaks while the process is down. Lost files are written again. With dir "" no version is kept.
type lastGood struct {
	dir   string
	marks map[string]mark // keyed by plugin name
}

// mark is the digest of the kept plugin, and the info of its file when it was written or read.
type mark struct {
	digest [sha256.Size]byte
	file   os.FileInfo
}

// keptSuffix is the suffix of the files, one for each plugin.
const keptSuffix = ".plugin.json"

// kept is the content of such a file: the bytes as read, so that they have the same meaning when they are read again.
type kept struct {
	Name    string `json:"name"`
	Options []byte `json:"optionsYAML,omitzero"` // absent if there is no options file
	Wasm    []byte `json:"wasm"`
	// Digest covers all other fields, because a full disk or a crash of the machine may have damaged the file.
	Digest []byte `json:"digest"`
}

func (k *kept) contentDigest() []byte {
	wasm, options := sha256.Sum256(k.Wasm), sha256.Sum256(k.Options)
	present := byte(0)
	if k.Options != nil {
		present = 1
	}
	sum := sha256.Sum256(slices.Concat(wasm[:], options[:], []byte{present}, []byte(k.Name)))
	return sum[:]
}

// maxNameBytes is the maximum length of a plugin name that is used as a file name.
const maxNameBytes = 200

func (l *lastGood) filePath(name string) string {
	if len(name) > maxNameBytes {
		digest := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(digest[:])
	}
	return filepath.Join(l.dir, name+keptSuffix)
}

// keepModule writes the module unless the file is up to date.
func (l *lastGood) keepModule(m *Module) error {
	if l.dir == "" || l.hasModule(m) {
		return nil
	}
	text, err := m.optionsText()
	if err != nil {
		return fmt.Errorf("keeping plugin %s for the next start, %w", m.Name, err)
	}
	k := kept{Name: m.Name, Options: text, Wasm: m.Wasm}
	k.Digest = k.contentDigest()
	if present, err := l.readKept(m.Name); err != nil || string(present.Digest) != string(k.Digest) {
		content, err := json.Marshal(k)
		if err == nil {
			err = atomicfile.Write(l.filePath(m.Name), content)
		}
		if err != nil {
			return fmt.Errorf("keeping plugin %s for the next start, %w", m.Name, err)
		}
	}
	l.marks[m.Name] = mark{m.computeDigest(), statFile(l.filePath(m.Name))}
	return nil
}

// hasModule reports whether the file of the module is unchanged since it was written.
func (l *lastGood) hasModule(m *Module) bool {
	known, ok := l.marks[m.Name]
	return ok && known.file != nil && known.digest == m.computeDigest() && sameFile(known.file, statFile(l.filePath(m.Name)))
}

// optionsText returns the options file, or an equivalent one.
func (m *Module) optionsText() ([]byte, error) {
	if m.OptionsText != nil || m.Options.isZero() {
		return m.OptionsText, nil
	}
	return json.Marshal(m.Options)
}

func (l *lastGood) readKept(name string) (k kept, err error) {
	if l.dir == "" {
		return k, fs.ErrNotExist
	}
	content, err := os.ReadFile(l.filePath(name))
	if err != nil {
		return k, err
	}
	if err = json.Unmarshal(content, &k); err == nil && (string(k.contentDigest()) != string(k.Digest) || k.Name != name) {
		err = errors.New("its content is damaged")
	}
	if err != nil {
		return k, fmt.Errorf("reading %s, %w", l.filePath(name), err)
	}
	return k, nil
}

// recallModule reads a kept module. It returns fs.ErrNotExist if none was kept.
func (l *lastGood) recallModule(name string) (Module, error) {
	k, err := l.readKept(name)
	if err != nil {
		return Module{}, err
	}
	m := Module{Name: name, Path: l.filePath(name), Wasm: k.Wasm, OptionsText: k.Options}
	if k.Options != nil {
		if m.warnings, err = m.Options.decodeOptions(k.Options, name+optionsSuffixes[0]); err != nil {
			return Module{}, fmt.Errorf("reading the options in %s, %w", m.Path, err)
		}
	}
	return m, nil
}

// forgetOthers removes the files of all plugins except the named ones: they were removed on purpose.
func (l *lastGood) forgetOthers(modules []Module) error {
	if l.dir == "" {
		return nil
	}
	present := map[string]bool{}
	for _, m := range modules {
		present[filepath.Base(l.filePath(m.Name))] = true
	}
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), keptSuffix) && !present[entry.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(l.dir, entry.Name())))
		}
	}
	for name := range l.marks {
		if !present[filepath.Base(l.filePath(name))] {
			delete(l.marks, name)
		}
	}
	return errors.Join(err, atomicfile.RemoveAbandoned(l.dir))
}
