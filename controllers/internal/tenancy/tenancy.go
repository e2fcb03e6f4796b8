// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// EnforceLabel is the label of a namespace that contains the Pod Security level of its pods. Namespaces of consumers
// get the label when they are created. A level that an administrator has set on an existing namespace is respected.
// (Kubernetes: Pod Security admission.)
const EnforceLabel = psapi.EnforceLevelLabel

// Options are the provider's settings for its tenants. The zero value contains the defaults.
type Options struct {
	// PodSecurity is the Pod Security level of all consumers. An empty level means baseline. Levels overrides the level
	// for some consumers, by cluster ID.
	PodSecurity string
	Levels      map[string]string
	// ReservedPrefixes are additional prefixes that the names of a consumer's namespaces must not have.
	ReservedPrefixes []string
	// NamePatterns contains regular expressions (RE2), by cluster ID. They must match the complete names of the
	// consumer's namespaces.
	NamePatterns map[string]string
	// Limits apply to all consumers. The annotations of a namespace override them for its consumer.
	Limits tenantlimits.Limits
}

// Validate returns an error if the options are invalid. The error contains the remedy.
func (o *Options) Validate() error {
	if err := validLevel(o.PodSecurity); err != nil {
		return err
	}
	for id, level := range o.Levels {
		if err := validLevel(level); err != nil {
			return fmt.Errorf("consumer %s: %w", id, err)
		}
	}
	for id, pattern := range o.NamePatterns {
		if _, err := regexp.Compile(anchorPattern(pattern)); err != nil {
			return fmt.Errorf("consumer %s: the name pattern %q is not a valid regular expression: %w", id, pattern, err)
		}
	}
	return nil
}

func validLevel(level string) error {
	if level == "" {
		return nil
	}
	if _, err := psapi.ParseLevel(level); err != nil {
		return fmt.Errorf("level %q of Pod Security is unknown: use privileged, baseline or restricted", level)
	}
	return nil
}

// Level returns the Pod Security level of a consumer's namespaces.
func (o *Options) Level(clusterID string) string {
	if level := o.Levels[clusterID]; level != "" {
		return level
	}
	if o.PodSecurity != "" {
		return o.PodSecurity
	}
	return string(psapi.LevelBaseline)
}

// Refusal is the reason why a pod is not allowed.
type Refusal struct {
	Field string // path of the field in the ShadowPod
	Rule  string
	// Remedy names the setting that would allow the pod, and who can change it.
	Remedy string
}

// maxRuleBytes limits the length of Rule, which may quote text of any length from the consumer. It leaves room for the
// field and the remedy in an Event.
const maxRuleBytes = 512

// Error implements the interface error.
func (r *Refusal) Error() string {
	rule := r.Rule
	if len(rule) > maxRuleBytes {
		rule = strings.ToValidUTF8(rule[:maxRuleBytes], "") + "…"
	}
	return fmt.Sprintf("%s is not allowed here: %s; %s", r.Field, rule, r.Remedy)
}

// Policy checks pods. It is safe for concurrent use.
type Policy struct {
	options   Options
	evaluator policy.Evaluator
}

// NewPolicy returns the policy for the options, which must be valid.
func NewPolicy(o Options) (*Policy, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("preparing the Pod Security checks, %w", err)
	}
	return &Policy{options: o, evaluator: evaluator}, nil
}

const podField = "spec.pod."

// CheckNamespace returns a Refusal unless the namespace was created for the consumer with the ID origin.
func CheckNamespace(namespace *corev1.Namespace, origin string) *Refusal {
	owner := namespace.Labels[wire.RemoteClusterIDLabel]
	if namespace.Annotations[wire.ManagedByNamespaceMapAnnotation] == "" || owner == "" {
		return &Refusal{"metadata.namespace", fmt.Sprintf("namespace %s was not created for a consumer", namespace.Name),
			"create objects in namespaces that the consumer's NamespaceOffloading offloads to this cluster"}
	}
	if owner != origin {
		return &Refusal{"metadata.labels[" + wire.OriginLabel + "]", fmt.Sprintf("namespace %s belongs to consumer %s, not to %s", namespace.Name, owner, origin),
			"a consumer creates objects with its own cluster id"}
	}
	return nil
}

