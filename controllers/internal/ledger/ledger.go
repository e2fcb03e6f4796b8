// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/podend"
)

// Options are the settings of a Ledger.
type Options struct {
	// Off disables the enforcement of Quotas.
	Off bool
	// Limits is the LimitsEnforcement of Quotas that do not specify one. An empty value means None.
	Limits offloading.LimitsEnforcement
	// Required makes the ledger refuse the pods of consumers without any Quota. Otherwise such consumers are not
	// limited.
	Required bool
	// OfTenants has the same effect as Required, but only for consumers that have joined with a Tenant. Without it,
	// such a consumer could get rid of its limits by deleting its ResourceSlice, because this deletes the Quota.
	OfTenants bool
}

// Ledger computes the usage of consumers' users, and reserves the resources of pending writes. It is safe for
// concurrent use.
type Ledger struct {
	reader  client.Reader
	options Options
	now     func() time.Time

	mu sync.Mutex
	// reserved contains the pending demand of pods that are not up to date in the cache.
	reserved map[types.NamespacedName]*reservation
	// announced contains requests that the webhook of this process has admitted, and about which the controller has not
	// decided yet.
	announced map[types.NamespacedName]announcement
}

// reservation is the demand of one pod that may not be in the cache yet. The larger of the two demands counts.
type reservation struct {
	owner owner
	// open is the demand of a write that is pending or has an unknown outcome.
	open corev1.ResourceList
	// settled is the demand of the last version of the pod that was written. It is nil when the cache contains this
	// version.
	settled corev1.ResourceList
	version string
}

func (r *reservation) totalDemand() corev1.ResourceList {
	demand := corev1.ResourceList{}
	raiseResources(demand, r.open)
	raiseResources(demand, r.settled)
	return demand
}

// announcementPeriod is how long an admitted change counts in the webhook. With a longer period, other requests are
// refused for longer if the API server did not store the change. A shorter period ends before the controller has acted.
const announcementPeriod = 10 * time.Second

type announcement struct {
	owner   owner
	demand  corev1.ResourceList
	expires time.Time
}

// owner identifies the user of a consumer to whom a pod belongs. The creator is empty if the pod was created before
// there was a Quota.
type owner struct{ origin, creator string }

func ownerOf(labels map[string]string) owner {
	return owner{labels[wire.OriginLabel], labels[wire.CreatorUserLabel]}
}

// sharesQuota reports whether the pods of both owners count towards the same Quota. A pod without a creator counts
// towards all Quotas of its consumer.
func (o owner) sharesQuota(other owner) bool {
	return o.origin == other.origin && (o.creator == other.creator || o.creator == "" || other.creator == "")
}

// Request is a request to create or change a pod.
type Request struct {
	Key    types.NamespacedName
	Labels map[string]string
	// Spec is the requested spec of the pod.
	Spec *corev1.PodSpec
	// Present is the pod to change. It is nil if the pod is created.
	Present *corev1.Pod
	// Replaces is true if Present is changed by more than a resize, so that it becomes another pod.
	Replaces bool
	// Returns is true if a lost pod is recreated with its former spec.
	Returns bool
}

// New returns a ledger. reader is a cache of the Quotas, the namespaces and the pods of consumers. The pods must
// contain their resource requests.
func New(reader client.Reader, options Options) *Ledger {
	return &Ledger{
		reader: reader, options: options, now: time.Now,
		reserved: map[types.NamespacedName]*reservation{}, announced: map[types.NamespacedName]announcement{},
	}
}

// NeedsTenants reports whether the ledger reads Tenants.
func (l *Ledger) NeedsTenants() bool { return l.options.OfTenants }

// LimitedResources returns the names of the resources in the Quotas that apply to a pod with these labels. They are the
// names that demandOf uses. limited reports whether the consumer has a Quota at all.
func (l *Ledger) LimitedResources(ctx context.Context, labels map[string]string) (names []corev1.ResourceName, limited bool, err error) {
	if l.options.Off {
		return nil, false, nil
	}
	quotas, err := QuotasOf(ctx, l.reader, labels[wire.OriginLabel])
	for i := range quotas {
		names = slices.AppendSeq(names, maps.Keys(limitsOf(quotas[i].Spec.Resources)))
	}
	return names, len(quotas) > 0, err
}

