// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/refract-project/refract/host/document"
)

// Manifest is what a module says about itself.
type Manifest struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Kinds that it is for: "Pod", "Ingress.networking.k8s.io" (with the API group), "*".
	Kinds []string `json:"kinds"`
	// Hooks that it has: "outgoing", "incoming".
	Hooks []string `json:"hooks"`
	// Writes are the paths at and below which it may write; "*" is everything that the guard leaves.
	Writes []string `json:"writes"`
	// ConfigSchema is the JSON schema of its configuration, if it has one.
	ConfigSchema map[string]any `json:"configSchema,omitempty"`
}

// Matches tells whether the plugin is for objects of this kind and API group (empty for the core group).
func (m *Manifest) Matches(kind, group string, hook Hook) bool {
	return slices.Contains(m.Hooks, hook.String()) && slices.ContainsFunc(m.Kinds, func(k string) bool {
		return k == "*" || k == kind || k == kind+"."+group
	})
}

// maxManifestBytes is more than a generous configuration schema needs.
const maxManifestBytes = 1 << 18

func parseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("decoding its JSON, %w", err)
	}
	switch {
	case m.Name == "":
		return nil, errors.New("it has no name")
	case len(m.Kinds) == 0:
		return nil, errors.New(`it lists no kinds ("*" is any)`)
	case len(m.Hooks) == 0:
		return nil, errors.New("it lists no hooks")
	}
	for _, h := range m.Hooks {
		if !slices.Contains(hookNames[:], h) {
			return nil, fmt.Errorf("unknown hook %q (there are outgoing and incoming)", h)
		}
	}
	return m, checkPaths(m.Writes)
}

func checkPaths(paths []string) error {
	for _, p := range paths {
		if p == "" {
			return errors.New(`an entry of writes is empty ("*" is everything)`)
		}
		if _, err := document.ParsePath(p); err != nil {
			return fmt.Errorf("an entry of writes is no path, %w", err)
		}
	}
	return nil
}
