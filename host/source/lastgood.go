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

// lastGood stores the last good version of each plugin in a folder, so that a plugin still mutates objects if its
// file breaks while the process is not running. Stored files that were lost are written again. If dir is empty, no
// versions are stored.
type lastGood struct {
	dir   string
	marks map[string]mark // keyed by plugin name
}

// mark contains the digest of the stored plugin, and the FileInfo of its file when it was last written or read.
type mark struct {
	digest digest
	file   os.FileInfo
}

// keptSuffix is the suffix of the stored files, one for each plugin.
const keptSuffix = ".plugin.json"

// kept is the content of a stored file. It has the bytes of the original files, so that the plugin has the same
// meaning when it is read again.
type kept struct {
	Name    string `json:"name"`
	Options []byte `json:"optionsYAML,omitzero"` // missing if there is no options file
	Wasm    []byte `json:"wasm"`
	// Digest is a digest of all other fields, because a full disk or a crash of the machine may damage the file.
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

// maxNameBytes is the maximum length of a plugin name in a file name.
const maxNameBytes = 200

func (l *lastGood) filePath(name string) string {
	if len(name) > maxNameBytes {
		digest := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(digest[:])
	}
	return filepath.Join(l.dir, name+keptSuffix)
}

// keepModule stores the module, unless the stored file is up to date.
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

// hasModule reports whether the module is stored and its file is unchanged.
func (l *lastGood) hasModule(m *Module) bool {
	known, ok := l.marks[m.Name]
	return ok && known.file != nil && known.digest == m.computeDigest() && sameFile(known.file, statFile(l.filePath(m.Name)))
}

// optionsText returns the content of the options file, or an equivalent text.
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

// recallModule reads a stored module. It returns fs.ErrNotExist if no module of this name is stored.
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

// forgetOthers removes the stored files of all plugins that are not in the list of modules, because these plugins
// were removed on purpose.
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
