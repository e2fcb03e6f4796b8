// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger decides, on the provider, whether the pods of a consumer's users fit into their Quotas.
//
// The usage of a user is the sum of the requests of its pods in the cache of the manager. There is no counter, so
// nothing is counted twice, a pod counts until it is deleted, and the result is the same after a restart or in
// another replica. Only the resources of a recent creation or change are reserved until the cache shows it. A change
// counts with the larger of the current and the new size. A pod without a creator counts in all Quotas of its
// consumer.
//
// A change is judged by its additional demand. With a cordoned Quota, or without a required Quota, a pod may shrink,
// and a lost pod may be recreated with its former spec. The pod may not grow, and may not get other images, because
// it would then be another pod.
//
// A consumer without any Quota in its tenant namespace is not limited, unless Options.Required is set, or
// Options.OfTenants is set and the consumer has joined with a Tenant. If the tenant namespace has any Quota, each
// user of the consumer needs one.
package ledger
