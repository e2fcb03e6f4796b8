// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/tenantlimits"
)

// podCheck checks a pod's spec against the limits of its consumer. The chart's admission policies enforce the same
// rules.
type podCheck struct {
	limits    tenantlimits.Limits
	namespace string
	spec      *corev1.PodSpec
	stored    map[string]any // the stored spec, including fields that this version does not know
}

// firstRefusal returns the first violation of the limits, or nil if the pod is allowed.
func (c *podCheck) firstRefusal() *Refusal {
	for _, check := range []func() *Refusal{
		c.checkScheduling, c.checkNodeSelection, c.checkTolerations, c.checkPodAffinity, c.checkClasses, c.checkGracePeriods, c.checkServiceAccount, c.checkVolumes, c.checkHostNamespaces, c.checkClaims,
	} {
		if refusal := check(); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (c *podCheck) checkScheduling() *Refusal {
	switch {
	case c.spec.NodeName != "":
		return &Refusal{podField + "nodeName", "the scheduler of this cluster chooses the node", "omit the field"}
	case c.spec.SchedulerName != "" && !c.limits.Matches(tenantlimits.SchedulerNames, c.spec.SchedulerName):
		return refuseField("schedulerName", tenantlimits.SchedulerNames, "scheduler %q is not allowed for consumers", c.spec.SchedulerName)
	}
	return nil
}

// checkNodeSelection checks how the pod selects nodes. It ignores topology keys, because they only spread pods.
func (c *podCheck) checkNodeSelection() *Refusal {
	const rule = "consumers must not select nodes by %q"
	for _, key := range slices.Sorted(maps.Keys(c.spec.NodeSelector)) {
		if !c.limits.Matches(tenantlimits.NodeSelectors, key) {
			return refuseField("nodeSelector", tenantlimits.NodeSelectors, rule, key)
		}
	}
	if c.spec.Affinity == nil || c.spec.Affinity.NodeAffinity == nil {
		return nil
	}
	var terms []corev1.NodeSelectorTerm
	if required := c.spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms = append(terms, required.NodeSelectorTerms...)
	}
	for _, preferred := range c.spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, preferred.Preference)
	}
	for _, term := range terms {
		for _, requirement := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			if !c.limits.Matches(tenantlimits.NodeSelectors, requirement.Key) {
				return refuseField("affinity.nodeAffinity", tenantlimits.NodeSelectors, rule, requirement.Key)
			}
		}
	}
	return nil
}

func (c *podCheck) checkTolerations() *Refusal {
	for _, toleration := range c.spec.Tolerations {
		switch {
		case c.limits.Matches(tenantlimits.Tolerations, toleration.Key):
		case toleration.Key == "":
			return refuseField("tolerations", tenantlimits.Tolerations, "consumers must not tolerate all taints")
		default:
			return refuseField("tolerations", tenantlimits.Tolerations, "consumers must not tolerate taint %q", toleration.Key)
		}
	}
	return nil
}

