// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package credentials reads the expiry and the token of a kubeconfig. It does not verify them; the API server does
// that.
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

// Validity is the period of validity of a client certificate or a token. It is zero if there is none, or if it has no
// expiry, like tokens that were not issued by Kubernetes.
type Validity struct{ From, Until time.Time }

// ValidityOf returns the validity of the credentials in a kubeconfig.
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

// Known reports whether the expiry is known.
func (v Validity) Known() bool { return !v.Until.IsZero() }

// Life is the total lifetime of the credentials.
func (v Validity) Life() time.Duration { return v.Until.Sub(v.From) }

// Account returns the ServiceAccount of a Kubernetes token, or empty strings for other tokens.
func Account(token string) (namespace, name string) {
	namespace, name, err := serviceaccount.SplitUsername(readClaims(token).Subject)
	if err != nil {
		return "", ""
	}
	return namespace, name
}

// claims has the relevant claims of a token (RFC 7519, section 4.1). Times are in seconds.
type claims struct {
	Subject string `json:"sub"`
	Issued  int64  `json:"iat"`
	Expires int64  `json:"exp"`
}

// readClaims returns the claims of a JWT. For other texts they are empty.
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
