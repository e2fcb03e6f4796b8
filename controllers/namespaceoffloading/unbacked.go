// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/remotedata"
)

// unbackedEntry identifies an entry of a NamespaceMap that has no NamespaceOffloading.
type unbackedEntry struct {
	mapping   types.UID
	namespace string
}

// unbackedEntries records when each entry without a NamespaceOffloading was first seen. A restart resets the times, so
// an entry may remain for longer, but never for a shorter time. The zero value is empty.
type unbackedEntries struct {
	mu    sync.Mutex
	since map[unbackedEntry]time.Time
}

// firstSeen returns the time at which the entry was first seen.
func (u *unbackedEntries) firstSeen(entry unbackedEntry, now time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[unbackedEntry]time.Time{}
	}
	if _, ok := u.since[entry]; !ok {
		u.since[entry] = now
	}
	return u.since[entry]
}

// dropNamespace removes the entries of a namespace.
func (u *unbackedEntries) dropNamespace(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for entry := range u.since {
		if entry.namespace == namespace {
			delete(u.since, entry)
		}
	}
}

// dropUnbacked removes a namespace without a NamespaceOffloading from all NamespaceMaps. There may be such entries if
// the NamespaceOffloading was deleted while the controller was not running, or if another client has added them. The
// provider deletes the remote namespace, so a grace period leaves time to restore the NamespaceOffloading. A remote
// namespace with the data of volumes is kept. The returned delay is the time until the next call is needed, or 0.
func (c *Controller) dropUnbacked(ctx context.Context, namespace string) (wait time.Duration, err error) {
	mappings, namespaces := &offloading.NamespaceMapList{}, &corev1.NamespaceList{}
	for _, list := range []client.ObjectList{mappings, namespaces} {
		if err := c.client.List(ctx, list); err != nil {
			return 0, fmt.Errorf("listing NamespaceMaps and namespaces, %w", err)
		}
	}
	tenants := tenantNamespaces(namespaces.Items)
	data := sync.OnceValues(func() (remotedata.Volumes, error) { return remotedata.List(ctx, c.uncached) })
	var problems []error
	for i := range mappings.Items {
		mapping := &mappings.Items[i]
		remoteNamespace, mapped := mapping.Spec.DesiredMapping[namespace]
		if !mapped || !tenants.hasMapping(mapping) || mapping.DeletionTimestamp != nil {
			continue
		}
		now := c.options.Clock.Now()
		end := c.unbacked.firstSeen(unbackedEntry{mapping.UID, namespace}, now).Add(c.options.WithdrawalGrace)
		if left := end.Sub(now); left > 0 {
			c.report.Warn(mapping, unbackedReason, offloadAction, fmt.Sprintf(
				"namespace %.63q is mapped to %.63q, but has no NamespaceOffloading: the mapping is removed at %s, and the provider deletes the remote namespace with everything in it. To keep it, offload the namespace to %s again",
				namespace, remoteNamespace, end.UTC().Format(time.RFC3339), mapping.Name))
			wait = max(wait, left)
			continue
		}
		volumes, err := data()
		if err != nil {
			return 0, err
		}
		if held := volumes.On(mapping.Name).In(namespace).Holding(remotedata.IsConfirmed(mapping)); len(held) > 0 {
			c.report.Warn(mapping, remotedata.HeldReason, offloadAction, fmt.Sprintf(
				"namespace %.63q is mapped to %.63q, but has no NamespaceOffloading. The mapping stays, because the remote namespace has the data of the volumes %s. To use it, offload the namespace again; to delete it, %s",
				namespace, remoteNamespace, held, held.Remedy(remotedata.Annotate("NamespaceMap"))))
			wait = max(wait, remotedata.RecheckInterval(now.Sub(end)))
			continue
		}
		problems = append(problems, c.dropEntry(ctx, mapping, namespace, remoteNamespace))
	}
	if wait == 0 && errors.Join(problems...) == nil {
		c.unbacked.dropNamespace(namespace)
	}
	return wait, errors.Join(problems...)
}

// dropEntry removes the entry, unless the API server has a NamespaceOffloading that is missing in the cache.
func (c *Controller) dropEntry(ctx context.Context, mapping *offloading.NamespaceMap, namespace, remoteNamespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}
	switch err := c.uncached.Get(ctx, key, &offloading.NamespaceOffloading{}); {
	case err == nil:
		return fmt.Errorf("NamespaceOffloading %s exists, waiting for the cache", key)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("getting NamespaceOffloading %s, %w", key, err)
	}
	if err := c.patchMap(ctx, &provider{id: mapping.Name, mapping: mapping}, namespace, nil, ""); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.report.Tell(mapping, nil, droppedReason, offloadAction, fmt.Sprintf(
		"removed the mapping of namespace %.63q to %.63q: the namespace has no NamespaceOffloading", namespace, remoteNamespace))
	return nil
}
