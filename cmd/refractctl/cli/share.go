// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/internal/refractctl/peering"
)

// shareFlags contains the flags with the resources that a provider grants to a consumer.
type shareFlags struct {
	flags  *pflag.FlagSet
	usual  map[corev1.ResourceName]*string
	others []string
}

func (s *shareFlags) addFlags(flags *pflag.FlagSet) {
	s.flags, s.usual = flags, map[corev1.ResourceName]*string{}
	for name, byDefault := range peering.DefaultResources() {
		s.usual[name] = flags.String(string(name), "", fmt.Sprintf("amount that the provider grants: %s (default %s)", name, byDefault.String()))
	}
	flags.StringArrayVar(&s.others, "resource", nil, "further resource that the provider grants, as NAME=QUANTITY (may be repeated, or separated by commas)")
}

// parseResources returns the resources of the flags. An error names the invalid flag.
func (s *shareFlags) parseResources() (corev1.ResourceList, error) {
	resources := corev1.ResourceList{}
	add := func(flag string, name corev1.ResourceName, text string) error {
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			return fmt.Errorf("--%s is %q: use a quantity such as 4 or 8Gi", flag, text)
		}
		resources[name] = quantity
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.usual)) {
		if !s.flags.Changed(string(name)) {
			continue
		}
		if err := add(string(name), name, *s.usual[name]); err != nil {
			return nil, err
		}
	}
	for _, text := range strings.FieldsFunc(strings.Join(s.others, ","), func(r rune) bool { return r == ',' }) {
		name, quantity, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--resource is %q: use NAME=QUANTITY, such as nvidia.com/gpu=2", text)
		}
		if err := add("resource="+name, corev1.ResourceName(name), quantity); err != nil {
			return nil, err
		}
	}
	return resources, nil
}
