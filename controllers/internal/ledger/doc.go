// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger decides on a provider whether the pods of a consumer's users fit into their Quotas.
//
// The usage of a user is the sum of the requests of its pods in the cache of the manager. There is no counter that
// could become wrong. A pod counts until it has finished or is deleted, and the result is the same after a restart or
// in another replica. The resources of a recent creation or change are reserved until the cache contains it. A change
// counts with the larger of the current and the new size. A pod without a creator counts towards all Quotas of its
// consumer.
//
// Only the additional demand of a change must fit into the Quota. If a Quota is cordoned, or a required Quota is
// missing, a pod may shrink, and a lost pod may be recreated with its former spec. It may not grow or get other images,
// because it would then be another pod.
//
// If there is no Quota in the tenant namespace of a consumer, the consumer is not limited, unless Options.Required is
// set, or Options.OfTenants is set and the consumer has joined with a Tenant. If there is a Quota, each user of the
// consumer needs one.
package ledger
