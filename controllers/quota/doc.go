// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota enforces, on the provider, the Quotas of the users of each consumer.
//
// The usage of a user is the sum of the requests of its pods in the cache of the manager. There is no counter, so
// nothing is counted twice, a pod counts until it is deleted, and a restart or another replica computes the same value.
// Only a recent creation or change is reserved until the cache shows it. It counts with the larger of the current and
// the new size.
//
// The controller that creates and changes the pods checks last, one pod after another. Its decision is final, because it
// runs in one process, the leader. The webhook, which each replica serves and which may be unavailable, checks earlier,
// so that a consumer gets the result immediately. It also records the creator of a ShadowPod, which clients cannot set
// themselves. A pod without a creator counts in all Quotas of its consumer.
//
// A change is judged by its additional demand. With a cordoned Quota, or without a required Quota, a pod may shrink, and
// a lost pod may be recreated with its former spec. It may neither grow nor get other images, because then it is another
// pod.
//
// A consumer without any Quota in its tenant namespace is not limited, unless Options.Required is set, or OfTenants
// and it has joined with a Tenant. With one, each of its users needs one.
package quota
