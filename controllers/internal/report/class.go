// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/apifailure"
)

// Class is the class of an error. It determines who can fix the error.
type Class string

const (
	// Foreign means that an object has the same name but another owner.
	Foreign Class = "foreign"
	// Provider means that a provider is unreachable or refused a request.
	Provider Class = "provider"
	// Conflict means that the object was changed in the meantime. The next attempt reads the new version.
	Conflict Class = "conflict"
	// Forbidden means that a role, a quota or an admission webhook denied the request.
	Forbidden Class = "forbidden"
	// Policy means that an admission policy denied a write of the controller.
	Policy Class = "policy"
	// Invalid means that the API server rejected the requested values as invalid.
	Invalid Class = "invalid"
	// Missing means that a required object does not exist, such as a CRD.
	Missing Class = "missing"
	// Throttled means that the API server limits the rate of requests (HTTP 429).
	Throttled Class = "throttled"
	// Unavailable means that the API server did not respond in time.
	Unavailable Class = "unavailable"
	// Other means any other error. The log contains details.
	Other Class = "other"
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{Foreign, Provider, Conflict, Forbidden, Policy, Invalid, Missing, Throttled, Unavailable, Other}
}

// classified is an error with a class.
type classified struct {
	error
	class Class
}

// Unwrap returns the cause.
func (c classified) Unwrap() error { return c.error }

// Errorf returns an error with the class.
func Errorf(class Class, format string, args ...any) error {
	return classified{error: fmt.Errorf(format, args...), class: class}
}

// ClassOf returns the class of err. This is the class that was passed to Errorf, or else the class that matches the
// response of the API server.
func ClassOf(err error) Class {
	var known classified
	if errors.As(err, &known) {
		return known.class
	}
	if admission.DenyingPolicy(err) != "" {
		return Policy
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists:
		return Conflict
	case metav1.StatusReasonForbidden, metav1.StatusReasonUnauthorized:
		return Forbidden
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge:
		return Invalid
	case metav1.StatusReasonNotFound, metav1.StatusReasonGone, metav1.StatusReasonExpired:
		return Missing
	}
	if apifailure.IsOverloaded(err) {
		return Throttled
	}
	if apifailure.IsUndecided(err) {
		return Unavailable
	}
	return classOfUnanswered(err)
}

// classOfUnanswered returns the class of an error that is not a response from an API server.
func classOfUnanswered(err error) Class {
	var unanswered *url.Error
	switch {
	case meta.IsNoMatchError(err):
		return Missing
	case errors.As(err, &unanswered), errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	}
	return Other
}

// Failure is a reconciliation error.
type Failure struct {
	error
	// Request identifies the object that was reconciled.
	Request reconcile.Request
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.error }

// Failures returns a reconciler that calls failed for each error of inner, wrapped in a *Failure. failed may be nil. If
// the error was created by Later, it is logged, and the request is retried after that delay. If the API server
// throttles requests, the request is retried after the delay that the API server suggests.
func Failures(inner reconcile.Reconciler, failed func(error)) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, request)
		if err == nil {
			return result, nil
		}
		if failed != nil {
			failed(&Failure{err, request})
		}
		if later, ok := postponed(result, err); ok {
			log.FromContext(ctx).Error(err, "Cannot reconcile, retrying later", "after", later.RequeueAfter.Round(time.Second))
			return later, nil
		}
		return result, err
	})
}