// CheckPod returns a Refusal if the pod is not allowed, and nil otherwise. spec is the stored spec of the ShadowPod.
func (p *Policy) CheckPod(namespace *corev1.Namespace, labels, annotations map[string]string, spec map[string]any) *Refusal {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod.Spec); err != nil {
		return &Refusal{"spec.pod", "it is not the spec of a pod: " + err.Error(), "correct it on the consumer"}
	}
	limits, err := p.options.Limits.With(namespace.Annotations)
	if err != nil {
		return invalidLimits(namespace, err)
	}
	if refusal := checkMetadata(limits, labels, annotations); refusal != nil {
		return refusal
	}
	check := podCheck{limits: limits, namespace: namespace.Name, spec: &pod.Spec, stored: spec}
	if refusal := check.firstRefusal(); refusal != nil {
		return refusal
	}
	pod.Labels, pod.Annotations = labels, annotations
	return p.checkSecurity(namespace, pod)
}

func invalidLimits(namespace *corev1.Namespace, err error) *Refusal {
	return &Refusal{"metadata.namespace", fmt.Sprintf("the limits of namespace %s are not valid: %s", namespace.Name, err), "an administrator of this cluster corrects them on the tenant namespace"}
}

// limitRemedy describes where an administrator of the provider can change the limit.
func limitRemedy(setting *tenantlimits.Setting) string {
	return fmt.Sprintf("an administrator of this cluster can allow it: for all consumers with tenants.%s in the values of the Refract chart, for this one with refractctl peer --tenant-limit %s=…, which annotates its tenant namespace",
		setting.Value(), setting.Name)
}

// checkSecurity checks the pod against the Pod Security level in the label of its namespace. If there is no valid
// label, the consumer's level applies.
func (p *Policy) checkSecurity(namespace *corev1.Namespace, pod *corev1.Pod) *Refusal {
	text := namespace.Labels[EnforceLabel]
	if validLevel(text) != nil || text == "" {
		text = p.options.Level(namespace.Labels[wire.RemoteClusterIDLabel])
	}
	level, err := psapi.ParseLevel(text)
	if err != nil {
		level = psapi.LevelRestricted // the most restrictive level, if even the configured level is invalid
	}
	result := policy.AggregateCheckResults(p.evaluator.EvaluatePod(psapi.LevelVersion{Level: level, Version: psapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return nil
	}
	return &Refusal{"spec.pod", fmt.Sprintf("it violates Pod Security level %q of namespace %s: %s", level, namespace.Name, result.ForbiddenDetail()),
		"an administrator of this cluster can set the level of the consumer, or label " + EnforceLabel + " of the namespace"}
}

// Names and prefixes that the namespaces of consumers must not have. "liqo-" is not reserved, because a consumer's
// namespace liqo-demo is offloaded to liqo-demo-rome, as documented.
var (
	reservedNames    = []string{"default", "liqo", "liqo-system", "refract", "refract-system"}
	reservedPrefixes = []string{"kube-", "openshift-", "liqo-tenant-"}
)

func anchorPattern(pattern string) string { return "^(?:" + pattern + ")$" }

// CheckName returns an error if a new namespace of a consumer must not have the name. limits are the limits of the
// consumer. installation is the namespace of the controllers.
func (o *Options) CheckName(limits tenantlimits.Limits, clusterID, name, installation string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("it is not a valid name: %s", problems[0])
	}
	if slices.Contains(reservedNames, name) || name == installation {
		return fmt.Errorf("the name is reserved")
	}
	for _, prefix := range slices.Concat(reservedPrefixes, o.ReservedPrefixes) {
		if strings.HasPrefix(name, prefix) {
			return fmt.Errorf("names that begin with %q are reserved", prefix)
		}
	}
	if !strings.HasSuffix(name, "-"+clusterID) {
		switch {
		case limits.Matches(tenantlimits.ReservedNamespaces, name):
			return fmt.Errorf("the name is one of those that add-ons of this cluster use: end it with -%s, or %s", clusterID, limitRemedy(tenantlimits.ReservedNamespaces))
		case !limits.Matches(tenantlimits.NamespaceNames, name):
			return fmt.Errorf("it does not end with -%s: %s", clusterID, limitRemedy(tenantlimits.NamespaceNames))
		}
	}
	if pattern, ok := o.NamePatterns[clusterID]; ok {
		if matches, err := regexp.MatchString(anchorPattern(pattern), name); err != nil || !matches {
			return fmt.Errorf("the names of this consumer must match %s", pattern)
		}
	}
	return nil
}
