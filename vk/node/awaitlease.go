// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// maxLeasePollInterval is the maximum time that a standby replica sleeps between two checks of the lease. The elector
// of client-go sleeps for up to 2.2 retry periods, so that there would be no leader for this time after a lease was
// released or has expired.
const maxLeasePollInterval = time.Second

// awaitFree waits until the lease is free. A lease is free if it does not exist, was released, belongs to this replica,
// or was not renewed for its duration according to the clock of this process. If the holder is known to be gone or the
// lease has expired, awaitFree clears the holder. It returns false when ctx has ended.
func (e Election) awaitFree(ctx context.Context) bool {
	logger := log.FromContext(ctx).WithValues("lease", e.Namespace+"/"+e.Name, "identity", e.Identity)
	leases := e.Client.CoordinationV1().Leases(e.Namespace)
	var seen renewal
	leader, trouble := "", ""
	for ctx.Err() == nil {
		lease, err := leases.Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true
		}
		if err == nil {
			holder := ptr.Deref(lease.Spec.HolderIdentity, "")
			gone := seen.leaseExpired(lease, e.Duration, time.Now()) || e.Gone != nil && e.Gone(holder)
			switch {
			case holder == "" || holder == e.Identity:
				return true
			case gone:
				lease.Spec.HolderIdentity = ptr.To("")
				// The update contains the resourceVersion that was read, so it fails if the lease has changed since
				// then.
				if _, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
					logger.Info("Took the lease from a replica that is gone", "holder", holder)
					return true
				}
			case holder != leader:
				leader = holder
				logger.Info("Another replica leads, standing by", "leader", leader)
				if e.StandBy != nil {
					e.StandBy(leader)
				}
			}
		}
		if err != nil && !apierrors.IsConflict(err) && err.Error() != trouble && ctx.Err() == nil {
			trouble = err.Error()
			logger.Error(err, "The lease cannot be read or taken, retrying")
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(e.RetryPeriod, maxLeasePollInterval)):
		}
	}
	return false
}

// renewal records when this process has last seen a change of the lease.
type renewal struct {
	version string
	since   time.Time
}

// leaseExpired reports whether the lease was not renewed for its duration. If the holder has set a longer duration than
// the given one, the longer one applies.
func (v *renewal) leaseExpired(lease *coordinationv1.Lease, duration time.Duration, now time.Time) bool {
	if version := string(lease.UID) + "/" + lease.ResourceVersion; version != v.version {
		v.version, v.since = version, now
		return false
	}
	return now.Sub(v.since) >= max(duration, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second)
}
