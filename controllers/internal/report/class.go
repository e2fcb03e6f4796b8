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
)

// Class is the class of an error, which determines the party that can fix it.
type Class string

const (
	// Foreign means that an object with another owner has the name.
	Foreign Class = "foreign"
	// Provider means that a provider is unreachable or refuses a request.
	Provider Class = "provider"
	// Conflict means that the object has changed meanwhile; the next attempt reads the change.
	Conflict Class = "conflict"
	// Forbidden means that a role, a quota or an admission webhook denies the request.
	Forbidden Class = "forbidden"
	// Policy means that an admission policy denies a write of the controller.
	Policy Class = "policy"
	// Invalid means that the API server rejects the requested values as invalid.
	Invalid Class = "invalid"
	// Missing means that a required object does not exist, such as a CRD.
	Missing Class = "missing"
	// Unavailable means that the API server does not respond in time.
	Unavailable Class = "unavailable"
	// Other means any other error, which is in the log.
	Other Class = "other"
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{Foreign, Provider, Conflict, Forbidden, Policy, Invalid, Missing, Unavailable, Other}
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

// ClassOf returns the class of err: the class that Errorf was called with, or else the class of the API server's
// response.
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
	case metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError:
		return Unavailable
	}
	return classOfUnanswered(err)
}

// classOfUnanswered returns the class of an error that no API server has sent.
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

// Failure is the error of a reconciliation.
type Failure struct {
	error
	// Request names the object that was reconciled.
	Request reconcile.Request
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.error }

// Failures returns a reconciler that calls failed, unless it is nil, with the errors of inner, each as a *Failure. An
// error of Later is logged, and retried after its delay.
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
