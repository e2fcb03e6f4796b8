// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package apifailure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestEachFailureHasOneAnswer checks that each failure is exactly one of lost, overdue, undecided or refused.
func TestEachFailureHasOneAnswer(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	called := func(err error) error { return &url.Error{Op: "Put", URL: "https://127.0.0.1:1", Err: err} }
	for _, c := range []struct {
		err                                error
		lost, overdue, unavailable, rushed bool // rushed is the expected result of IsOverloaded
		undecided                          bool
	}{
		{err: called(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), lost: true},
		{err: called(io.EOF), lost: true},
		{err: fmt.Errorf("reading the body, %w", io.ErrUnexpectedEOF), lost: true},
		{err: called(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), lost: true},
		{err: &net.DNSError{Err: "no such host"}, lost: true},
		{err: called(context.DeadlineExceeded), overdue: true},
		{err: context.DeadlineExceeded, overdue: true},
		{err: apierrors.NewServiceUnavailable("x"), unavailable: true, undecided: true},
		{err: apierrors.NewTimeoutError("x", 1), unavailable: true, undecided: true},
		{err: apierrors.NewServerTimeout(resource, "get", 1), unavailable: true, undecided: true},
		{err: apierrors.NewTooManyRequests("x", 1), rushed: true, undecided: true},
		{err: apierrors.NewInternalError(errors.New("disk")), undecided: true},
		{err: apierrors.NewForbidden(resource, "x", errors.New("no"))},
		{err: apierrors.NewConflict(resource, "x", errors.New("changed"))},
		{err: errors.New("not of an API server")},
		{err: nil},
	} {
		got := []bool{IsLost(c.err), IsOverdue(c.err), IsUnavailable(c.err), IsOverloaded(c.err), IsUndecided(c.err)}
		if want := []bool{c.lost, c.overdue, c.unavailable, c.rushed, c.undecided}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v: lost, overdue, unavailable, overloaded, undecided are %v, want %v", c.err, got, want)
		}
	}
}
