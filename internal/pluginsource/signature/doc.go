// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package signature verifies signatures of images that cosign has created with a key.
//
// It reads both layouts in use. cosign 2 writes a tag sha256-<digest>.sig with the signed payload as a layer and the
// signature in an annotation. cosign 3 writes a Sigstore bundle in a manifest that refers to the image. Both sign the
// digest of the manifest or index.
//
// Keys are public keys in PEM: ECDSA, Ed25519 or RSA. Signatures are verified with Go's standard library, because
// Sigstore's libraries would only add the parsing of keys in other formats. Certificates of Fulcio and transparency
// logs are not evaluated.
package signature
