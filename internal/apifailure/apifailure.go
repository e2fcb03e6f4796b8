// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package apifailure tells apart the reasons why a call to an API server failed. Either there was no response (IsLost,
// IsOverdue), or the response is not a decision about the request (IsUndecided, which includes IsOverloaded and
// IsUnavailable), or the request was refused (any other response). The caller decides how to handle the failure.
package apifailure

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsAnswered reports whether the API server responded.
func IsAnswered(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status)
}

// IsLost reports whether there was no response at all: the connection is refused, reset or lost, there is no route, or
// the name or the certificate is wrong. A busy API server does respond. A response that is too late is reported by
// IsOverdue.
func IsLost(err error) bool {
	if IsAnswered(err) || IsOverdue(err) {
		return false
	}
	var network net.Error
	var transport *url.Error
	return errors.As(err, &network) || errors.As(err, &transport) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// IsOverdue reports whether there was no response before the deadline of the call. Either the network or the API server
// may be the cause.
func IsOverdue(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !IsAnswered(err) }

// IsOverloaded reports whether err means that the API server rejected the request to limit its load (status 429).
func IsOverloaded(err error) bool { return apierrors.IsTooManyRequests(err) }

// IsUnavailable reports whether the API server responded that it is starting, stopping, or too slow.
func IsUnavailable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// IsUndecided reports whether the response is not a decision about the request, so that the same request may succeed
// later. The API server may nevertheless have executed a write, unless it is overloaded.
func IsUndecided(err error) bool {
	return IsUnavailable(err) || IsOverloaded(err) || apierrors.IsInternalError(err)
}
