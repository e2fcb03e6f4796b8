// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

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
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/policy"
)

// Class groups errors by their handling. It is a label of the metrics.
type Class string

const (
	Unreachable Class = "unreachable" // retry when the provider is back; no Event: the node reports it
	Throttled   Class = "throttled"   // an API server limits requests: retry after its delay; Event only if it lasts
	Conflict    Class = "conflict"    // retry silently
	Refused     Class = "refused"     // the API server rejected the write: Event, retry with backoff
	Denied      Class = "policy"      // an admission policy denies it: Event, retry with backoff
	Foreign     Class = "foreign"     // the name is taken: Event, retried later
	Plugin      Class = "plugin"      // trapped, out of fuel, failed, invalid result, …: Event, retry after seconds, then minutes
	Input       Class = "input"       // an annotation or a field is invalid: Event, retry on the next change
	Quarantine  Class = "quarantine"  // Event, left alone
)

// Answered reports whether errors of the class are responses of an API server that users can correct.
func (c Class) Answered() bool { return c == Refused || c == Denied }

// Reasons of Events about plugins and quarantine.
const (
	PluginTrappedReason    = "PluginTrapped"
	PluginOutOfFuelReason  = "PluginOutOfFuel"
	PluginLimitReason      = "PluginLimitExceeded"
	PluginAccessReason     = "PluginBadAccess"
	PluginFailedReason     = "PluginFailed"
	PluginGuardReason      = "PluginForbiddenEdit"
	PluginWarningReason    = "PluginWarning"
	InvalidObjectReason    = "InvalidObject"
	QuarantinedReason      = wire.ReflectionQuarantinedReason
	pluginErrorRetryNotice = "the remote object was left unchanged"
	statusUnchangedNotice  = "the status was left unchanged"
)

// Classified is an error with its own class and reason.
type Classified interface {
	error
	// Classify returns the class of the error and the reason of its Event.
	Classify() (class Class, reason string)
}

// Remedied is an error with its own remedy.
type Remedied interface {
	error
	Remedied()
}

// ForeignError is returned if the provider has an object with the name of the copy that is not the copy of this object.
type ForeignError struct {
	kind, namespace, name string
	ours                  bool // the foreign object represents another object of this cluster
}

func (e *ForeignError) Error() string {
	if e.ours {
		return fmt.Sprintf("%s %s/%s already exists on the provider for another object of this cluster, such as a pod whose tokens it holds; rename or delete one of them here", e.kind, e.namespace, e.name)
	}
	return fmt.Sprintf("%s %s/%s already exists on the provider and is not managed by Refract; rename or delete one of them", e.kind, e.namespace, e.name)
}

// ReservedNameError is returned for an object whose name is reserved for the copy of another object. It implements
// Classified and Remedied.
type ReservedNameError struct{ kind, name, owner string }

func (e *ReservedNameError) Error() string {
	return fmt.Sprintf("%s %s is not reflected: on the provider, its name is that of the copy of %s %s, to which offloaded pods refer; recreate it with another name",
		e.kind, e.name, e.kind, e.owner)
}

// Classify implements Classified.
func (e *ReservedNameError) Classify() (Class, string) { return Input, wire.FailedReflectionReason }

// Remedied implements Remedied.
func (e *ReservedNameError) Remedied() {}

// OutputError is returned if the result of the chain is not a valid object.
type OutputError struct{ Problem string }

func (e *OutputError) Error() string { return e.Problem }

// InputError is returned for an object that is not valid before any plugin has mutated it.
type InputError struct{ Problem string }

func (e *InputError) Error() string { return e.Problem }

// slowError is returned if a call got no response before its deadline although the provider's API server responds to
// others.
type slowError struct{ limit time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("no response within %s although the provider's API server is available: check for a slow admission webhook for this resource", e.limit)
}

// RetryAfter requests another reconciliation and is not an error.
type RetryAfter struct{ After time.Duration }

func (e *RetryAfter) Error() string { return "again in " + e.After.String() }

// Classify returns the class of an error and the reason of its Event.
func Classify(err error) (Class, string) {
	var (
		trap    *host.TrapError
		fuel    *host.OutOfFuelError
		limit   *host.LimitError
		access  *host.AccessError
		failed  *host.PluginFailedError
		guard   *host.GuardError
		foreign *ForeignError
		invalid *policy.Error
		output  *OutputError
		input   *InputError
		fight   *oscillation.QuarantineError
		own     Classified
	)
	denied := admission.DenyingPolicy(err) != ""
	if apierrors.IsTooManyRequests(err) { // takes precedence over all other classes
		return Throttled, ThrottledReason
	}
	switch {
	case errors.As(err, &own):
		class, reason := own.Classify()
		if denied {
			class = Denied
		}
		return class, reason
	case denied:
		return Denied, admission.DeniedReason
	case errors.As(err, &trap):
		return Plugin, PluginTrappedReason
	case errors.As(err, &fuel):
		return Plugin, PluginOutOfFuelReason
	case errors.As(err, &limit):
		return Plugin, PluginLimitReason
	case errors.As(err, &access):
		return Plugin, PluginAccessReason
	case errors.As(err, &failed):
		return Plugin, PluginFailedReason
	case errors.As(err, &guard):
		return Plugin, PluginGuardReason
	case errors.As(err, &foreign):
		return Foreign, wire.FailedReflectionReason
	case errors.As(err, &output):
		return Plugin, InvalidObjectReason
	case errors.As(err, &invalid), errors.As(err, &input):
		return Input, InvalidObjectReason
	case errors.As(err, &fight):
		return Quarantine, QuarantinedReason
	case unreachable(err):
		return Unreachable, ""
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Conflict, ""
	default:
		return Refused, wire.FailedReflectionReason
	}
}

// unreachable reports whether an error occurred on the way to the API server and is not one of its responses.
func unreachable(err error) bool {
	if errors.Is(err, breaker.ErrUnreachable) || breaker.Overdue(err) || breaker.Lost(err) {
		return true
	}
	// Rejected credentials concern every object, so they are not reported on each object.
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsUnauthorized(err)
}

// MayHaveArrived reports whether a write is, or may be, done: it was accepted, or it was sent and there is no response.
// A 5xx after the write has started is not a response either.
func MayHaveArrived(err error) bool {
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
