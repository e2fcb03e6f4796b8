// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/tenancy"
)

// judgeRequest returns the reason why a request is refused, or nil. limited reports whether a Quota limits the request.
// If announced is true, the usage includes the announced requests. The lock must be held.
func (l *Ledger) judgeRequest(ctx context.Context, request Request, announced bool) (refusal *Refusal, limited bool, err error) {
	if l.options.Off {
		return nil, false, nil
	}
	who := ownerOf(request.Labels)
	quotas, err := QuotasOf(ctx, l.reader, who.origin)
	if err != nil {
		return nil, false, err
	}
	demand, present := demandOf(&corev1.Pod{Spec: *request.Spec}), l.presentDemand(request)
	if len(quotas) == 0 {
		refusal, err := l.judgeUnlimited(ctx, who, request, demand, present)
		return refusal, false, err
	}
	// The creator of a ShadowPod is unknown if it was written before there were Quotas, or while the webhook was
	// unavailable. Such a pod counts towards all Quotas of its consumer.
	applied := slices.DeleteFunc(slices.Clone(quotas), func(q offloading.Quota) bool { return who.creator != "" && EscapeUser(q.Spec.User) != who.creator })
	switch {
	case len(applied) == 0 && !isNew(request, demand, present):
		return nil, false, nil
	case len(applied) == 0:
		return newRefusal("metadata.labels["+wire.CreatorUserLabel+"]",
			fmt.Sprintf("user %q of consumer %s has no Quota, and others of this consumer have one", who.creator, who.origin),
			fmt.Sprintf("ask an administrator of this cluster to create a Quota for it in namespace %s", quotas[0].Namespace)), true, nil
	}
	used, err := l.usedBeside(ctx, who, request.Key, announced)
	for i := range applied {
		if err == nil && refusal == nil {
			refusal = l.judgeBy(&applied[i], request, demand, present, used)
		}
	}
	return refusal, true, err
}

// presentDemand returns the amounts of the pod in a request, or nil if there is no pod. They include amounts that were
// written but are not in the cache yet. They do not include the amounts of a write with unknown outcome, because its
// retry must fit into the present limits.
func (l *Ledger) presentDemand(request Request) corev1.ResourceList {
	if request.Present == nil {
		return nil
	}
	present := demandOf(request.Present)
	if entry := l.reserved[request.Key]; entry != nil {
		raiseResources(present, entry.settled)
	}
	return present
}

// isGrowing reports whether a request demands more than the pod has.
func isGrowing(demand, present corev1.ResourceList) bool {
	for name, wants := range demand {
		if wants.Cmp(present[name]) > 0 {
			return true
		}
	}
	return false
}

// isNew reports whether a request would start something new: a first pod, another pod instead of the existing one, or a
// larger pod.
func isNew(request Request, demand, present corev1.ResourceList) bool {
	switch {
	case request.Returns:
		return false
	case request.Present == nil, request.Replaces:
		return true
	}
	return isGrowing(demand, present)
}

// judgeBy checks a request against one Quota. If the pod was already running and does not grow, judgeBy checks only the
// available resources, and not whether the pod declares the required requests and limits.
func (l *Ledger) judgeBy(q *offloading.Quota, request Request, demand, present, used corev1.ResourceList) *Refusal {
	remedy := fmt.Sprintf("ask an administrator of this cluster to change Quota %s/%s", q.Namespace, q.Name)
	if ptr.Deref(q.Spec.Cordoned, false) && isNew(request, demand, present) {
		return newRefusal("spec.pod", "the Quota is cordoned, so no new pods are admitted, and running pods may only shrink", remedy)
	}
	if !request.Returns {
		if refusal := l.checkDeclaration(request.Spec, q); refusal != nil {
			return refusal
		}
	}
	over := findExcess(demand, present, used, limitsOf(q.Spec.Resources))
	if len(over) == 0 {
		return nil
	}
	describe := func(one func(*excess) string) *tenancy.Refusal {
		var parts []string
		for i := range over {
			parts = append(parts, one(&over[i]))
		}
		return &tenancy.Refusal{Field: "spec.pod", Rule: fmt.Sprintf("it exceeds the Quota of user %s: %s", q.Spec.User, strings.Join(parts, "; ")),
			Remedy: "delete other pods, request less, or " + remedy}
	}
	return &Refusal{Refusal: *describe((*excess).String), Discreet: describe(func(e *excess) string { return string(e.name) })}
}

func newRefusal(field, rule, remedy string) *Refusal {
	return &Refusal{Refusal: tenancy.Refusal{Field: field, Rule: rule, Remedy: remedy}}
}

// judgeUnlimited checks a request of a consumer without any Quota. It refuses new pods if a Quota is required.
func (l *Ledger) judgeUnlimited(ctx context.Context, who owner, request Request, demand, present corev1.ResourceList) (*Refusal, error) {
	required := l.options.Required
	if !required && l.options.OfTenants {
		var err error
		if required, err = l.isTenant(ctx, who.origin); err != nil {
			return nil, err
		}
	}
	if !required || !isNew(request, demand, present) {
		return nil, nil //nolint:nilnil // not refused
	}
	return newRefusal("metadata.labels["+wire.CreatorUserLabel+"]", fmt.Sprintf("consumer %s has no Quota, so its pods may only stay as they are, or shrink", who.origin),
		fmt.Sprintf("ask an administrator of this cluster to accept a ResourceSlice of the consumer, or create a Quota for user %q in its tenant namespace", who.creator)), nil
}

