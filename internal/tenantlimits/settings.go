// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/internal/ipmap"
)

// Kind is the format of a setting's value.
type Kind string

const (
	// Globs is a comma-separated list of names. An asterisk in a name matches any number of characters. An empty list
	// matches nothing.
	Globs Kind = "globs"
	// Names is a comma-separated list of names without wildcards. An empty list matches nothing.
	Names Kind = "names"
	// Number is a non-negative number, or Unlimited.
	Number Kind = "number"
	// Quantity is a Kubernetes quantity, such as 10Gi, or Unlimited.
	Quantity Kind = "quantity"
	// Switch is true or false.
	Switch Kind = "switch"
	// CIDRs is a comma-separated list of address ranges. An empty list contains no addresses.
	CIDRs Kind = "cidrs"
)

// Unlimited is the value of a Number or Quantity setting without a limit.
const Unlimited = "unlimited"

// Setting is a limit that a provider can set.
type Setting struct {
	// Name is the name of the setting in arguments of refractctl, and a part of the names of the flag and the
	// annotation. In camel case, it is the name of the chart value.
	Name string
	Kind Kind
	// Default is the default value in the format of the flag.
	Default string
	// Of lists the names that a value of kind Names may contain. If it is nil, all names are allowed.
	Of []string
	// Help is the help text of the flag, without the default.
	Help string
}

// all lists the settings in the order of the documentation.
var all = slices.Concat(namespaceSettings, podSettings, metadataSettings, objectSettings, addressSettings)

// Settings returns all settings, in the order of the documentation.
func Settings() []*Setting { return slices.Clone(all) }

// Lookup returns the setting with the given name, or an error that lists the existing names.
func Lookup(name string) (*Setting, error) {
	for _, setting := range all {
		if setting.Name == name {
			return setting, nil
		}
	}
	names := make([]string, len(all))
	for i, setting := range all {
		names[i] = setting.Name
	}
	return nil, fmt.Errorf("there is no limit %q: use one of %s", name, strings.Join(names, ", "))
}

// Value returns the name of the chart value below tenants.
func (s *Setting) Value() string {
	words := strings.Split(s.Name, "-")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// Flag returns the name of the controller manager's flag without the leading dashes.
func (s *Setting) Flag() string { return "tenant-" + s.Name }

// Annotation returns the key of the annotation that sets the limit for one consumer.
func (s *Setting) Annotation() string { return AnnotationPrefix + s.Name }

// globChars matches names and keys in Kubernetes, with asterisks. Other special characters are not allowed, because the
// admission policies compile the entries to regular expressions.
var globChars = regexp.MustCompile(`^[A-Za-z0-9*._/:-]+$`)

// Check returns an error if text is not a valid value of the setting. The error contains the remedy.
func (s *Setting) Check(text string) error {
	switch s.Kind {
	case Number:
		if number, err := strconv.ParseInt(text, 10, 64); text != Unlimited && (err != nil || number < 0) {
			return fmt.Errorf("%s is %q: use a number, 0 or more, or %s", s.Name, text, Unlimited)
		}
	case Switch:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s is %q: use true or false", s.Name, text)
		}
	case CIDRs:
		if _, err := parseCIDRs(text); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	case Quantity:
		if quantity, err := resource.ParseQuantity(text); text != Unlimited && (err != nil || quantity.Sign() < 0) {
			return fmt.Errorf("%s is %q: use a quantity, such as 10Gi, or %s", s.Name, text, Unlimited)
		}
	case Names:
		for _, entry := range entries(text) {
			if !globChars.MatchString(entry) || strings.Contains(entry, "*") {
				return fmt.Errorf("%s: entry %q is not valid: use names separated by commas, without spaces and wildcards", s.Name, strings.Map(printable, entry))
			}
			if s.Of != nil && !slices.Contains(s.Of, entry) {
				return fmt.Errorf("%s: entry %q is not valid: use %s", s.Name, strings.Map(printable, entry), strings.Join(s.Of, ", "))
			}
		}
	case Globs:
		for _, entry := range entries(text) {
			if !globChars.MatchString(entry) {
				return fmt.Errorf("%s: entry %q is not valid: use names separated by commas, without spaces, in which * stands for any characters", s.Name, strings.Map(printable, entry))
			}
		}
	}
	return nil
}

func parseCIDRs(text string) (ipmap.Ranges, error) {
	var ranges ipmap.Ranges
	for _, entry := range entries(text) {
		prefix, err := netip.ParsePrefix(entry)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range: use CIDR notation, such as 10.1.0.0/16", strings.Map(printable, entry))
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, nil
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}
