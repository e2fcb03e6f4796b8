// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota contains a webhook on the provider that checks ShadowPods against the Quotas of their users.
//
// The Quotas are checked twice. The webhook checks first, so that a consumer gets the result immediately. It is served
// by every replica, and may be unavailable. The shadowpod controller, which creates and changes the pods, checks again,
// one pod after another. Its decision is final, because the controller runs only on the leader. Both use package
// ledger. The webhook also records the creator of a ShadowPod, because clients must not set it themselves.
package quota
