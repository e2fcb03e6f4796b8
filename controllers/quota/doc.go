// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota enforces, on the provider, the Quotas of the users of each consumer.
//
// The usage of a user is the sum of the requests of its pods in the cache of the manager. There is no counter, so
// nothing is counted twice, a pod counts until it is deleted, and a restart or another replica computes the same
// value. Only pods that were created a moment ago and are not in the cache yet are remembered.
//
// The controller that creates the pods checks last, one pod after another, and its decision is final. The webhook
// checks earlier, so that a consumer gets the result at once; it also records the creator of a ShadowPod, which
// clients cannot set themselves.
//
// A consumer without any Quota in its tenant namespace is not limited, unless Options.Required is set, or OfTenants
// and it has joined with a Tenant. With one, each of its users needs one.
package quota
