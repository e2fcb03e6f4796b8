// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/tenancy"
	"github.com/refract-project/refract/internal/podend"
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

// Ledger computes the usage of the users of consumers, and reserves what is about to be used. It is safe for
// concurrent use.
type Ledger struct {
	reader  client.Reader
	options Options
	now     func() time.Time

	mu sync.Mutex
	// reserved is what pods are getting that the cache does not show yet.
	reserved map[types.NamespacedName]*reservation
	// announced is what the webhook of this process has admitted, and the controller has not decided on yet.
	announced map[types.NamespacedName]announcement
}

// reservation is what one pod counts in addition to what the cache shows of it.
type reservation struct {
	owner owner
	// open is the demand of a creation or change that is under way, or of which the outcome is unknown.
	open corev1.ResourceList
	// settled is the demand of the pod as it was written last, with this resourceVersion; nil once the cache shows it.
	settled corev1.ResourceList
	version string
}

func (r *reservation) demand() corev1.ResourceList {
	demand := corev1.ResourceList{}
	raise(demand, r.open)
	raise(demand, r.settled)
	return demand
}

// announcedFor is how long an admitted change counts in the webhook. Longer would keep refusing after a change that the API server has not
// stored in the end; shorter would not span the time until the controller has acted.
const announcedFor = 10 * time.Second

type announcement struct {
	owner   owner
	demand  corev1.ResourceList
	expires time.Time
}

// owner of a pod: a user of a consumer. The creator of a pod that is older than the Quotas may be unknown, "".
type owner struct{ origin, creator string }

func ownerOf(labels map[string]string) owner {
	return owner{labels[wire.OriginLabel], labels[wire.CreatorUserLabel]}
}

// shares reports whether the pods of both owners count in one Quota. A pod without a creator counts in all Quotas of its consumer.
func (o owner) shares(other owner) bool {
	return o.origin == other.origin && (o.creator == other.creator || o.creator == "" || other.creator == "")
}

// Request is a pod that is to be created, or to be changed.
type Request struct {
	Key    types.NamespacedName
	Labels map[string]string
	// Spec is the spec that the pod is to get.
	Spec *corev1.PodSpec
	// Present is the pod that is to be changed, nil if it is to be created.
	Present *corev1.Pod
	// Replaces reports that a change of Present is more than one of its size: it becomes another pod.
	Replaces bool
	// Returns reports that a pod was lost, and is to be created with the spec that it had.
	Returns bool
}

// NewLedger returns a ledger that reads from a cache of Quotas, namespaces, and
// the pods of consumers with what they request.
func NewLedger(reader client.Reader, options Options) *Ledger {
	return &Ledger{
		reader: reader, options: options, now: time.Now,
		reserved: map[types.NamespacedName]*reservation{}, announced: map[types.NamespacedName]announcement{},
	}
}

// IsLimited reports whether the consumer of a pod with these labels has any Quota.
func (l *Ledger) IsLimited(ctx context.Context, labels map[string]string) (bool, error) {
	if l.options.Off {
		return false, nil
	}
	quotas, err := QuotasOf(ctx, l.reader, labels[wire.OriginLabel])
	return len(quotas) > 0, err
}

// Take returns a Refusal if the request exceeds a Quota. Otherwise the pod counts with the larger of what it has and what it gets, until
// Settle or Release. If the outcome of the write is unknown, call neither: the next Take for this pod decides.
func (l *Ledger) Take(ctx context.Context, request Request) (*Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal, limited, err := l.judge(ctx, request, false)
	if err != nil || refusal != nil || !limited {
		return refusal, err
	}
	open := demandOf(&corev1.Pod{Spec: *request.Spec})
	if request.Present != nil {
		raise(open, demandOf(request.Present))
	}
	entry := l.reserved[request.Key]
	if entry == nil {
		entry = &reservation{}
		l.reserved[request.Key] = entry
	}
	entry.owner, entry.open = ownerOf(request.Labels), open
	return nil, nil //nolint:nilnil // it is not refused
}

// Settle ends the reservation of a pod that was written, once the cache shows this version of it.
func (l *Ledger) Settle(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry := l.reserved[client.ObjectKeyFromObject(pod)]; entry != nil {
		entry.open, entry.settled, entry.version = nil, demandOf(pod), pod.ResourceVersion
	}
}

// Release ends the reservation of a write that was not carried out.
func (l *Ledger) Release(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.reserved[key]
	if entry == nil {
		return
	}
	if entry.open = nil; entry.settled == nil {
		delete(l.reserved, key)
	}
}

// Forget drops what is reserved for a pod whose ShadowPod is gone: it cannot be created or changed any more.
func (l *Ledger) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, key)
}

// Announce returns a Refusal if the request exceeds a Quota, also together with the requests that were announced a moment ago. It reserves
// nothing: the API server may refuse the request afterwards, and the controller decides.
func (l *Ledger) Announce(ctx context.Context, request Request, dryRun bool) (*Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.announced {
		if !a.expires.After(l.now()) {
			delete(l.announced, key)
		}
	}
	refusal, limited, err := l.judge(ctx, request, true)
	if err == nil && refusal == nil && limited && !dryRun {
		l.announced[request.Key] = announcement{ownerOf(request.Labels), demandOf(&corev1.Pod{Spec: *request.Spec}), l.now().Add(announcedFor)}
	}
	return refusal, err
}

// usedBeside returns what the pods that share a Quota with who use, without the one of that key. The lock must be held.
func (l *Ledger) usedBeside(ctx context.Context, who owner, key types.NamespacedName, announced bool) (corev1.ResourceList, error) {
	pods := &corev1.PodList{}
	selector := labels.SelectorFromSet(labels.Set{wire.OriginLabel: who.origin})
	if err := l.reader.List(ctx, pods, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of consumer %s, %w", who.origin, err)
	}
	usage := map[types.NamespacedName]corev1.ResourceList{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		key := client.ObjectKeyFromObject(pod)
		l.observe(key, pod)
		if who.shares(ownerOf(pod.Labels)) && !podend.Finished(pod.Status.Phase) {
			usage[key] = demandOf(pod)
		}
	}
	count := func(key types.NamespacedName, demand corev1.ResourceList) {
		if usage[key] == nil {
			usage[key] = corev1.ResourceList{}
		}
		raise(usage[key], demand)
	}
	for key, entry := range l.reserved {
		if who.shares(entry.owner) {
			count(key, entry.demand())
		}
	}
	for key, a := range l.announced {
		if announced && who.shares(a.owner) {
			count(key, a.demand)
		}
	}
	delete(usage, key)
	used := corev1.ResourceList{}
	for _, demand := range usage {
		add(used, demand)
	}
	return used, nil
}

// observe ends the reservation of a pod that the cache shows as it was written, or later.
func (l *Ledger) observe(key types.NamespacedName, pod *corev1.Pod) {
	entry := l.reserved[key]
	if entry == nil || entry.settled == nil {
		return
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, entry.version)
	if err != nil || order < 0 {
		return // kept in doubt
	}
	if entry.settled = nil; entry.open == nil {
		delete(l.reserved, key)
	}
}

// Refusal says why a request exceeds a Quota.
type Refusal struct {
	tenancy.Refusal
	// Discreet is the same without numbers, for a client that was not identified; nil if there are none in it.
	Discreet *tenancy.Refusal
}
