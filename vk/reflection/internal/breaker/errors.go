// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Lost reports whether there is no response at all: the connection is refused, reset or lost, there is no route, or the
// name or the certificate is wrong. A busy API server responds; an API server that is too slow for a call is Overdue.
func Lost(err error) bool {
	if Answered(err) || Overdue(err) || errors.Is(err, ErrUnreachable) {
		return false
	}
	var network net.Error
	var transport *url.Error
	return errors.As(err, &network) || errors.As(err, &transport) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Overdue reports whether a call was not Answered in time, because of the network or of the API server.
func Overdue(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !Answered(err) }

// Answered reports whether the API server responded.
func Answered(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status)
}
