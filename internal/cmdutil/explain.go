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

	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/redirect"
)

// Explain adds the remedy to errors that often occur in a new installation, such as an API server that does not
// respond, rejects the credentials, or lacks the CRDs. It returns other errors unchanged.
func Explain(err error) error {
	var unanswered *url.Error
	var untrusted *tls.CertificateVerificationError
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster does not know this kind: install Refract's CRDs first, for instance with its Helm chart (%w)", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server rejects the credentials of the kubeconfig: log in again, or choose another context or kubeconfig (%w)", err)
	case isDiscoveryForbidden(err):
		return fmt.Errorf("the API server does not tell this user which kinds it has: the context may have no credentials, or those of a user without the role system:discovery (%w)", err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of the API server cannot be verified: check the server and the certificate authority of the kubeconfig (%w)", err)
	case errors.As(err, &unanswered) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("the API server cannot be reached: check that it runs, and the server of the kubeconfig (%w)", err)
	}
	return err
}

// isDiscoveryForbidden reports whether the API server refused to list its kinds. The API server's message does not help
// the user, because it does not name a resource.
func isDiscoveryForbidden(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsForbidden(err) && (status.Status().Details == nil || status.Status().Details.Kind == "" && status.Status().Message == "unknown")
}

// FromAPIServer reports whether the error came from an API server: it refused the request, was unreachable, or did not
// know a kind. Unlike other errors, these may be temporary. For example, an API server that has just started does not
// serve custom resources for a moment.
func FromAPIServer(err error) bool {
	var status apierrors.APIStatus
	var network net.Error
	return errors.As(err, &status) || errors.As(err, &network) || meta.IsNoMatchError(err)
}

// Away reports whether an API server was unreachable, starting, stopping or overloaded. The same request may succeed
// later. Unlike FromAPIServer, it returns false for decisions of the API server, such as a forbidden request.
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
	return apifailure.IsUndecided(err)
}
