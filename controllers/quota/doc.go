// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota enforces, on the provider, the Quotas of the users of each consumer.
//
// The usage of a user is the sum of the requests of its pods in the cache of the manager. There is no counter, so
// nothing is counted twice, a pod counts until it is deleted, and a restart or another replica computes the same
// value. Only what was created or changed a moment ago is reserved, until the cache shows it: the larger of what a pod has and what it gets.
//
// The controller that creates and changes the pods checks last, one pod after another, and its decision is final: it is one process, the leader.
// The webhook, which each replica serves and which may be away, checks earlier, so that a consumer gets the result at once; it also records the
// creator of a ShadowPod, which clients cannot set themselves. A pod without a creator counts in all Quotas of its consumer.
//
// A change is judged by what it demands. With a cordoned Quota, or without one where one is required, a pod may shrink, and come back with the
// spec that it had when it is lost. It may neither grow nor get other images: that is another pod.
//
// A consumer without any Quota in its tenant namespace is not limited, unless Options.Required is set, or OfTenants
// and it has joined with a Tenant. With one, each of its users needs one.
package quota
