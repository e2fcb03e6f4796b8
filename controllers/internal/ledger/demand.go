// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// Prefixes of resource names in a ResourceQuota. A Quota may use them, too.
const (
	requestsPrefix = "requests."
	limitsPrefix   = "limits."
)

// demandOf returns the amounts with which a pod counts towards a Quota, according to the rules of Kubernetes: the sum
// of the requests of its containers, or the requests of its largest init container if these are larger, plus sidecars
// and overhead. Limits are added up by the same rules, under names such as limits.cpu. The pod itself counts as one
// pod. During a resize, the larger of the current and the new size counts.
func demandOf(pod *corev1.Pod) corev1.ResourceList {
	defaulted := &corev1.Pod{Spec: withDefaultRequests(&pod.Spec), Status: pod.Status}
	demand := corev1.ResourceList{}
	// If the node cannot carry out a resize at present, it does not use resources yet. But the node may carry it out
	// later.
	for _, options := range []helpers.PodResourcesOptions{{}, {UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}} {
		raiseResources(demand, helpers.PodRequests(defaulted, options))
		for name, limit := range helpers.PodLimits(defaulted, options) {
			raiseResources(demand, corev1.ResourceList{limitsPrefix + name: limit})
		}
	}
	demand[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return demand
}

// withDefaultRequests returns a copy of spec in which each missing request is set to the limit, as the API server does
// by default.
func withDefaultRequests(spec *corev1.PodSpec) corev1.PodSpec {
	defaulted := *spec
	defaulted.Containers, defaulted.InitContainers = withRequests(spec.Containers), withRequests(spec.InitContainers)
	if spec.Resources == nil {
		return defaulted
	}
	level := spec.Resources.DeepCopy()
	inContainers := helpers.AggregateContainerRequests(&corev1.Pod{Spec: defaulted}, helpers.PodResourcesOptions{})
	for name, limit := range level.Limits {
		if _, said := level.Requests[name]; said {
			continue
		}
		if level.Requests == nil {
			level.Requests = corev1.ResourceList{}
		}
		level.Requests[name] = limit
		if sum, ok := inContainers[name]; ok {
			level.Requests[name] = sum
		}
	}
	defaulted.Resources = level
	return defaulted
}

func withRequests(containers []corev1.Container) []corev1.Container {
	defaulted := slices.Clone(containers)
	for i := range defaulted {
		resources := &defaulted[i].Resources
		if len(resources.Limits) > 0 {
			requests := maps.Clone(resources.Limits)
			maps.Copy(requests, resources.Requests)
			resources.Requests = requests
		}
	}
	return defaulted
}

// limitsOf returns the limits in a Quota under the resource names that demandOf uses.
func limitsOf(resources corev1.ResourceList) corev1.ResourceList {
	limits := corev1.ResourceList{}
	for name, limit := range resources {
		if bare, ok := strings.CutPrefix(string(name), requestsPrefix); ok && bare != string(corev1.ResourceStorage) {
			name = corev1.ResourceName(bare)
		}
		if other, twice := limits[name]; !twice || limit.Cmp(other) < 0 {
			limits[name] = limit
		}
	}
	return limits
}

// IsSized reports whether the amounts of a pod are final: each container declares requests for CPU and memory, and all
// amounts that count under the given names, which come from LimitedResources. A LimitRange does not change such
// amounts. A pod with a runtime class is not sized, because the class may add an overhead.
func IsSized(spec *corev1.PodSpec, names []corev1.ResourceName) bool {
	if ptr.Deref(spec.RuntimeClassName, "") != "" {
		return false
	}
	for _, name := range append([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, names...) {
		bare, ofLimits := strings.CutPrefix(string(name), limitsPrefix)
		if !isOfContainers(corev1.ResourceName(bare)) {
			continue
		}
		for _, container := range slices.Concat(spec.Containers, spec.InitContainers) {
			_, requested := container.Resources.Requests[name]
			_, limited := container.Resources.Limits[corev1.ResourceName(bare)]
			if !limited && (ofLimits || !requested) {
				return false
			}
		}
	}
	return true
}

// isOfContainers reports whether containers can request the resource. They cannot request numbers of objects and the
// storage of claims.
func isOfContainers(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	text := string(name)
	if strings.HasPrefix(text, corev1.ResourceHugePagesPrefix) {
		return true
	}
	isObject := strings.HasPrefix(text, "count/") || strings.Contains(text, ".storageclass.storage.k8s.io/")
	return strings.Contains(text, "/") && !isObject
}

// excess is a resource for which the demand exceeds a Quota.
type excess struct {
	name                   corev1.ResourceName
	requested, used, limit resource.Quantity
	unlisted               bool
}

func (e *excess) String() string {
	if e.unlisted {
		return fmt.Sprintf("%s is not among its resources", e.name)
	}
	return fmt.Sprintf("%s: requested %s, used %s, limited %s", e.name, e.requested.String(), e.used.String(), e.limit.String())
}

// findExcess returns the resources for which the demand exceeds the limit minus the usage, sorted by name. The pod may
// always keep its present amounts.
func findExcess(demand, present, used, limits corev1.ResourceList) (over []excess) {
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		wants, has := demand[name], present[name]
		limit, named := limits[name]
		total := used[name].DeepCopy()
		total.Add(wants)
		switch _, exists := present[name]; {
		case wants.IsZero(), exists && wants.Cmp(has) <= 0:
		case !named && (name == corev1.ResourcePods || strings.HasPrefix(string(name), limitsPrefix)):
		case !named:
			over = append(over, excess{name: name, unlisted: true})
		case total.Cmp(limit) > 0:
			over = append(over, excess{name: name, requested: wants, used: used[name], limit: limit})
		}
	}
	return over
}

func addResources(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// raiseResources sets each resource in list to the larger of its amounts in list and other.
func raiseResources(list, other corev1.ResourceList) {
	for name, quantity := range other {
		if present, ok := list[name]; !ok || quantity.Cmp(present) > 0 {
			list[name] = quantity
		}
	}
}
