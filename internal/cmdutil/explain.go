// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refract-project/refract/internal/redirect"
)

// Explain adds the remedy to errors of requests that a newcomer meets first: an
// API server that does not answer, one that rejects the credentials, and one without our CRDs.
func Explain(err error) error {
	var unanswered *url.Error
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster does not know this kind: install Refract's CRDs first, for instance with its Helm chart (%w)", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server rejects the credentials of the kubeconfig: log in again, or choose another context or kubeconfig (%w)", err)
	case isDiscoveryForbidden(err):
		return fmt.Errorf("the API server does not tell this user which kinds it has: the context may have no credentials, or those of a user without the role system:discovery (%w)", err)
	case errors.As(err, &unanswered) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("unexpected response of the API server: check that it runs, and the server and credentials of the kubeconfig (%w)", err)
	}
	return err
}

// isDiscoveryForbidden reports whether the API server refused to list its kinds: paths have no resource, so the message says nothing.
func isDiscoveryForbidden(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsForbidden(err) && (status.Status().Details == nil || status.Status().Details.Kind == "" && status.Status().Message == "unknown")
}

// FromAPIServer reports whether an API server refused, could not be reached, or did not know a kind: that passes, other errors
// do not. One that has just started serves custom resources a moment later than it is ready.
func FromAPIServer(err error) bool {
	var status apierrors.APIStatus
	var network net.Error
	return errors.As(err, &status) || errors.As(err, &network) || meta.IsNoMatchError(err)
}

// Away reports whether an API server could not be reached, or is starting, ending or overloaded: the same request may succeed later. Unlike
// FromAPIServer it leaves out what the API server has decided, such as that a request is forbidden.
func Away(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var redirected *redirect.Error
	if errors.Is(err, context.Canceled) || errors.As(err, &untrusted) || errors.As(err, &redirected) {
		return false
	}
	var unanswered *url.Error
	var network net.Error
	if errors.As(err, &unanswered) || errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}
