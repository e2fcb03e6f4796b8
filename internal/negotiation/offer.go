// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Limits of an offer. Its lists are copied to the VirtualNode, and its labels also to the Node.
const (
	mostClasses = 64
	mostLabels  = 32
)

// Offer is the usable part of a provider's offer.
type Offer struct {
	Resources           corev1.ResourceList
	StorageClasses      []offloading.StorageType
	IngressClasses      []offloading.IngressType
	LoadBalancerClasses []offloading.LoadBalancerType
	Labels              map[string]string
}

// Check returns the usable part of a provider's status, limited to the requested resources. It also returns the
// problems with the other parts, in a stable order.
func Check(status *auth.ResourceSliceStatus, asked corev1.ResourceList) (offer Offer, problems []string) {
	offer.Resources = corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		granted, ok := status.Resources[name]
		whole := name == corev1.ResourcePods || strings.Contains(string(name), "/")
		switch most := asked[name]; {
		// The provider does not grant this resource.
		case !ok:
		case granted.Sign() < 0 || whole && granted.MilliValue()%1000 != 0:
			problems = append(problems, fmt.Sprintf("status.resources[%s]=%s is not a valid quantity", name, granted.String()))
		// The provider may grant more than was requested, but only the requested amount is used.
		case granted.Cmp(most) > 0:
			offer.Resources[name] = most
		default:
			offer.Resources[name] = granted
		}
	}
	var some []string
	offer.StorageClasses, some = checkClasses("storageClasses", status.StorageClasses, validation.IsDNS1123Subdomain, func(c *offloading.StorageType) (string, *bool) { return c.StorageClassName, &c.Default })
	problems = append(problems, some...)
	offer.IngressClasses, some = checkClasses("ingressClasses", status.IngressClasses, validation.IsDNS1123Subdomain, func(c *offloading.IngressType) (string, *bool) { return c.IngressClassName, &c.Default })
	problems = append(problems, some...)
	offer.LoadBalancerClasses, some = checkClasses("loadBalancerClasses", status.LoadBalancerClasses, validation.IsQualifiedName, func(c *offloading.LoadBalancerType) (string, *bool) { return c.LoadBalancerClassName, &c.Default })
	problems = append(problems, some...)
	offer.Labels, some = checkLabels(status.NodeLabels)
	return offer, append(problems, some...)
}

// checkClasses drops classes with invalid names and duplicates. It removes all default marks except the first.
func checkClasses[T any](field string, offered []T, faults func(string) []string, describe func(*T) (name string, byDefault *bool)) (kept []T, problems []string) {
	if len(offered) > mostClasses {
		problems = append(problems, fmt.Sprintf("status.%s has %d classes, only the first %d are used", field, len(offered), mostClasses))
		offered = offered[:mostClasses]
	}
	names, hasDefault := map[string]bool{}, false
	for i := range offered {
		class := offered[i]
		name, byDefault := describe(&class)
		switch {
		case len(faults(name)) > 0:
			problems = append(problems, fmt.Sprintf("status.%s contains %s, which is not a valid class name", field, quoteText(name)))
			continue
		case names[name]:
			problems = append(problems, fmt.Sprintf("status.%s contains %s twice", field, quoteText(name)))
			continue
		case *byDefault && hasDefault:
			problems = append(problems, fmt.Sprintf("status.%s has a second default class, %s", field, quoteText(name)))
			*byDefault = false
		}
		names[name], hasDefault = true, hasDefault || *byDefault
		kept = append(kept, class)
	}
	return kept, problems
}

func checkLabels(offered map[string]string) (kept map[string]string, problems []string) {
	for _, key := range slices.Sorted(maps.Keys(offered)) {
		value := offered[key]
		switch {
		case len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0:
			problems = append(problems, fmt.Sprintf("status.nodeLabels has %s=%s, which is not a valid label", quoteText(key), quoteText(value)))
		case IsReserved(key):
			problems = append(problems, fmt.Sprintf("status.nodeLabels has %s, which is reserved", quoteText(key)))
		case len(kept) == mostLabels:
			return kept, append(problems, fmt.Sprintf("status.nodeLabels has %d labels, only %d are used", len(offered), mostLabels))
		default:
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept, problems
}

// IsReserved reports whether the key of a label belongs to Kubernetes (except for the topology labels), a cluster
// autoscaler, Liqo or Refract. Otherwise a provider could label its node as a control plane node, or as suitable for
// workloads that node-restriction.kubernetes.io/ protects.
func IsReserved(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return key == wire.AutoscalerTypeLabel
	}
	return domain != "topology.kubernetes.io" && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "liqo.io", "refract.io"}, func(of string) bool {
		return domain == of || strings.HasSuffix(domain, "."+of)
	})
}

