// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	helpers "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/tenancy"
)

// Options are the settings of a Ledger.
type Options struct {
	// Off enforces nothing.
	Off bool
	// Limits is how strictly pods must say what they use, for Quotas that do not say; empty is None.
	Limits offloading.LimitsEnforcement
	// Required refuses the pods of consumers that have no Quota at all, which are not limited otherwise.
	Required bool
	// OfTenants is Required for the consumers that have joined with a Tenant: deleting its ResourceSlice, and the Quota with it, frees none.
	OfTenants bool
}

// Ledger computes the usage of the users of consumers. It is safe for
// concurrent use.
type Ledger struct {
	reader  client.Reader
	options Options

	mu sync.Mutex
	// pending are pods that are being created, until the cache shows them.
	pending map[types.NamespacedName]pending
}

type pending struct {
	owner  owner
	demand corev1.ResourceList
}

// owner of a pod: a user of a consumer.
type owner struct{ origin, creator string }

func ownerOf(labels map[string]string) owner {
	return owner{labels[wire.OriginLabel], labels[wire.CreatorUserLabel]}
}

// Pod is a requested pod.
type Pod struct {
	Key    types.NamespacedName
	Labels map[string]string
	Spec   *corev1.PodSpec
	// Again: the pod was there and is lost, so it is none of those that a cordon keeps out.
	Again bool
}

// NewLedger returns a ledger that reads from a cache of Quotas, namespaces, and
// the pods of consumers with what they request.
func NewLedger(reader client.Reader, options Options) *Ledger {
	return &Ledger{reader: reader, options: options, pending: map[types.NamespacedName]pending{}}
}

// Take returns a Refusal if the pod exceeds a Quota, else nil: the pod counts from
// then on, until Release, or until it was in the cache and is gone.
func (l *Ledger) Take(ctx context.Context, pod Pod) (*tenancy.Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal, limited, err := l.judge(ctx, pod)
	if err == nil && refusal == nil && limited {
		l.pending[pod.Key] = pending{ownerOf(pod.Labels), demandOf(pod.Spec)}
	}
	return refusal, err
}

// Check is Take without counting the pod.
func (l *Ledger) Check(ctx context.Context, pod Pod) (*tenancy.Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal, _, err := l.judge(ctx, pod)
	return refusal, err
}

// Release drops a pod that was not created.
func (l *Ledger) Release(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, key)
}

// judge must be called with the lock. limited reports that a Quota is in force.
func (l *Ledger) judge(ctx context.Context, pod Pod) (refusal *tenancy.Refusal, limited bool, err error) {
	if l.options.Off {
		return nil, false, nil
	}
	who := ownerOf(pod.Labels)
	if who.creator == "" && pod.Again {
		return nil, false, nil // it is older than the Quotas: its creator was not recorded, and it must not be lost for that
	}
	quotas, err := l.quotas(ctx, who.origin)
	if err != nil {
		return nil, false, err
	}
	if len(quotas) == 0 {
		refusal, err := l.unlimited(ctx, who, pod)
		return refusal, false, err
	}
	i := slices.IndexFunc(quotas, func(q offloading.Quota) bool { return Escape(q.Spec.User) == who.creator })
	if i < 0 || who.creator == "" {
		return &tenancy.Refusal{Field: "metadata.labels[" + wire.CreatorUserLabel + "]",
			Rule:   fmt.Sprintf("user %q of consumer %s has no Quota, and others of this consumer have one", who.creator, who.origin),
			Remedy: fmt.Sprintf("ask an administrator of this cluster to create a Quota for it in namespace %s", quotas[0].Namespace)}, true, nil
	}
	q := &quotas[i]
	remedy := fmt.Sprintf("ask an administrator of this cluster to change Quota %s/%s", q.Namespace, q.Name)
	if q.Spec.Cordoned != nil && *q.Spec.Cordoned && !pod.Again {
		return &tenancy.Refusal{Field: "spec.pod", Rule: "the Quota is cordoned, so no new pods are admitted", Remedy: remedy}, true, nil
	}
	if refusal := l.declared(pod.Spec, q); refusal != nil {
		return refusal, true, nil
	}
	used, err := l.used(ctx, who, pod.Key)
	if err != nil {
		return nil, true, err
	}
	if over := exceeds(demandOf(pod.Spec), used, q.Spec.Resources); over != "" {
		return &tenancy.Refusal{Field: "spec.pod", Rule: fmt.Sprintf("it exceeds the Quota of user %s: %s", q.Spec.User, over),
			Remedy: "delete other pods, request less, or " + remedy}, true, nil
	}
	return nil, true, nil
}

// unlimited refuses a new pod of a consumer without any Quota, if it must have one.
func (l *Ledger) unlimited(ctx context.Context, who owner, pod Pod) (*tenancy.Refusal, error) {
	if pod.Again {
		return nil, nil //nolint:nilnil // it is not refused
	}
	required := l.options.Required
	if !required && l.options.OfTenants {
		var err error
		if required, err = l.isTenant(ctx, who.origin); err != nil {
			return nil, err
		}
	}
	if !required {
		return nil, nil //nolint:nilnil // as above
	}
	return &tenancy.Refusal{Field: "metadata.labels[" + wire.CreatorUserLabel + "]", Rule: fmt.Sprintf("consumer %s has no Quota", who.origin),
		Remedy: fmt.Sprintf("ask an administrator of this cluster to accept a ResourceSlice of the consumer, or create a Quota for user %q in its tenant namespace", who.creator)}, nil
}

