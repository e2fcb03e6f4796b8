// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/refract-project/refract/internal/refractctl/peering"
)

// ShareFlags contains the flags with the resources that a provider grants to a consumer.
type ShareFlags struct {
	flags  *pflag.FlagSet
	usual  map[corev1.ResourceName]*string
	others []string
}

// AddFlags adds the flags to a command.
func (s *ShareFlags) AddFlags(flags *pflag.FlagSet) {
	s.flags, s.usual = flags, map[corev1.ResourceName]*string{}
	for name, byDefault := range peering.DefaultResources() {
		s.usual[name] = flags.String(string(name), "", fmt.Sprintf("amount that the provider grants: %s (default %s)", name, byDefault.String()))
	}
	flags.StringArrayVar(&s.others, "resource", nil, "further resource that the provider grants, as NAME=QUANTITY (may be repeated, or separated by commas)")
}

// ParseResources returns the resources of the flags. An error names the invalid flag.
func (s *ShareFlags) ParseResources() (corev1.ResourceList, error) {
	resources := corev1.ResourceList{}
	add := func(flag string, name corev1.ResourceName, text string) error {
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			return fmt.Errorf("--%s is %q: use a quantity such as 4 or 8Gi", flag, text)
		}
		if err := checkAmount(name, quantity); err != nil {
			return fmt.Errorf("--%s is %q: %w", flag, text, err)
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

// checkAmount returns an error if an amount of a resource cannot be granted. Kubernetes counts processors in
// thousandths, and all other resources in whole numbers.
func checkAmount(name corev1.ResourceName, quantity resource.Quantity) error {
	if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a resource: %s", name, strings.Join(problems, "; "))
	}
	scale, most, unit := resource.Scale(0), int64(math.MaxInt64), "a whole number, such as 4 or 8Gi (m means thousandths)"
	if name == corev1.ResourceCPU {
		scale, most, unit = resource.Milli, math.MaxInt64/1000, "thousandths at least, such as 4 or 500m"
	}
	if quantity.CmpInt64(most) >= 0 { // larger binary quantities are parsed as the largest one
		return fmt.Errorf("use less than %d", most)
	}
	if rounded := quantity.DeepCopy(); !rounded.RoundUp(scale) {
		return fmt.Errorf("use %s", unit)
	}
	return nil
}
