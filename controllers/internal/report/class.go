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

// Class says who can fix an error.
type Class string

const (
	// Foreign: an object with another owner has the name.
	Foreign Class = "foreign"
	// Provider: a provider cannot be reached, or refuses.
	Provider Class = "provider"
	// Conflict: the object has changed meanwhile; the next attempt sees it.
	Conflict Class = "conflict"
	// Forbidden: a role, a quota or an admission webhook says no.
	Forbidden Class = "forbidden"
	// Policy: an admission policy denies what the controller must write.
	Policy Class = "policy"
	// Invalid: the API server does not take what the object asks for.
	Invalid Class = "invalid"
	// Missing: something that is needed does not exist, such as a CRD.
	Missing Class = "missing"
	// Unavailable: the API server does not answer, or not in time.
	Unavailable Class = "unavailable"
	// Other errors; the log has them.
	Other Class = "other"
)

// Classes returns all of them.
func Classes() []Class {
	return []Class{Foreign, Provider, Conflict, Forbidden, Policy, Invalid, Missing, Unavailable, Other}
}

// classified is an error that knows its class.
type classified struct {
	error
	class Class
}

// Unwrap lets the cause be recognised.
func (c classified) Unwrap() error { return c.error }

// Errorf returns an error with the class.
func Errorf(class Class, format string, args ...any) error {
	return classified{error: fmt.Errorf(format, args...), class: class}
}

// ClassOf returns the class of err: the one of Errorf, or else the class of the
// API server's response.
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

// classOfUnanswered is about errors that no API server has sent.
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

// Unwrap lets the cause be recognised.
func (f *Failure) Unwrap() error { return f.error }

// Failures returns inner, and calls failed with its errors, each a *Failure, unless that is nil. An error of Later is logged, and retried in its time.
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
