// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// unreflectedError means that the token of a service account is not available because Secrets are not reflected.
type unreflectedError struct{ account string }

func (e *unreflectedError) Error() string {
	return fmt.Sprintf("the pod waits for the token of service account %s: Secrets are not reflected; run the virtual kubelet with --secret-reflection-workers of 1 or more, %s",
		e.account, access.WithoutRemedy)
}

// Classify implements failure.Classified.
func (e *unreflectedError) Classify() (failure.Class, string) {
	return failure.Input, wire.FailedReflectionReason
}
