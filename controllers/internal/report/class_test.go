// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestErrorsHaveTheClassOfTheirCause(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cause := errors.New("cause")
	forbidden := apierrors.NewForbidden(pods, "a", cause)
	for name, tc := range map[string]struct {
		err  error
		want Class
	}{
		"another owner's object":          {Errorf(Foreign, "it is theirs"), Foreign},
		"what a provider refuses":         {Errorf(Provider, "creating there, %w", forbidden), Provider},
		"an outdated version":             {apierrors.NewConflict(pods, "a", cause), Conflict},
		"an object that was not seen yet": {apierrors.NewAlreadyExists(pods, "a"), Conflict},
		"a refusal":                       {forbidden, Forbidden},
		"a policy that forbids":           {apierrors.NewForbidden(pods, "a", errors.New("ValidatingAdmissionPolicy 'refract-pods' with binding 'refract-pods' denied request: no")), Policy},
		"a policy that finds it invalid":  {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no"}}, Policy},
		"wrong credentials":               {apierrors.NewUnauthorized("who?"), Forbidden},
		"an invalid object, for good":     {reconcile.TerminalError(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil)), Invalid},
		"an absent object":                {apierrors.NewNotFound(pods, "a"), Missing},
		"an absent CRD":                   {&meta.NoKindMatchError{}, Missing},
		"a busy API server":               {apierrors.NewTooManyRequests("later", 1), Throttled},
		"an API server that is down":      {&url.Error{Op: "Get", Err: cause}, Unavailable},
		"a deadline":                      {context.DeadlineExceeded, Unavailable},
		"anything else":                   {cause, Other},
		"several, of which one says why":  {errors.Join(cause, fmt.Errorf("creating, %w", forbidden)), Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClassOf(fmt.Errorf("doing it, %w", tc.err)); got != tc.want {
				t.Errorf("class = %s, want %s", got, tc.want)
			}
			if !slices.Contains(Classes(), tc.want) {
				t.Errorf("class %s is not listed", tc.want)
			}
		})
	}
}

func TestClassifiedErrorsKeepTheirCause(t *testing.T) {
	cause := errors.New("cause")
	if err := Errorf(Provider, "doing it, %w", cause); !errors.Is(err, cause) || err.Error() != "doing it, cause" {
		t.Errorf("error = %v", err)
	}
}

func TestFailuresAreToldAndPassedOn(t *testing.T) {
	cause := errors.New("cause")
	inner := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request.Name == "bad" {
			return reconcile.Result{}, cause
		}
		return reconcile.Result{RequeueAfter: 1}, nil
	})
	var told []error
	observed := Failures(inner, func(err error) { told = append(told, err) })
	request := reconcile.Request{}
	if result, err := observed.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != 1 || len(told) > 0 {
		t.Errorf("result = %v, error = %v, told %v", result, err, told)
	}
	request.Name = "bad"
	if _, err := observed.Reconcile(t.Context(), request); err != cause || len(told) != 1 || !errors.Is(told[0], cause) || told[0].(*Failure).Request != request {
		t.Errorf("error = %v, told %v", err, told)
	}
	if _, err := Failures(inner, nil).Reconcile(t.Context(), request); err != cause {
		t.Errorf("error = %v", err)
	}
}
