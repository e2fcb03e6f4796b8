// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

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

	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/policy"
)

func TestClassify(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	resource := schema.GroupResource{Resource: "services"}
	for _, tc := range []struct {
		err   error
		class class
		shuts bool
	}{
		{refused, classUnreachable, true},
		{&url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: io.EOF}, classUnreachable, true},
		{&url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}, classUnreachable, true},
		{fmt.Errorf("reading the body, %w", io.ErrUnexpectedEOF), classUnreachable, true},
		{&net.DNSError{Err: "no such host"}, classUnreachable, true},
		{context.DeadlineExceeded, classUnreachable, false},
		{&url.Error{Op: "Put", URL: "https://127.0.0.1:1", Err: context.DeadlineExceeded}, classUnreachable, false},
		{&slowError{time.Second}, classRefused, false},
		{breaker.ErrUnreachable, classUnreachable, false},
		{apierrors.NewServiceUnavailable("x"), classUnreachable, false},
		{apierrors.NewTooManyRequestsError("x"), classUnreachable, false},
		{apierrors.NewUnauthorized("x"), classUnreachable, false},
		{apierrors.NewConflict(resource, "x", errors.New("y")), classConflict, false},
		{apierrors.NewForbidden(resource, "x", errors.New("y")), classRefused, false},
		{apierrors.NewBadRequest("x"), classRefused, false},
		{&foreignError{"services", "shop", "web"}, classForeign, false},
		{&policy.Error{Problem: "x"}, classInput, false},
		{&oscillation.QuarantineError{Flips: 4}, classQuarantine, false},
	} {
		if got, _ := classify(tc.err); got != tc.class || breaker.Lost(tc.err) != tc.shuts {
			t.Errorf("%v: class %s, opens the breaker %t; want %s, %t", tc.err, got, breaker.Lost(tc.err), tc.class, tc.shuts)
		}
	}
}
