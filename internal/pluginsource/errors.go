// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Reason is the reason of an Error, in CamelCase.
type Reason string

// Reasons of an Error.
const (
	Unauthorized         Reason = "Unauthorized"
	NotFound             Reason = "NotFound"
	UntrustedCertificate Reason = "UntrustedCertificate"
	Truncated            Reason = "Truncated"
	Stalled              Reason = "Stalled"
	TooLarge             Reason = "TooLarge"
	ForbiddenRedirect    Reason = "ForbiddenRedirect"
	WrongMediaType       Reason = "WrongMediaType"
	DigestMismatch       Reason = "DigestMismatch"
	InvalidSource        Reason = "InvalidSource"
	InvalidSecret        Reason = "InvalidSecret"
	Unavailable          Reason = "Unavailable"
)

// Error is returned if a source could not be fetched.
type Error struct {
	Reason Reason
	Err    error

	remedy string // replaces the remedy of the reason, unless it is empty
}

func (e *Error) Error() string {
	text := strings.TrimSuffix(e.Err.Error(), ".")
	if remedy := cmp.Or(e.remedy, remedies[e.Reason]); remedy != "" {
		text += ": " + remedy
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// remedies contains the remedies by reason. For other reasons, the message itself contains the remedy.
var remedies = map[Reason]string{
	Unauthorized:         "set pullSecret to a Secret of type kubernetes.io/dockerconfigjson with credentials that may pull the image",
	NotFound:             "correct the name in spec.source, or publish the module there",
	UntrustedCertificate: "set caSecret to a Secret whose ca.crt has the certificate authority of the server, or correct the server's certificate",
	Truncated:            "the server or a proxy closed the connection too early; see their logs and limits",
	Stalled:              "see whether the server or a proxy is overloaded, and whether a NetworkPolicy drops its answers",
	ForbiddenRedirect:    "set spec.source to where the server redirects, if that is meant",
	TooLarge:             "see whether spec.source names a plugin, and compile a large one with -opt=z and -no-debug",
	Unavailable:          "see whether the server is up and reachable from the controller manager (DNS, NetworkPolicies, proxy)",
	DigestMismatch:       "the content was replaced or damaged; publish it again, or correct the digest in spec.source",
}

// Remedies of single causes.
const (
	otherHostRemedy     = "use a name in spec.source that the server's certificate has, or correct the certificate"
	invalidRealmRemedy  = "make the registry name its token server, in the header WWW-Authenticate, with https and a host name; a private IP address is allowed only if it is the registry's own"
	tokenRedirectRemedy = "make the token server of the registry answer without a redirect, or redirect to https and a host name"
	tokenFormRemedy     = "make the token server of the registry answer without a redirect, because pullSecret has an identity token, " +
		"which is not sent to another host"
)

// Errorf returns an Error with a formatted message.
func Errorf(reason Reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// IsOf reports whether err is an Error with one of the given reasons.
func IsOf(err error, reasons ...Reason) bool {
	var known *Error
	return errors.As(err, &known) && slices.Contains(reasons, known.Reason)
}

// IsDamage reports whether the requested content is the cause of err. If not, the server is the cause, and other
// content may still be available.
func IsDamage(err error) bool { return IsOf(err, TooLarge, NotFound, DigestMismatch, Truncated) }

// classify returns err as an Error.
func classify(err error) error {
	var (
		known       *Error
		response    *transport.Error
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		timeout     net.Error
	)
	switch {
	case err == nil:
		return nil
	// This case must be first. After such an error, go-containerregistry tries registries with private addresses again
	// over HTTP. The retry also fails, and err contains both errors.
	case errors.As(err, &certificate) && errors.As(err, &hostname):
		return &Error{Reason: UntrustedCertificate, Err: certificate, remedy: otherHostRemedy}
	case errors.As(err, &certificate):
		return &Error{Reason: UntrustedCertificate, Err: certificate}
	case errors.As(err, &known):
		return &Error{Reason: known.Reason, Err: known.Err, remedy: known.remedy}
	case errors.As(err, &response):
		return &Error{Reason: reasonOf(response.StatusCode), Err: err}
	case errors.As(err, &authority), errors.As(err, &hostname):
		return &Error{Reason: UntrustedCertificate, Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Reason: Truncated, Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Error{Reason: Stalled, Err: err}
	// go-containerregistry has no types for these errors, which occur for blobs and manifests.
	case strings.Contains(err.Error(), "error verifying"), strings.Contains(err.Error(), "does not match requested digest"):
		return &Error{Reason: DigestMismatch, Err: err}
	// go-containerregistry has no types for refused URLs of token servers, either.
	case strings.Contains(err.Error(), "invalid realm"):
		return &Error{Reason: Unavailable, Err: err, remedy: invalidRealmRemedy}
	case strings.Contains(err.Error(), "refusing token-server redirect"):
		return &Error{Reason: Unavailable, Err: err, remedy: tokenRedirectRemedy}
	}
	return &Error{Reason: Unavailable, Err: err}
}

// reasonOf returns the reason of a status code.
func reasonOf(code int) Reason {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return Unauthorized
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	}
	return Unavailable
}