// quoteText returns the beginning of a provider's text in quotes, for use in messages.
func quoteText(text string) string {
	const most = 48
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Apply writes an offer to the fields of a VirtualNode that follow the provider, and returns the fields that have
// changed. Resources that are not in the offer stay unchanged.
func (r *Request) Apply(offer *Offer, vn *offloading.VirtualNode) (changed []Field) {
	spec, before := &vn.Spec, vn.Spec.DeepCopy()
	if r.Follows(ResourceQuota) {
		for name, quantity := range offer.Resources {
			if spec.ResourceQuota.Hard == nil {
				spec.ResourceQuota.Hard = corev1.ResourceList{}
			}
			spec.ResourceQuota.Hard[name] = quantity
		}
		if !equality.Semantic.DeepEqual(before.ResourceQuota, spec.ResourceQuota) {
			changed = append(changed, ResourceQuota)
		}
	}
	followField(r, StorageClasses, &spec.StorageClasses, offer.StorageClasses, &changed)
	followField(r, IngressClasses, &spec.IngressClasses, offer.IngressClasses, &changed)
	followField(r, LoadBalancerClasses, &spec.LoadBalancerClasses, offer.LoadBalancerClasses, &changed)
	if r.Follows(Labels) {
		all := maps.Clone(offer.Labels)
		maps.DeleteFunc(all, func(key, _ string) bool { return r.labels[key] })
		for key, value := range spec.Labels {
			// Another client has written this label, so it is not changed.
			if r.labels[key] {
				if all == nil {
					all = map[string]string{}
				}
				all[key] = value
			}
		}
		followField(r, Labels, &spec.Labels, all, &changed)
	}
	return changed
}

func followField[T any](r *Request, field Field, present *T, offered T, changed *[]Field) {
	if r.Follows(field) && !equality.Semantic.DeepEqual(*present, offered) {
		*present = offered
		*changed = append(*changed, field)
	}
}

// Describe returns a text with the values of the given fields of a VirtualNode.
func Describe(vn *offloading.VirtualNode, of []Field) string {
	var parts []string
	for _, field := range of {
		var has []string
		switch field {
		case ResourceQuota:
			for _, name := range slices.Sorted(maps.Keys(vn.Spec.ResourceQuota.Hard)) {
				quantity := vn.Spec.ResourceQuota.Hard[name]
				has = append(has, string(name)+"="+quantity.String())
			}
		case StorageClasses:
			has = StorageNames(vn.Spec.StorageClasses)
		case IngressClasses:
			has = IngressNames(vn.Spec.IngressClasses)
		case LoadBalancerClasses:
			has = LoadBalancerNames(vn.Spec.LoadBalancerClasses)
		case Labels:
			for _, key := range slices.Sorted(maps.Keys(vn.Spec.Labels)) {
				has = append(has, key+"="+vn.Spec.Labels[key])
			}
		}
		text := strings.Join(has, ", ")
		if text == "" {
			text = "none"
		}
		parts = append(parts, fmt.Sprintf("spec.%s: %s", field, text))
	}
	return strings.Join(parts, "; ")
}

// StorageNames returns the names of the classes. The name of the default class is followed by "(default)".
func StorageNames(all []offloading.StorageType) []string {
	return classNames(all, func(c *offloading.StorageType) (string, bool) { return c.StorageClassName, c.Default })
}

// IngressNames returns the names of the classes. The name of the default class is followed by "(default)".
func IngressNames(all []offloading.IngressType) []string {
	return classNames(all, func(c *offloading.IngressType) (string, bool) { return c.IngressClassName, c.Default })
}

// LoadBalancerNames returns the names of the classes. The name of the default class is followed by "(default)".
func LoadBalancerNames(all []offloading.LoadBalancerType) []string {
	return classNames(all, func(c *offloading.LoadBalancerType) (string, bool) { return c.LoadBalancerClassName, c.Default })
}

func classNames[T any](all []T, describe func(*T) (string, bool)) (found []string) {
	for i := range all {
		name, byDefault := describe(&all[i])
		if byDefault {
			name += " (default)"
		}
		found = append(found, name)
	}
	return found
}
