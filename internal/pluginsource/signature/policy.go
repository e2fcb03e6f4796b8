// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/internal/pluginsource"
)

// Mode determines how modules without a signature by one of the keys are treated.
type Mode string

// The possible modes.
const (
	// Require means that the module is refused.
	Require Mode = "Require"
	// Warn means that the module is accepted with a Warning.
	Warn Mode = "Warn"
	// Off means that the module is accepted and no signatures are read.
	Off Mode = "Off"
)

// Policy lists the sources that must be signed, and their keys. It is set by the administrator of the installation,
// not by the authors of plugins.
type Policy struct {
	// Default is the mode of sources that match no prefix.
	Default Mode `json:"default"`
	// Prefixes are the policies for sources with certain prefixes. The longest matching prefix applies.
	Prefixes []Prefix `json:"prefixes,omitempty"`
}

// Prefix is the policy for the sources with a prefix.
type Prefix struct {
	// Prefix is the beginning of a repository, of an https URL, or of configMap/NAME. It must match whole path
	// segments.
	Prefix string `json:"prefix"`
	// Mode is the mode for these sources.
	Mode Mode `json:"mode"`
	// Keys are public keys in PEM.
	Keys []string `json:"keys,omitempty"`

	keys []Key
}

// Decision is the policy of one source.
type Decision struct {
	// Mode is the mode for the source.
	Mode Mode
	// Keys are the keys for the source. A signature by any of them is sufficient.
	Keys []Key
	// Prefix is the prefix that applies. It is empty if no prefix matches.
	Prefix string
}

// Fingerprint returns a text that identifies the decision. When it changes, the signature is verified again.
func (d Decision) Fingerprint() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n", d.Mode)
	for _, k := range d.Keys {
		fmt.Fprintln(sum, k.Fingerprint())
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// DefaultPolicy returns a policy that warns of unsigned modules and has no keys.
func DefaultPolicy() *Policy { return &Policy{Default: Warn} }

// ReadPolicy reads the policy from a YAML file. For an empty path it returns DefaultPolicy.
func ReadPolicy(path string) (*Policy, error) {
	if path == "" {
		return DefaultPolicy(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	policy, err := ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return policy, nil
}

// ParsePolicy parses a policy in YAML. Unknown fields are errors.
func ParsePolicy(text []byte) (*Policy, error) {
	p := &Policy{}
	if err := yaml.UnmarshalStrict(text, p); err != nil {
		return nil, err
	}
	if p.Default == "" {
		p.Default = Warn
	}
	if err := p.Default.check("default"); err != nil {
		return nil, err
	}
	known := map[string]int{}
	for i := range p.Prefixes {
		field := fmt.Sprintf("prefixes[%d]", i)
		if err := p.Prefixes[i].parse(field); err != nil {
			return nil, err
		}
		if first, isKnown := known[p.Prefixes[i].Prefix]; isKnown {
			return nil, fmt.Errorf("%s.prefix %q is also that of prefixes[%d]: list it once, with all keys", field, p.Prefixes[i].Prefix, first)
		}
		known[p.Prefixes[i].Prefix] = i
	}
	return p, nil
}

// UnmarshalJSON also accepts false, because YAML parses an unquoted Off as false.
func (m *Mode) UnmarshalJSON(text []byte) error {
	if string(text) == "false" {
		*m = Off
		return nil
	}
	return json.Unmarshal(text, (*string)(m))
}

func (m Mode) check(field string) error {
	switch m {
	case Require, Warn, Off:
		return nil
	}
	return fmt.Errorf("%s is %q: use Require, Warn or Off", field, m)
}

func (p *Prefix) parse(field string) error {
	if p.Prefix = normalizePrefix(p.Prefix); p.Prefix == "" {
		return fmt.Errorf("%s.prefix is empty: set default instead", field)
	}
	if err := checkPrefix(p.Prefix); err != nil {
		return fmt.Errorf("%s.prefix %q %w", field, p.Prefix, err)
	}
	if err := p.Mode.check(field + ".mode"); err != nil {
		return err
	}
	for i, text := range p.Keys {
		key, err := ParseKey(text)
		if err != nil {
			return fmt.Errorf("%s.keys[%d]: %w", field, i, err)
		}
		p.keys = append(p.keys, key)
	}
	if p.Mode == Require && len(p.keys) == 0 {
		return fmt.Errorf("%s requires signatures, and has no keys", field)
	}
	return nil
}

// normalizePrefix returns a prefix whose host is in the form of ParseImage: in lower case and without a default port.
func normalizePrefix(prefix string) string {
	scheme, rest, isURL := strings.Cut(prefix, "://")
	if !isURL {
		rest = prefix
	}
	host, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(host, ".:") || host == "localhost" {
		host = pluginsource.NormalizeHost(host)
	}
	rest = strings.TrimSuffix(host+"/"+path, "/")
	if isURL {
		return strings.ToLower(scheme) + "://" + rest
	}
	return rest
}

// checkPrefix returns an error if a normalized prefix cannot match any source. Otherwise, the sources that it is meant
// for would get the default policy.
func checkPrefix(prefix string) error {
	if name, isConfigMap := strings.CutPrefix(prefix, "configMap/"); isConfigMap || prefix == "configMap" {
		if isConfigMap && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return errors.New("is not configMap/NAME, with the name of a ConfigMap")
		}
		return nil
	}
	if strings.Contains(prefix, "://") {
		if _, err := pluginsource.ParseURL(prefix); err != nil || strings.ContainsAny(prefix, "*?#@") {
			return errors.New("is not the beginning of an https URL: it has no user name, query, wildcards or parts that servers resolve")
		}
		return nil
	}
	host, path, hasPath := strings.Cut(prefix, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return errors.New("has no host: use HOST/PATH, as in registry.example.com/plugins or docker.io/plugins, an https URL, or configMap/NAME")
	}
	if strings.ContainsAny(path, ":@") {
		return errors.New("has a tag or a digest: a prefix is the beginning of a repository")
	}
	if !hasPath {
		path = "a"
	}
	if _, err := pluginsource.ParseImage(host + "/" + path); err != nil {
		return fmt.Errorf("is not the beginning of a repository, without wildcards: %w", err)
	}
	return nil
}

// For returns the decision for a source, which is a repository without a tag, an https URL, or configMap/NAME.
func (p *Policy) For(source string) Decision {
	source = normalizePrefix(source)
	decision := Decision{Mode: p.Default}
	for _, candidate := range p.Prefixes {
		if len(candidate.Prefix) > len(decision.Prefix) && matches(source, candidate.Prefix) {
			decision = Decision{Mode: candidate.Mode, Keys: candidate.keys, Prefix: candidate.Prefix}
		}
	}
	return decision
}

// matches reports whether the source begins with the prefix, and the prefix ends at the end of a path segment.
func matches(source, prefix string) bool {
	rest, ok := strings.CutPrefix(source, prefix)
	return ok && (rest == "" || rest[0] == '/')
}
