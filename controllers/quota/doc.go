// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota is the webhook that checks, on the provider, ShadowPods against the Quotas of the users of each consumer.
//
// The shadowpod controller, which creates and changes the pods, checks last, one pod after another. Its decision is
// final, because it runs in one process, the leader. The webhook checks earlier, so that a consumer gets the result
// immediately. Each replica serves it, but it may be unavailable. It also records the creator of a ShadowPod, which
// clients cannot set themselves. Both use the package ledger.
package quota
