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

// Validity of a client certificate or a token. It is zero where there is none, or where it does not say, as with tokens that are not
// Kubernetes'.
type Validity struct{ From, Until time.Time }

// ValidityOf returns that of the credentials in a kubeconfig.
func ValidityOf(config *rest.Config) Validity {
	if config.BearerToken != "" {
		claims := read(config.BearerToken)
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

// Account returns the ServiceAccount that a token of Kubernetes is for, "" for other tokens.
func Account(token string) (namespace, name string) {
	namespace, name, err := serviceaccount.SplitUsername(read(token).Subject)
	if err != nil {
		return "", ""
	}
	return namespace, name
}

// claims of a token (RFC 7519, section 4.1), times in seconds.
type claims struct {
	Subject string `json:"sub"`
	Issued  int64  `json:"iat"`
	Expires int64  `json:"exp"`
}

// read returns no claims of what is not a JWT.
func read(token string) (found claims) {
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
