// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/refract-project/refract/internal/pluginsource"
)

const (
	simpleSigningType = "application/vnd.dev.cosign.simplesigning.v1+json"
	simpleSigningKind = "cosign container image signature"
	bundleTypePrefix  = "application/vnd.dev.sigstore.bundle"
	inTotoPayloadType = "application/vnd.in-toto+json"
	statementType     = "https://in-toto.io/Statement/v1"
	// signPredicate distinguishes signatures from attestations, which have the same kind of bundle.
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// maxSignatures is the maximum number of signatures in a bundle. cosign writes only one.
const maxSignatures = 8

// Result describes the signatures of an image.
type Result struct {
	// Signer is the fingerprint of the key that has signed the image. It is empty if none of the keys has signed it.
	Signer string
	// Signatures is the number of signatures that were found, by any key.
	Signatures int
	// Unreadable is the reason why a signature was ignored. It is empty if none was ignored.
	Unreadable string
}

// Verify searches the attachments for a signature of the image by one of the keys. digest is the image's digest in
// the form sha256:<hex>. If there is no such signature and an attachment could not be read, Verify returns the error,
// unless the attachment certainly can never be read.
func Verify(ctx context.Context, digest string, attachments []pluginsource.Attachment, keys []Key) (Result, error) {
	result, unread := Result{}, error(nil)
	for _, a := range attachments {
		if err := ctx.Err(); err != nil {
			return result, fmt.Errorf("verifying signatures, %w", err)
		}
		verify := verifierOf(string(a.MediaType))
		if verify == nil && a.Err() == nil {
			continue
		}
		result.Signatures++
		content, err := []byte(nil), a.Err()
		if err == nil {
			content, err = a.Read(ctx)
		}
		if err != nil && !pluginsource.IsDamage(err) {
			unread = cmp.Or(unread, err)
			continue
		}
		signer := ""
		if err == nil {
			signer, err = verify(content, a.Signature, digest, keys)
		}
		if err != nil && result.Unreadable == "" {
			result.Unreadable = err.Error()
		}
		if signer != "" {
			result.Signer = signer
			return result, nil
		}
	}
	return result, unread
}

type verifier func(content []byte, signature, digest string, keys []Key) (signer string, err error)

// verifierOf returns the verifier for layers with the media type, or nil if such layers are not signatures.
func verifierOf(mediaType string) verifier {
	switch {
	case mediaType == simpleSigningType:
		return verifySimpleSigning
	case strings.HasPrefix(mediaType, bundleTypePrefix):
		return verifyBundle
	}
	return nil
}

// signerOf returns the fingerprint of the key that has signed the message. It is empty if none of the keys has signed
// it.
func signerOf(message, signature []byte, keys []Key) string {
	for _, k := range keys {
		if k.verifies(message, signature) {
			return k.Fingerprint()
		}
	}
	return ""
}

// verifySimpleSigning verifies a signature in the layout of cosign 2.
func verifySimpleSigning(content []byte, signature, digest string, keys []Key) (string, error) {
	decoded, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return "", errors.New("the annotation with the signature is not in base64")
	}
	signer := signerOf(content, decoded, keys)
	if signer == "" {
		return "", nil
	}
	var payload struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(content, &payload); err != nil {
		return "", fmt.Errorf("decoding the signed payload, %w", err)
	}
	if got := payload.Critical; got.Type != simpleSigningKind || got.Image.Digest != digest {
		return "", fmt.Errorf("a signature is one of %q for %q, not for this image", got.Type, got.Image.Digest)
	}
	return signer, nil
}

// bundle contains the fields of a Sigstore bundle that are needed to verify a signature with a key.
type bundle struct {
	Envelope *struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// verifyBundle verifies a signature in the layout of cosign 3.
func verifyBundle(content []byte, _, digest string, keys []Key) (string, error) {
	var b bundle
	if err := json.Unmarshal(content, &b); err != nil {
		return "", fmt.Errorf("decoding a Sigstore bundle, %w", err)
	}
	if b.Envelope == nil || b.Envelope.PayloadType != inTotoPayloadType {
		return "", nil // the bundle is not a statement about an image
	}
	if n := len(b.Envelope.Signatures); n > maxSignatures {
		return "", fmt.Errorf("a Sigstore bundle has %d signatures, more than %d, the maximum", n, maxSignatures)
	}
	message := preAuthenticationEncoding(b.Envelope.PayloadType, b.Envelope.Payload)
	for _, s := range b.Envelope.Signatures {
		if signer := signerOf(message, s.Sig, keys); signer != "" {
			if err := checkStatement(b.Envelope.Payload, digest); err != nil {
				return "", err
			}
			return signer, nil
		}
	}
	return "", nil
}

// checkStatement returns an error unless the statement is a signature of the image with the digest.
func checkStatement(payload []byte, digest string) error {
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(payload, &statement); err != nil {
		return fmt.Errorf("decoding a signed statement, %w", err)
	}
	if statement.Type != statementType || statement.PredicateType != signPredicate {
		return fmt.Errorf("a statement is of the predicate %q, which is no signature (%s)", statement.PredicateType, signPredicate)
	}
	for _, subject := range statement.Subject {
		if "sha256:"+subject.Digest["sha256"] == digest {
			return nil
		}
	}
	return errors.New("a signed statement is not about this image")
}

// preAuthenticationEncoding returns the message that is signed according to DSSE.
func preAuthenticationEncoding(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}
