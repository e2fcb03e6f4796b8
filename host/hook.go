// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import "github.com/refract-project/refract/host/internal/guest"

// Hook is the hook of a plugin for one direction of reflection.
type Hook = guest.Hook

const (
	// Outgoing is the hook for a consumer's object that is reflected to the provider.
	Outgoing = guest.Outgoing
	// Incoming is the hook for a provider's object whose status is reflected back.
	Incoming = guest.Incoming
)
