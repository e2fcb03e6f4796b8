// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

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
	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/internal/reflectionpolicy"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
)

// Class is the class of an error. It determines how the error is handled, and is the value of a label of the metrics.
type Class string

const (
	// Unreachable means that the provider does not respond. The object is retried when the provider is reachable again.
	// There is no Event, because the node reports the problem.
	Unreachable Class = "unreachable"
	// Throttled means that an API server limits requests. The object is retried after the delay that the API server
	// requests. There is an Event only if this lasts.
	Throttled Class = "throttled"
	Conflict  Class = "conflict" // retry without an Event
	Refused   Class = "refused"  // the API server rejected the write: Event, retry with backoff
	Denied    Class = "policy"   // an admission policy denies the write: Event, retry with backoff
	Foreign   Class = "foreign"  // another object has the name of the copy: Event, retry later
	// Plugin means that a plugin trapped, ran out of fuel, failed or returned an invalid result. There is an Event, and
	// the object is retried after seconds, and later after minutes.
	Plugin     Class = "plugin"
	Input      Class = "input"      // an annotation or a field is invalid: Event, retry on the next change
	Quarantine Class = "quarantine" // another client reverts the copy: Event, no writes for some time
)

// Answered reports whether errors of this class are responses of an API server that users can do something about.
func (c Class) Answered() bool { return c == Refused || c == Denied }

// Reasons of Events about plugins and about quarantine.
const (
	PluginTrappedReason     = "PluginTrapped"
	PluginOutOfFuelReason   = "PluginOutOfFuel"
	PluginLimitReason       = "PluginLimitExceeded"
	PluginAccessReason      = "PluginBadAccess"
	PluginFailedReason      = "PluginFailed"
	PluginGuardReason       = "PluginForbiddenEdit"
	PluginHeldReason        = "PluginHeld"
	PluginRemovalHeldReason = "PluginRemovalHeld"
	PluginWarningReason     = "PluginWarning"
	InvalidObjectReason     = "InvalidObject"
	QuarantinedReason       = wire.ReflectionQuarantinedReason
)

// Classified is an error that knows its class and reason.
type Classified interface {
	error
	// Classify returns the class of the error and the reason of its Event.
	Classify() (class Class, reason string)
}

// Remedied is an error whose message already contains the remedy.
type Remedied interface {
	error
	Remedied()
}

// ForeignError means that an object on the provider has the name of the copy, but is not the copy of this object.
type ForeignError struct {
	Kind, Namespace, Name string
	Ours                  bool // the existing object is the copy of another object of this cluster
}

func (e *ForeignError) Error() string {
	if e.Ours {
		return fmt.Sprintf("%s %s/%s already exists on the provider for another object of this cluster, such as a pod whose tokens it holds; rename or delete one of them here", e.Kind, e.Namespace, e.Name)
	}
	return fmt.Sprintf("%s %s/%s already exists on the provider and is not managed by Refract; rename or delete one of them", e.Kind, e.Namespace, e.Name)
}

// ReservedNameError means that the name of an object is reserved for the copy of another object. It implements
// Classified and Remedied.
type ReservedNameError struct{ Kind, Name, Owner string }

func (e *ReservedNameError) Error() string {
	return fmt.Sprintf("%s %s is not reflected: on the provider, its name is that of the copy of %s %s, to which offloaded pods refer; recreate it with another name",
		e.Kind, e.Name, e.Kind, e.Owner)
}

// Classify implements Classified.
func (e *ReservedNameError) Classify() (Class, string) { return Input, wire.FailedReflectionReason }

// Remedied implements Remedied.
func (e *ReservedNameError) Remedied() {}

// OutputError means that the result of the plugin chain is not a valid object.
type OutputError struct{ Problem string }

func (e *OutputError) Error() string { return e.Problem }

// InputError means that an object was already invalid before plugins mutated it.
type InputError struct{ Problem string }

func (e *InputError) Error() string { return e.Problem }

// SlowError means that a call got no response before its deadline, although the provider's API server responds to
// probes.
type SlowError struct{ Limit time.Duration }

func (e *SlowError) Error() string {
	return fmt.Sprintf("no response within %s although the provider's API server is available: check for a slow admission webhook for this resource", e.Limit)
}

// RetryAfter is an error that requests another reconciliation after a delay. It does not count as a failure.
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
		held    *host.HeldError
		unknown *host.SelectorError
		removal *probation.HeldError
		foreign *ForeignError
		invalid *reflectionpolicy.Error
		output  *OutputError
		input   *InputError
		fight   *oscillation.QuarantineError
		own     Classified
	)
	denied := admission.DenyingPolicy(err) != ""
	if apifailure.IsOverloaded(err) { // takes precedence over all other classes
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
	case errors.As(err, &held), errors.As(err, &unknown):
		return Plugin, PluginHeldReason
	case errors.As(err, &removal):
		return Plugin, PluginRemovalHeldReason
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

// unreachable reports whether err means that a request did not reach the API server or got no response.
func unreachable(err error) bool {
	if errors.Is(err, breaker.ErrUnreachable) || apifailure.IsOverdue(err) || breaker.Lost(err) {
		return true
	}
	// Rejected credentials are treated like an unreachable API server. They affect all objects, so they must not be
	// reported on each of them.
	return apifailure.IsUnavailable(err) || apierrors.IsUnauthorized(err)
}

// MayHaveArrived reports whether a write may have been executed: it was accepted, or it was sent and got no response. A
// status 5xx counts as no response, because the API server may already have executed the write.
func MayHaveArrived(err error) bool {
	var slow *SlowError
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
		return apifailure.IsOverdue(err) || breaker.Lost(err)
	}
}

// Lasts reports whether errors of this class persist until a user changes something.
func (c Class) Lasts() bool {
	return c != Unreachable && c != Throttled && c != Conflict
}