// isTenant reports whether a consumer has joined with a Tenant, and not with refractctl.
func (l *Ledger) isTenant(ctx context.Context, consumer string) (bool, error) {
	tenants := &auth.TenantList{}
	if err := l.reader.List(ctx, tenants, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing Tenants, %w", err)
	}
	return slices.ContainsFunc(tenants.Items, func(t auth.Tenant) bool { return string(t.Spec.ClusterID) == consumer && !t.IsOfRefractctl() }), nil
}

// QuotasOf returns the Quotas in the tenant namespaces of a consumer.
func QuotasOf(ctx context.Context, reader client.Reader, consumer string) ([]offloading.Quota, error) {
	list := &offloading.QuotaList{}
	if err := reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Quotas, %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	namespaces := &corev1.NamespaceList{}
	if err := reader.List(ctx, namespaces, client.MatchingLabels{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: consumer}); err != nil {
		return nil, fmt.Errorf("listing the tenant namespaces of %s, %w", consumer, err)
	}
	return slices.DeleteFunc(list.Items, func(q offloading.Quota) bool {
		return !slices.ContainsFunc(namespaces.Items, func(n corev1.Namespace) bool { return n.Name == q.Namespace })
	}), nil
}

// enforcementOf returns which requests and limits pods must declare according to a Quota.
func (l *Ledger) enforcementOf(q *offloading.Quota) offloading.LimitsEnforcement {
	if q.Spec.LimitsEnforcement != "" {
		return q.Spec.LimitsEnforcement
	}
	return l.options.Limits
}

// checkDeclaration returns a Refusal if a pod does not declare a request or limit that the Quota requires. Zero counts
// as missing: a container that requests zero may use any amount, and a limit of zero is no limit.
func (l *Ledger) checkDeclaration(spec *corev1.PodSpec, q *offloading.Quota) *Refusal {
	strict := l.enforcementOf(q)
	ask := requiredDeclaration{limits: map[corev1.ResourceName]bool{}, equal: strict == offloading.HardLimitsEnforcement}
	if ask.equal || strict == offloading.SoftLimitsEnforcement {
		ask.requests = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	}
	for name := range limitsOf(q.Spec.Resources) {
		if bare, ok := strings.CutPrefix(string(name), limitsPrefix); ok {
			// If there were no limit, the usage of the resource could not be counted.
			ask.limits[corev1.ResourceName(bare)] = true
		}
		if name == corev1.ResourceEphemeralStorage && len(ask.requests) > 0 {
			ask.requests = append(ask.requests, name)
		}
	}
	field, rule := ask.missingField(spec)
	if rule == "" {
		return nil
	}
	return newRefusal("spec.pod."+field, rule, fmt.Sprintf("set it in the pod (limitsEnforcement of Quota %s/%s is %s)", q.Namespace, q.Name, strict))
}

// requiredDeclaration lists the resources that a Quota requires pods to declare.
type requiredDeclaration struct {
	// requests are the resources that must have a request.
	requests []corev1.ResourceName
	// limits are the resources that must have a limit.
	limits map[corev1.ResourceName]bool
	// equal means that each limit must be equal to the request of the same resource.
	equal bool
}

// missingField returns the first required field that a pod lacks, and the rule that requires it. It returns empty
// strings if the pod has all required fields.
func (d *requiredDeclaration) missingField(spec *corev1.PodSpec) (field, rule string) {
	said := ptr.Deref(spec.Resources, corev1.ResourceRequirements{})
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"containers", spec.Containers}, {"initContainers", spec.InitContainers}} {
		for i := range list.containers {
			container := &list.containers[i]
			if rule := d.undeclaredField(&container.Resources, &said); rule != "" {
				return fmt.Sprintf("%s[%s].resources", list.field, container.Name), rule
			}
		}
	}
	return "", ""
}

// undeclaredField returns the rule for the first required field that a container lacks, or "" if it lacks none. A field
// that the pod declares for all containers is not missing.
func (d *requiredDeclaration) undeclaredField(container, pod *corev1.ResourceRequirements) string {
	for _, name := range d.requests {
		if !isPositive(container.Requests, name) && !isPositive(pod.Requests, name) {
			return fmt.Sprintf("a request of %s is mandatory, and more than zero", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.limits)) {
		if !isPositive(container.Limits, name) && !isPositive(pod.Limits, name) {
			return fmt.Sprintf("a limit of %s is mandatory, and more than zero", name)
		}
	}
	for _, level := range []*corev1.ResourceRequirements{container, pod} {
		if rule := d.unequalLimit(level); rule != "" {
			return rule
		}
	}
	return ""
}

// unequalLimit returns the rule for the first limit that differs from the request for the same resource, or "" if there
// is none.
func (d *requiredDeclaration) unequalLimit(resources *corev1.ResourceRequirements) string {
	if !d.equal {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(resources.Requests)) {
		request, limit := resources.Requests[name], resources.Limits[name]
		if limit.Cmp(request) != 0 {
			return fmt.Sprintf("the limit of %s must equal its request (%s)", name, request.String())
		}
	}
	return ""
}

func isPositive(list corev1.ResourceList, name corev1.ResourceName) bool {
	quantity, ok := list[name]
	return ok && quantity.Cmp(resource.Quantity{}) > 0
}
