// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document/fieldpath"
	"github.com/refract-project/refract/host/internal/guest"
	"github.com/refract-project/refract/internal/printable"
)

// Manifest describes a module. It comes from the module itself.
type Manifest struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Kinds are the kinds that the plugin supports, with their API group unless it is the core group: "Pod",
	// "Ingress.networking.k8s.io". "*" means all kinds except Secrets, which must be named.
	Kinds []string `json:"kinds"`
	// Hooks are the hooks that the module exports: "outgoing" and "incoming".
	Hooks []string `json:"hooks"`
	// Writes are the paths at or below which the plugin may write. "*" allows every edit that the guard allows. If
	// the list is empty or missing, the plugin may not write.
	Writes []string `json:"writes"`
	// Capabilities are additional permissions. The only one is "skip".
	Capabilities []string `json:"capabilities,omitempty"`
	// ConfigSchema is the JSON schema of the plugin's configuration. It is optional.
	ConfigSchema map[string]any `json:"configSchema,omitempty"`
}

// CapabilitySkip is the permission to exclude an object from reflection. If a copy exists, it is deleted.
const CapabilitySkip = "skip"

// Matches reports whether the plugin has the hook and supports objects of a kind. group is the API group, which is
// empty for the core group.
func (m *Manifest) Matches(kind, group string, hook Hook) bool {
	return slices.Contains(m.Hooks, hook.String()) && MatchesKind(m.Kinds, kind, group)
}

// MatchesKind reports whether a list of kinds from a manifest or from options contains a kind. group is the API
// group, which is empty for the core group. An entry without a group means the core group, or the API group of the
// kind's default plugin if there is one. "*" stands for all kinds except Secrets, which must be named.
func MatchesKind(kinds []string, kind, group string) bool {
	full := kind
	if group != "" {
		full += "." + group
	}
	return slices.ContainsFunc(kinds, func(k string) bool {
		return k == full || k == "*" && full != "Secret" || groupOfDefault[k] == group && group != "" && k == kind
	})
}

// groupOfDefault contains the API groups of those kinds that are not in the core group and have a default plugin.
var groupOfDefault = map[string]string{
	"Ingress":       "networking.k8s.io",
	"EndpointSlice": "discovery.k8s.io",
}

// maxManifestBytes is the maximum size of a manifest in bytes. It is sufficient for a long configuration schema.
const maxManifestBytes = 1 << 18

// parseManifest decodes a manifest. It returns warnings for repeated and for unknown fields. A newer version of the
// host may support an unknown field.
func parseManifest(text []byte) (_ *Manifest, warnings []string, err error) {
	m := &Manifest{}
	unknown, err := json.UnmarshalStrict(text, m)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding its JSON, %w", err)
	}
	for _, problem := range unknown {
		warnings = append(warnings, "manifest: "+printable.Shorten(printable.Text(problem.Error()), maxManifestText))
	}
	return m, warnings, m.validateManifest()
}

// validateManifest checks the manifest of a module.
func (m *Manifest) validateManifest() error {
	switch {
	case m.Name == "":
		return errors.New("it has no name")
	case len(m.Kinds) == 0:
		return errors.New(`it lists no kinds ("*" is any)`)
	case len(m.Hooks) == 0:
		return errors.New("it lists no hooks")
	}
	for _, h := range m.Hooks {
		if !slices.Contains(guest.HookNames(), h) {
			return fmt.Errorf("unknown hook %q (there are outgoing and incoming)", h)
		}
	}
	return m.checkLimits()
}

// maxWrites is the maximum number of writes in a manifest. It is limited because each of them is compared with every
// edit.
const maxWrites = 256

// maxManifestText is the maximum length of a name, version, kind or path, in bytes.
const maxManifestText = 1024

func (m *Manifest) checkLimits() error {
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

// checkTexts rejects texts that a terminal would display differently, because people read these texts to decide
// whether to trust a module.
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
		if _, err := fieldpath.Parse(p); err != nil {
			return fmt.Errorf("an entry of writes is not a valid path, %w", err)
		}
	}
	return nil
}