// checkPodAffinity refuses affinity to the pods of other tenants, so that the pod cannot get onto their nodes.
// Anti-affinity is refused, too, because it is symmetric: it would keep the pods of other tenants off the pod's node.
func (c *podCheck) checkPodAffinity() *Refusal {
	if c.spec.Affinity == nil || c.limits.Enabled(tenantlimits.CrossNamespaceAffinity) {
		return nil
	}
	check := func(field string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) *Refusal {
		terms := slices.Clone(required)
		for _, weighted := range preferred {
			terms = append(terms, weighted.PodAffinityTerm)
		}
		for _, term := range terms {
			if term.NamespaceSelector != nil {
				return refuseField(field+".namespaceSelector", tenantlimits.CrossNamespaceAffinity, "consumers must not select pods of other namespaces")
			}
			for _, name := range term.Namespaces {
				if name != c.namespace {
					return refuseField(field+".namespaces", tenantlimits.CrossNamespaceAffinity, "consumers must not select pods of namespace %q", name)
				}
			}
		}
		return nil
	}
	if near := c.spec.Affinity.PodAffinity; near != nil {
		if refusal := check("affinity.podAffinity", near.RequiredDuringSchedulingIgnoredDuringExecution, near.PreferredDuringSchedulingIgnoredDuringExecution); refusal != nil {
			return refusal
		}
	}
	if far := c.spec.Affinity.PodAntiAffinity; far != nil {
		return check("affinity.podAntiAffinity", far.RequiredDuringSchedulingIgnoredDuringExecution, far.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return nil
}

// checkClasses checks the classes of the pod. System priority classes are never allowed, because pods with such a class
// preempt components that the cluster needs.
func (c *podCheck) checkClasses() *Refusal {
	priority, runtime := c.spec.PriorityClassName, c.spec.RuntimeClassName
	switch {
	case c.spec.Priority != nil && priority == "":
		return &Refusal{podField + "priority", "a priority requires a priority class", "omit the field"}
	case priority != "" && (strings.HasPrefix(priority, "system-") || !c.limits.Matches(tenantlimits.PriorityClasses, priority)):
		return refuseField("priorityClassName", tenantlimits.PriorityClasses, "priority class %q is not allowed for consumers", priority)
	case runtime != nil && *runtime != "" && !c.limits.Matches(tenantlimits.RuntimeClasses, *runtime):
		return refuseField("runtimeClassName", tenantlimits.RuntimeClasses, "runtime class %q is not allowed for consumers", *runtime)
	}
	return nil
}

// checkGracePeriods checks the grace periods of the pod and of its probes. The grace period of a probe applies when the
// failed probe ends a container.
func (c *podCheck) checkGracePeriods() *Refusal {
	limit, limited := c.limits.Number(tenantlimits.MaxTerminationGracePeriod)
	if !limited {
		return nil
	}
	check := func(field string, seconds *int64) *Refusal {
		if seconds == nil || *seconds <= limit {
			return nil
		}
		return refuseField(field+"terminationGracePeriodSeconds", tenantlimits.MaxTerminationGracePeriod, "%d seconds are more than the maximum of %d", *seconds, limit)
	}
	if refusal := check("", c.spec.TerminationGracePeriodSeconds); refusal != nil {
		return refusal
	}
	for _, container := range slices.Concat(c.spec.InitContainers, c.spec.Containers) {
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
			if probe == nil {
				continue
			}
			if refusal := check("containers["+container.Name+"] probe ", probe.TerminationGracePeriodSeconds); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

func (c *podCheck) checkServiceAccount() *Refusal {
	for _, name := range []string{c.spec.ServiceAccountName, c.spec.DeprecatedServiceAccount} {
		if name != "" && !c.limits.Matches(tenantlimits.ServiceAccounts, name) {
			return refuseField("serviceAccountName", tenantlimits.ServiceAccounts, "service account %q is not allowed for consumers", name)
		}
	}
	if c.limits.Enabled(tenantlimits.ServiceAccountTokens) {
		return nil
	}
	const rule = "pods of consumers get no credentials for the API server of this cluster"
	if c.spec.AutomountServiceAccountToken != nil && *c.spec.AutomountServiceAccountToken {
		return refuseField("automountServiceAccountToken", tenantlimits.ServiceAccountTokens, rule)
	}
	for i := range c.spec.Volumes {
		if projected := c.spec.Volumes[i].Projected; projected != nil && slices.ContainsFunc(projected.Sources, isCredential) {
			return refuseField("volumes", tenantlimits.ServiceAccountTokens, rule)
		}
	}
	return nil
}

func isCredential(source corev1.VolumeProjection) bool {
	return source.ServiceAccountToken != nil || source.PodCertificate != nil
}

// checkVolumes checks the types of the volumes. It reads the stored spec, because newer versions of Kubernetes may add
// types.
func (c *podCheck) checkVolumes() *Refusal {
	volumes, _ := c.stored["volumes"].([]any)
	for _, item := range volumes {
		volume, _ := item.(map[string]any)
		for _, kind := range slices.Sorted(maps.Keys(volume)) {
			if kind != "name" && volume[kind] != nil && !c.limits.Matches(tenantlimits.VolumeTypes, kind) {
				return refuseField("volumes", tenantlimits.VolumeTypes, "volumes of type %q are not allowed for consumers", kind)
			}
		}
	}
	for i := range c.spec.Volumes {
		if ephemeral := c.spec.Volumes[i].Ephemeral; ephemeral != nil && ephemeral.VolumeClaimTemplate != nil {
			if refusal := checkMetadata(c.limits, ephemeral.VolumeClaimTemplate.Labels, ephemeral.VolumeClaimTemplate.Annotations); refusal != nil {
				refusal.Field = podField + "volumes[" + c.spec.Volumes[i].Name + "].ephemeral.volumeClaimTemplate." + refusal.Field
				return refusal
			}
		}
	}
	return nil
}

// checkHostNamespaces always refuses the network namespace of the node. It refuses the node's other namespaces unless
// the provider allows them.
func (c *podCheck) checkHostNamespaces() *Refusal {
	if c.spec.HostNetwork {
		return &Refusal{podField + "hostNetwork", "pods of consumers do not use the network of their node", "omit the field"}
	}
	granted := c.limits.List(tenantlimits.HostNamespaces)
	if c.spec.HostPID && !slices.Contains(granted, "hostPID") {
		return refuseHostNamespace("hostPID")
	}
	if c.spec.HostIPC && !slices.Contains(granted, "hostIPC") {
		return refuseHostNamespace("hostIPC")
	}
	return nil
}

// refuseHostNamespace returns the Refusal for a field that requests a namespace of the node.
func refuseHostNamespace(field string) *Refusal {
	return refuseField(field, tenantlimits.HostNamespaces, "pods of consumers do not use this namespace of their node")
}

// refuseField returns the Refusal for a field of the pod that violates a limit.
func refuseField(field string, setting *tenantlimits.Setting, rule string, args ...any) *Refusal {
	return &Refusal{podField + field, fmt.Sprintf(rule, args...), limitRemedy(setting)}
}
