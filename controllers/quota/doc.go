// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota holds, on the provider, the users of each consumer to their
// Quotas.
//
// What a user has in use is what the pods request that are there, in the cache
// of the manager: nothing is counted up and down, so nothing is counted twice,
// a pod counts until it is gone, and a restart or another replica comes to the
// same figure. The one thing remembered are pods that were created a moment ago
// and are not in the cache yet.
//
// The controller that makes the pods asks last, one pod after another, and what
// it holds. The webhook asks earlier, so that a consumer gets the answer at once;
// it also notes who created a ShadowPod, which nobody can write themselves.
//
// A consumer without any Quota in its tenant namespace is not limited, unless
// Options.Required is set, or OfTenants and it has joined with a Tenant. With one, each of its users needs one.
package quota
