// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package apifailure distinguishes why a call to an API server failed: there was no response (IsLost, IsOverdue), the
// response is not a decision about the request (IsUndecided, which includes IsOverloaded and IsUnavailable), or the
// request was refused (any other response). The caller decides how to handle the failure.
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

// IsLost reports whether there is no response at all: the connection is refused, reset or lost, there is no route, or
// the name or the certificate is wrong. A busy API server does respond. For an API server that is too slow for a
// call, use IsOverdue.
func IsLost(err error) bool {
	if IsAnswered(err) || IsOverdue(err) {
		return false
	}
	var network net.Error
	var transport *url.Error
	return errors.As(err, &network) || errors.As(err, &transport) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// IsOverdue reports whether a call was not answered before its deadline, because of the network or of the API server.
func IsOverdue(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !IsAnswered(err) }

// IsOverloaded reports whether err means that the API server rejected the request to limit its load (status 429).
func IsOverloaded(err error) bool { return apierrors.IsTooManyRequests(err) }

// IsUnavailable reports whether the API server responded that it is starting, stopping, or too slow itself.
func IsUnavailable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// IsUndecided reports whether a response is not a decision about the request, so that the same request may succeed
// later. A write may still have been executed, unless the API server is overloaded.
func IsUndecided(err error) bool {
	return IsUnavailable(err) || IsOverloaded(err) || apierrors.IsInternalError(err)
}