// ReserveResources returns a Refusal if the request exceeds a Quota. Otherwise it reserves the larger of the current
// and the new size of the pod, until SettleReservation or ReleaseReservation is called. If the outcome of the write is
// unknown, neither must be called. The next call of ReserveResources for this pod then replaces the reservation.
func (l *Ledger) ReserveResources(ctx context.Context, request Request) (*Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal, limited, err := l.judgeRequest(ctx, request, false)
	if err != nil || refusal != nil || !limited {
		return refusal, err
	}
	open := demandOf(&corev1.Pod{Spec: *request.Spec})
	if request.Present != nil {
		raiseResources(open, demandOf(request.Present))
	}
	entry := l.reserved[request.Key]
	if entry == nil {
		entry = &reservation{}
		l.reserved[request.Key] = entry
	}
	entry.owner, entry.open = ownerOf(request.Labels), open
	return nil, nil //nolint:nilnil // not refused
}

// SettleReservation records that a pod was written. Its reservation ends when the cache contains the written version.
func (l *Ledger) SettleReservation(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry := l.reserved[client.ObjectKeyFromObject(pod)]; entry != nil {
		entry.open, entry.settled, entry.version = nil, demandOf(pod), pod.ResourceVersion
	}
}

// ReleaseReservation ends the reservation of a write that was not executed.
func (l *Ledger) ReleaseReservation(key types.NamespacedName) {
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

// ObservePod ends the reservation of a pod if the cached pod has the written version or a later one. It reports whether
// the pod still has a reservation. pod is nil if the cache does not contain the pod.
func (l *Ledger) ObservePod(key types.NamespacedName, pod *corev1.Pod) (isReserved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pod != nil {
		l.observePod(key, pod)
	}
	return l.reserved[key] != nil
}

// DropReservation drops the reservation of a pod that does not exist and will not be created.
func (l *Ledger) DropReservation(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, key)
}

// AnnounceRequest returns a Refusal if the request, together with recently announced requests, exceeds a Quota. It does
// not reserve resources, because the API server may still refuse the request, and the controller makes the final
// decision.
func (l *Ledger) AnnounceRequest(ctx context.Context, request Request, dryRun bool) (*Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.announced {
		if !a.expires.After(l.now()) {
			delete(l.announced, key)
		}
	}
	refusal, limited, err := l.judgeRequest(ctx, request, true)
	if err == nil && refusal == nil && limited && !dryRun {
		l.announced[request.Key] = announcement{ownerOf(request.Labels), demandOf(&corev1.Pod{Spec: *request.Spec}), l.now().Add(announcementPeriod)}
	}
	return refusal, err
}

// usedBeside returns the usage of the pods that share a Quota with the given owner, without the pod with the given key.
// If announced is true, it includes the announced requests. The lock must be held.
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
		l.observePod(key, pod)
		if who.sharesQuota(ownerOf(pod.Labels)) && !podend.Finished(pod.Status.Phase) {
			usage[key] = demandOf(pod)
		}
	}
	count := func(key types.NamespacedName, demand corev1.ResourceList) {
		if usage[key] == nil {
			usage[key] = corev1.ResourceList{}
		}
		raiseResources(usage[key], demand)
	}
	for key, entry := range l.reserved {
		if who.sharesQuota(entry.owner) {
			count(key, entry.totalDemand())
		}
	}
	for key, a := range l.announced {
		if announced && who.sharesQuota(a.owner) {
			count(key, a.demand)
		}
	}
	delete(usage, key)
	used := corev1.ResourceList{}
	for _, demand := range usage {
		addResources(used, demand)
	}
	return used, nil
}

// observePod ends the reservation of a pod if the cache contains the written version or a later one.
func (l *Ledger) observePod(key types.NamespacedName, pod *corev1.Pod) {
	entry := l.reserved[key]
	if entry == nil || entry.settled == nil {
		return
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, entry.version)
	if err != nil || order < 0 {
		// If the order of the versions is unknown, the reservation is kept.
		return
	}
	if entry.settled = nil; entry.open == nil {
		delete(l.reserved, key)
	}
}

// Refusal is the reason why a request exceeds a Quota.
type Refusal struct {
	tenancy.Refusal
	// Discreet is the reason without numbers, for clients that are not identified. It is nil if the reason does not
	// contain numbers.
	Discreet *tenancy.Refusal
}
