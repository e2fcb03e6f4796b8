// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/policy"
)

// class sorts errors by what is done about them; it is the metrics' label.
type class string

const (
	classUnreachable class = "unreachable" // retry when the provider is back; no Event: the node says it
	classConflict    class = "conflict"    // retry; nobody needs to know
	classRefused     class = "refused"     // the API server said no: Event, retry with backoff
	classForeign     class = "foreign"     // the name is taken: Event, look again later
	classPlugin      class = "plugin"      // trapped, out of fuel, failed, …: Event, retry on the next change only
	classInput       class = "input"       // an annotation or a field makes no sense: Event, retry on the next change
	classQuarantine  class = "quarantine"  // Event, left alone
)

// Reasons of the Events about plugins and quarantine.
const (
	PluginTrappedReason    = "PluginTrapped"
	PluginOutOfFuelReason  = "PluginOutOfFuel"
	PluginLimitReason      = "PluginLimitExceeded"
	PluginAccessReason     = "PluginBadAccess"
	PluginFailedReason     = "PluginFailed"
	PluginGuardReason      = "PluginForbiddenEdit"
	PluginWarningReason    = "PluginWarning"
	InvalidObjectReason    = "InvalidObject"
	QuarantinedReason      = "ReflectionQuarantined"
	pluginErrorRetryNotice = "the copy on the provider stays as it was"
)

// foreignError: the provider has an object of that name which is not ours.
type foreignError struct{ resource, namespace, name string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("%s %s/%s exists on the provider and was not made by this virtual node: it is left alone; rename one of the two", e.resource, e.namespace, e.name)
}

// outputError: the chain's result cannot be an object.
type outputError struct{ problem string }

func (e *outputError) Error() string { return e.problem }

// slowError: one call was not breaker.Answered in time, while the provider's API server answers others.
type slowError struct{ limit time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("no answer within %s, though the provider's API server answers: is there a slow admission webhook for this resource?", e.limit)
}

// retryLater asks for another look, without anything having gone wrong.
type retryLater struct{ after time.Duration }

func (e *retryLater) Error() string { return "again in " + e.after.String() }

// classify tells the class of an error and the reason of its Event.
func classify(err error) (class, string) {
	var (
		trap    *host.TrapError
		fuel    *host.OutOfFuelError
		limit   *host.LimitError
		access  *host.AccessError
		failed  *host.PluginFailedError
		guard   *host.GuardError
		foreign *foreignError
		invalid *policy.Error
		output  *outputError
		fight   *oscillation.QuarantineError
		claim   *claimError
		kept    *keptError
		lost    *lostError
		token   *tokenSecretError
	)
	switch {
	case errors.As(err, &claim):
		return claim.classified()
	case errors.As(err, &trap):
		return classPlugin, PluginTrappedReason
	case errors.As(err, &fuel):
		return classPlugin, PluginOutOfFuelReason
	case errors.As(err, &limit):
		return classPlugin, PluginLimitReason
	case errors.As(err, &access):
		return classPlugin, PluginAccessReason
	case errors.As(err, &failed):
		return classPlugin, PluginFailedReason
	case errors.As(err, &guard):
		return classPlugin, PluginGuardReason
	case errors.As(err, &foreign), errors.As(err, &lost):
		return classForeign, wire.FailedReflectionReason
	case errors.As(err, &invalid), errors.As(err, &output), errors.As(err, &kept):
		return classInput, InvalidObjectReason
	case errors.As(err, &token):
		return classInput, wire.FailedReflectionReason
	case errors.As(err, &fight):
		return classQuarantine, QuarantinedReason
	case unreachable(err):
		return classUnreachable, ""
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return classConflict, ""
	default:
		return classRefused, wire.FailedReflectionReason
	}
}

// unreachable tells errors of the way to the API server from its answers.
func unreachable(err error) bool {
	if errors.Is(err, breaker.ErrUnreachable) || breaker.Overdue(err) || breaker.Lost(err) {
		return true
	}
	// Credentials that are not accepted concern every object, so none of them needs to be told.
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsUnauthorized(err)
}

// mayHaveArrived reports whether a write is, or may be, done: it was accepted, or it was sent and there is no answer. An API
// server that fails after it has begun to write has not breaker.Answered either.
func mayHaveArrived(err error) bool {
	var slow *slowError
	var dial *net.OpError
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil || errors.As(err, &slow):
		return true
	case errors.As(err, &status):
		return status.Status().Code >= http.StatusInternalServerError
	case errors.As(err, &dial) && dial.Op == "dial":
		return false
	default:
		return breaker.Overdue(err) || breaker.Lost(err)
	}
}
