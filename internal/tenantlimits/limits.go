// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/internal/ipmap"
)

// AnnotationPrefix is the prefix of the annotations, on tenant and remote namespaces, that set the limits of one
// consumer.
const AnnotationPrefix = "tenants.refract.io/"

// Limits contains the values of all settings. The zero value contains the defaults. Limits are immutable and safe for
// concurrent use.
type Limits struct {
	values map[string]string
}

// New returns limits with the given values, by the names of the settings. Settings that are not in values have their
// defaults.
func New(values map[string]string) (Limits, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		setting, err := Lookup(name)
		if err != nil {
			return Limits{}, err
		}
		if err := setting.Check(values[name]); err != nil {
			return Limits{}, err
		}
	}
	return Limits{values: maps.Clone(values)}, nil
}

// With returns the limits in l, overridden by the annotations of a namespace. An invalid value is not applied, and is
// reported in the error. All valid values are applied nevertheless. Annotations for unknown settings are ignored,
// because a later version may define these settings.
func (l Limits) With(annotations map[string]string) (Limits, error) {
	values := maps.Clone(l.values)
	var invalid []string
	for key, text := range annotations {
		name, is := strings.CutPrefix(key, AnnotationPrefix)
		if !is {
			continue
		}
		setting, err := Lookup(name)
		if err != nil {
			continue
		}
		if err := setting.Check(text); err != nil {
			invalid = append(invalid, fmt.Sprintf("annotation %s: %s", key, err))
			continue
		}
		if values == nil {
			values = map[string]string{}
		}
		values[name] = text
	}
	if len(invalid) > 0 {
		slices.Sort(invalid)
		return Limits{values: values}, fmt.Errorf("%s", strings.Join(invalid, "; "))
	}
	return Limits{values: values}, nil
}

// Annotations returns the annotations that set limits. It returns nil if there are none.
func Annotations(annotations map[string]string) map[string]string {
	var found map[string]string
	for key, value := range annotations {
		if strings.HasPrefix(key, AnnotationPrefix) {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}

// text returns the value of the setting in the format of the flag.
func (l Limits) text(s *Setting) string {
	if value, ok := l.values[s.Name]; ok {
		return value
	}
	return s.Default
}

// List returns the entries of a setting of kind Globs or Names.
func (l Limits) List(s *Setting) []string { return entries(l.text(s)) }

// Matches reports whether an entry of a setting of kind Globs or Names matches the text. An asterisk in an entry
// matches any number of characters.
func (l Limits) Matches(s *Setting, text string) bool {
	return slices.ContainsFunc(globsOf(l.text(s)), func(g glob) bool { return g.matches(text) })
}

// Number returns the value of a setting of kind Number. If there is no limit, limited is false.
func (l Limits) Number(s *Setting) (limit int64, limited bool) {
	text := l.text(s)
	if text == Unlimited {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, true // this cannot happen, because New and With check the values
	}
	return number, true
}

// Ranges returns the ranges of a setting of kind CIDRs.
func (l Limits) Ranges(s *Setting) ipmap.Ranges {
	ranges, err := parseCIDRs(l.text(s))
	if err != nil {
		return nil // this cannot happen, because New and With check the values
	}
	return ranges
}

// IsDefault reports whether the setting has its default value.
func (l Limits) IsDefault(s *Setting) bool { return l.text(s) == s.Default }

// Quantity returns the value of a setting of kind Quantity. If there is no limit, limited is false.
func (l Limits) Quantity(s *Setting) (limit resource.Quantity, limited bool) {
	text := l.text(s)
	if text == Unlimited {
		return resource.Quantity{}, false
	}
	limit, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, true // this cannot happen, because New and With check the values
	}
	return limit, true
}

// Enabled returns the value of a setting of kind Switch.
func (l Limits) Enabled(s *Setting) bool { return l.text(s) == "true" }

func entries(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// glob is an entry of a list, split at its asterisks.
type glob []string

// matches reports whether the text consists of the parts, in order, with any characters between them.
func (g glob) matches(text string) bool {
	first, last := g[0], g[len(g)-1]
	if len(g) == 1 {
		return text == first
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range g[1 : len(g)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// lists caches the parsed entries of lists, by the text of the list. They are cached because the keys of each pod are
// compared with lists of a hundred entries. The cache cannot grow much, because only administrators write lists.
var lists sync.Map

func globsOf(list string) []glob {
	if parsed, ok := lists.Load(list); ok {
		return parsed.([]glob)
	}
	var globs []glob
	for _, entry := range entries(list) {
		globs = append(globs, strings.Split(entry, "*"))
	}
	parsed, _ := lists.LoadOrStore(list, globs)
	return parsed.([]glob)
}
