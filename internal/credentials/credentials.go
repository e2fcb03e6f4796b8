// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package credentials reads the validity period of the credentials in a kubeconfig, and the ServiceAccount of a token.
// It does not verify the credentials, because the API server does.
package credentials

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Validity is the validity period of a client certificate or a token. It is zero if there are no credentials, or if
// they do not contain both times. For example, a token that is not a JWT contains none.
type Validity struct{ From, Until time.Time }

// ValidityOf returns the validity of the token in config, or of the client certificate if there is no token.
func ValidityOf(config *rest.Config) Validity {
	if config.BearerToken != "" {
		claims := readClaims(config.BearerToken)
		if claims.Issued == 0 || claims.Expires == 0 {
			return Validity{}
		}
		return Validity{From: time.Unix(claims.Issued, 0), Until: time.Unix(claims.Expires, 0)}
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return Validity{}
	}
	return Validity{From: certificates[0].NotBefore, Until: certificates[0].NotAfter}
}

// Known reports whether the expiry time is known.
func (v Validity) Known() bool { return !v.Until.IsZero() }

// Life returns the total lifetime of the credentials.
func (v Validity) Life() time.Duration { return v.Until.Sub(v.From) }

// Account returns the namespace and name of the ServiceAccount that a Kubernetes token belongs to. It returns empty
// strings for other tokens.
func Account(token string) (namespace, name string) {
	namespace, name, err := serviceaccount.SplitUsername(readClaims(token).Subject)
	if err != nil {
		return "", ""
	}
	return namespace, name
}

// claims contains the claims of a token that this package reads (RFC 7519, section 4.1). Times are in seconds since
// 1970.
type claims struct {
	Subject string `json:"sub"`
	Issued  int64  `json:"iat"`
	Expires int64  `json:"exp"`
}

// readClaims returns the claims of a JWT. They are empty if token is not a JWT.
func readClaims(token string) (found claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &found) != nil {
		return claims{}
	}
	return found
}
