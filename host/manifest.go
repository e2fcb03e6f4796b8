// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/printable"
)

// Manifest is the self-description of a module.
type Manifest struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Kinds that it is for, with the API group unless it is the core group: "Pod", "Ingress.networking.k8s.io". "*" stands
	// for all but Secrets, which have to be named.
	Kinds []string `json:"kinds"`
	// Hooks that it has: "outgoing", "incoming".
	Hooks []string `json:"hooks"`
	// Writes are the paths at and below which it may write; "*" is everything that the guard leaves, an empty or absent list
	// nothing.
	Writes []string `json:"writes"`
	// Capabilities are additional permissions: "skip".
	Capabilities []string `json:"capabilities,omitempty"`
	// ConfigSchema is the JSON schema of its configuration, if it has one.
	ConfigSchema map[string]any `json:"configSchema,omitempty"`
}

// CapabilitySkip lets a plugin keep an object from being reflected, which deletes the copy that there is.
const CapabilitySkip = "skip"

// Matches reports whether the plugin is for objects of this kind and API group (empty for the core group).
func (m *Manifest) Matches(kind, group string, hook Hook) bool {
	return slices.Contains(m.Hooks, hook.String()) && MatchesKind(m.Kinds, kind, group)
}

// MatchesKind reports whether a list of kinds, of a manifest or of options, has the kind of this API group (empty for the
// core group). A kind without a group is of the core group, or of the group of the default plugin of that name. "*" stands
// for all kinds except Secrets, which must be named.
func MatchesKind(kinds []string, kind, group string) bool {
	full := kind
	if group != "" {
		full += "." + group
	}
	return slices.ContainsFunc(kinds, func(k string) bool {
		return k == full || k == "*" && full != "Secret" || groupOfDefault[k] == group && group != "" && k == kind
	})
}

// groupOfDefault is the API group of the kinds outside of the core group that have a default plugin.
var groupOfDefault = map[string]string{
	"Ingress":       "networking.k8s.io",
	"EndpointSlice": "discovery.k8s.io",
}

// maxManifestBytes is more than a generous configuration schema needs.
const maxManifestBytes = 1 << 18

// parseManifest also returns warnings: of fields that this host does not know, which a later one may, and of repeated ones.
func parseManifest(text []byte) (_ *Manifest, warnings []string, err error) {
	m := &Manifest{}
	unknown, err := json.UnmarshalStrict(text, m)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding its JSON, %w", err)
	}
	for _, problem := range unknown {
		warnings = append(warnings, "manifest: "+printable.Shorten(printable.Text(problem.Error()), maxManifestText))
	}
	return m, warnings, m.validate()
}

// validate checks the manifest of a module.
func (m *Manifest) validate() error {
	switch {
	case m.Name == "":
		return errors.New("it has no name")
	case len(m.Kinds) == 0:
		return errors.New(`it lists no kinds ("*" is any)`)
	case len(m.Hooks) == 0:
		return errors.New("it lists no hooks")
	}
	for _, h := range m.Hooks {
		if !slices.Contains(hookNames[:], h) {
			return fmt.Errorf("unknown hook %q (there are outgoing and incoming)", h)
		}
	}
	return m.check()
}

// maxWrites of a manifest: each is compared with every edit.
const maxWrites = 256

// maxManifestText is how many bytes a name, a version, a kind or a path may have.
const maxManifestText = 1024

func (m *Manifest) check() error {
	if err := m.checkTexts(); err != nil {
		return err
	}
	if len(m.Writes) > maxWrites {
		return fmt.Errorf("it has %d entries of writes, more than %d: name a path above them", len(m.Writes), maxWrites)
	}
	if err := checkCapabilities(m.Capabilities); err != nil {
		return err
	}
	return checkPaths(m.Writes)
}

func checkCapabilities(capabilities []string) error {
	for _, c := range capabilities {
		if c != CapabilitySkip {
			return fmt.Errorf("unknown capability %q (there is %s)", c, CapabilitySkip)
		}
	}
	return nil
}

// checkTexts refuses texts that a terminal would not show unchanged: people decide by them whether they trust a module.
func (m *Manifest) checkTexts() error {
	for field, texts := range map[string][]string{
		"name": {m.Name}, "version": {m.Version}, "kinds": m.Kinds, "hooks": m.Hooks, "writes": m.Writes, "capabilities": m.Capabilities,
	} {
		for _, text := range texts {
			if !printable.IsLine(text) {
				return fmt.Errorf("its %s has control or invisible characters, or blanks other than spaces: %.100q", field, text)
			}
			if len(text) > maxManifestText {
				return fmt.Errorf("its %s has %d bytes, more than %d: %.100q", field, len(text), maxManifestText, text)
			}
		}
	}
	return nil
}

func checkPaths(paths []string) error {
	for _, p := range paths {
		if p == "" {
			return errors.New(`an entry of writes is empty ("*" is everything)`)
		}
		if _, err := document.ParsePath(p); err != nil {
			return fmt.Errorf("an entry of writes is not a valid path, %w", err)
		}
	}
	return nil
}