// isTenant reports whether a consumer has joined with a Tenant.
func (l *Ledger) isTenant(ctx context.Context, consumer string) (bool, error) {
	tenants := &auth.TenantList{}
	if err := l.reader.List(ctx, tenants, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing Tenants, %w", err)
	}
	return slices.ContainsFunc(tenants.Items, func(t auth.Tenant) bool { return string(t.Spec.ClusterID) == consumer }), nil
}

// quotas of a consumer are those in its tenant namespaces.
func (l *Ledger) quotas(ctx context.Context, origin string) ([]offloading.Quota, error) {
	list := &offloading.QuotaList{}
	if err := l.reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Quotas, %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	namespaces := &corev1.NamespaceList{}
	if err := l.reader.List(ctx, namespaces, client.MatchingLabels{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: origin}); err != nil {
		return nil, fmt.Errorf("listing the tenant namespaces of %s, %w", origin, err)
	}
	return slices.DeleteFunc(list.Items, func(q offloading.Quota) bool {
		return !slices.ContainsFunc(namespaces.Items, func(n corev1.Namespace) bool { return n.Name == q.Namespace })
	}), nil
}

// declared refuses a pod that does not say what it uses, as far as the Quota asks for it.
func (l *Ledger) declared(spec *corev1.PodSpec, q *offloading.Quota) *tenancy.Refusal {
	strict := q.Spec.LimitsEnforcement
	if strict == "" {
		strict = l.options.Limits
	}
	if strict != offloading.SoftLimitsEnforcement && strict != offloading.HardLimitsEnforcement {
		return nil
	}
	refuse := func(list string, name, rule string) *tenancy.Refusal {
		return &tenancy.Refusal{Field: fmt.Sprintf("spec.pod.%s[%s].resources", list, name), Rule: rule,
			Remedy: fmt.Sprintf("set it in the pod (limitsEnforcement of Quota %s/%s is %s)", q.Namespace, q.Name, strict)}
	}
	for list, containers := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if _, ok := c.Resources.Requests[name]; !ok {
					return refuse(list, c.Name, fmt.Sprintf("a request of %s is mandatory", name))
				}
			}
			for name, request := range c.Resources.Requests {
				if limit := c.Resources.Limits[name]; strict == offloading.HardLimitsEnforcement && limit.Cmp(request) != 0 {
					return refuse(list, c.Name, fmt.Sprintf("the limit of %s must equal its request (%s)", name, request.String()))
				}
			}
		}
	}
	return nil
}

// used sums up what the pods of a user request, without the one that is asked about.
func (l *Ledger) used(ctx context.Context, who owner, without types.NamespacedName) (corev1.ResourceList, error) {
	pods := &corev1.PodList{}
	selector := labels.SelectorFromSet(labels.Set{wire.OriginLabel: who.origin, wire.CreatorUserLabel: who.creator})
	if err := l.reader.List(ctx, pods, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of %s, %w", who.creator, err)
	}
	used := corev1.ResourceList{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		key := client.ObjectKeyFromObject(pod)
		delete(l.pending, key) // from here on the cache has it
		if key != without && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			add(used, demandOf(&pod.Spec))
		}
	}
	for key, p := range l.pending {
		if key != without && p.owner == who {
			add(used, p.demand)
		}
	}
	return used, nil
}

// demandOf is what Kubernetes counts of a pod: its containers together, or its
// largest init container if that is more, sidecars with either, its overhead;
// and one pod.
func demandOf(spec *corev1.PodSpec) corev1.ResourceList {
	demand := helpers.PodRequests(&corev1.Pod{Spec: *spec}, helpers.PodResourcesOptions{})
	demand[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return demand
}

func add(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// exceeds describes the part of the demand that exceeds the Quota, "" for none. A resource
// that the Quota does not name is not to be had, but for pods.
func exceeds(demand, used, hard corev1.ResourceList) string {
	var over []string
	for name, wants := range demand {
		limit, named := hard[name]
		switch {
		case !named && (name == corev1.ResourcePods || wants.IsZero()):
		case !named:
			over = append(over, fmt.Sprintf("%s is not among its resources", name))
		default:
			total := used[name]
			total.Add(wants)
			if total.Cmp(limit) > 0 {
				in := used[name]
				over = append(over, fmt.Sprintf("%s: requested %s, used %s, limited %s", name, wants.String(), in.String(), limit.String()))
			}
		}
	}
	slices.Sort(over)
	return strings.Join(over, "; ")
}

// Escape makes a user name the value of a label, as the compatible system does.
// One that is too long for a label, which that system cannot take, is cut and
// distinguished from others by a hash.
func Escape(user string) string {
	escaped := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '-'
	}, user), "-_.")
	if len(escaped) <= validation.LabelValueMaxLength {
		return escaped
	}
	sum := fmt.Sprintf("-%08x", crc32.ChecksumIEEE([]byte(user)))
	return escaped[:validation.LabelValueMaxLength-len(sum)] + sum
}
