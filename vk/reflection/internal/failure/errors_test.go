// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/internal/reflectionpolicy"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
)

func TestClassify(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	resource := schema.GroupResource{Resource: "services"}
	for _, tc := range []struct {
		err   error
		class Class
		shuts bool
	}{
		{refused, Unreachable, true},
		{&url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: io.EOF}, Unreachable, true},
		{&url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}, Unreachable, true},
		{fmt.Errorf("reading the body, %w", io.ErrUnexpectedEOF), Unreachable, true},
		{&net.DNSError{Err: "no such host"}, Unreachable, true},
		{context.DeadlineExceeded, Unreachable, false},
		{&url.Error{Op: "Put", URL: "https://127.0.0.1:1", Err: context.DeadlineExceeded}, Unreachable, false},
		{&SlowError{time.Second}, Refused, false},
		{breaker.ErrUnreachable, Unreachable, false},
		{apierrors.NewServiceUnavailable("x"), Unreachable, false},
		{apierrors.NewTooManyRequestsError("x"), Throttled, false},
		{apierrors.NewUnauthorized("x"), Unreachable, false},
		{apierrors.NewConflict(resource, "x", errors.New("y")), Conflict, false},
		{apierrors.NewForbidden(resource, "x", errors.New("y")), Refused, false},
		{apierrors.NewForbidden(resource, "x", errors.New("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: y")), Denied, false},
		{apierrors.NewBadRequest("x"), Refused, false},
		{&ForeignError{Kind: "Service", Namespace: "shop", Name: "web"}, Foreign, false},
		{&reflectionpolicy.Error{Problem: "x"}, Input, false},
		{&InputError{"x"}, Input, false},
		{fmt.Errorf("mutating, %w", &OutputError{"x"}), Plugin, false},
		{&oscillation.QuarantineError{Writes: 4}, Quarantine, false},
		{&host.HeldError{Kind: "Service", Plugin: "p", Reason: "x"}, Plugin, false},
		{&host.SelectorError{Plugin: "p", Err: context.DeadlineExceeded}, Plugin, false},
	} {
		if got, _ := Classify(tc.err); got != tc.class || breaker.Lost(tc.err) != tc.shuts {
			t.Errorf("%v: class %s, opens the breaker %t; want %s, %t", tc.err, got, breaker.Lost(tc.err), tc.class, tc.shuts)
		}
	}
}
