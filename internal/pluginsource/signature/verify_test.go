// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/test/support/registrytest"
)

// newSignedRegistry starts a registry with the images of testdata, which cosign has signed (see hack/cosign).
func newSignedRegistry(t *testing.T) *registrytest.Registry {
	t.Helper()
	r := registrytest.New(t, false)
	r.PushSigned(t, "testdata")
	return r
}

func keyOf(t *testing.T, title string) Key {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", title+".pub"))
	require.NoError(t, err)
	key, err := ParseKey(string(text))
	require.NoError(t, err)
	return key
}

// TestSignaturesOfCosign checks that signatures that cosign has written, in either layout, are valid only for their own
// image and key.
func TestSignaturesOfCosign(t *testing.T) {
	host := newSignedRegistry(t).Host()
	trusted, other := keyOf(t, "trusted"), keyOf(t, "other")
	for _, c := range []struct {
		image  string
		keys   []Key
		signer string
		found  int
	}{
		{image: "unsigned", keys: []Key{trusted}},
		{image: "v2", keys: []Key{other, trusted}, signer: trusted.Fingerprint(), found: 1},
		{image: "v3", keys: []Key{other, trusted}, signer: trusted.Fingerprint(), found: 1},
		{image: "v2", keys: []Key{other}, found: 1},
		{image: "v3", keys: []Key{other}, found: 1},
		{image: "other-v2", keys: []Key{trusted}, found: 1},
		{image: "other-v3", keys: []Key{trusted}, found: 1},
		{image: "attested", keys: []Key{trusted}, found: 1}, // an attestation is not a signature, although it is signed
	} {
		t.Run(c.image, func(t *testing.T) {
			access, err := pluginsource.OCI{Image: host + "/plugins/" + c.image + ":1"}.Open(pluginsource.Options{InsecureRegistries: []string{host}})
			require.NoError(t, err)
			image, err := access.Resolve(t.Context())
			require.NoError(t, err)
			attachments := image.Attachments(t.Context())
			result, err := Verify(t.Context(), image.Digest.DigestStr(), attachments, c.keys)
			require.NoError(t, err)
			assert.Equal(t, c.signer, result.Signer)
			assert.Equal(t, c.found, result.Signatures)
			// The same signatures are not valid for another image.
			result, err = Verify(t.Context(), "sha256:"+strings.Repeat("0", 64), attachments, c.keys)
			require.NoError(t, err)
			assert.Empty(t, result.Signer)
		})
	}
}

// TestAttachmentsThatCannotBeRead checks that an attachment that cannot be read does not hide a valid signature.
func TestAttachmentsThatCannotBeRead(t *testing.T) {
	trusted := keyOf(t, "trusted")
	for title, c := range map[string]struct {
		status    int
		isDamaged bool
	}{
		"absent":      {status: http.StatusNotFound, isDamaged: true},
		"altered":     {status: http.StatusOK, isDamaged: true},
		"unavailable": {status: http.StatusInternalServerError},
		"forbidden":   {status: http.StatusForbidden},
	} {
		t.Run(title, func(t *testing.T) {
			r := newSignedRegistry(t)
			host, broken := r.Host(), ""
			r.Inject(func(w http.ResponseWriter, request *http.Request, next http.Handler) {
				if broken != "" && strings.HasSuffix(request.URL.Path, broken) {
					w.WriteHeader(c.status)
					return
				}
				next.ServeHTTP(w, request)
			})
			access, err := pluginsource.OCI{Image: host + "/plugins/v3:1"}.Open(pluginsource.Options{InsecureRegistries: []string{host}})
			require.NoError(t, err)
			image, err := access.Resolve(t.Context())
			require.NoError(t, err)
			// The manifest with an unreadable signature comes before the valid one.
			broken = "/" + strings.Replace(image.Digest.DigestStr(), ":", "-", 1) + ".sig"
			result, err := Verify(t.Context(), image.Digest.DigestStr(), image.Attachments(t.Context()), []Key{trusted})
			require.NoError(t, err)
			assert.Equal(t, trusted.Fingerprint(), result.Signer)
			// Without a valid signature, Verify fails, except if the attachment certainly can never be read.
			result, err = Verify(t.Context(), image.Digest.DigestStr(), image.Attachments(t.Context()), []Key{keyOf(t, "other")})
			assert.Empty(t, result.Signer)
			assert.Equal(t, c.isDamaged, err == nil, "%v", err)
		})
	}
	for title, answer := range map[string]func(http.ResponseWriter){
		"an absent layer":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"another layer":         func(w http.ResponseWriter) { _, _ = io.WriteString(w, "another") },
		"a layer that is large": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 2<<20)) },
		"no layer now":          func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(title, func(t *testing.T) {
			r := newSignedRegistry(t)
			host := r.Host()
			access, err := pluginsource.OCI{Image: host + "/plugins/v2:1"}.Open(pluginsource.Options{InsecureRegistries: []string{host}})
			require.NoError(t, err)
			image, err := access.Resolve(t.Context())
			require.NoError(t, err)
			r.Inject(registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
			result, err := Verify(t.Context(), image.Digest.DigestStr(), image.Attachments(t.Context()), []Key{trusted})
			assert.Equal(t, title == "no layer now", err != nil, "%v", err)
			assert.Empty(t, result.Signer)
			assert.Equal(t, 1, result.Signatures)
			assert.Equal(t, err == nil, result.Unreadable != "", "what is passed over is reported")
		})
	}
	t.Run("the time is over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Verify(ctx, "", make([]pluginsource.Attachment, 1), nil)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// TestWhatIsSignedIsASignature checks that a valid signature by a trusted key does not count if the signed statement is
// of another type, such as an attestation, or is about another image.
func TestWhatIsSignedIsASignature(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key := Key{public: public, fingerprint: "trusted"}
	const digest = "sha256:1111"
	bundleOf := func(payloadType, kind, predicate, subject string) string {
		payload := fmt.Appendf(nil, `{"_type":%q,"predicateType":%q,"subject":[{"digest":{"sha256":%q}}]}`, kind, predicate, subject)
		text, err := json.Marshal(map[string]any{"dsseEnvelope": map[string]any{"payload": payload, "payloadType": payloadType,
			"signatures": []any{map[string]any{"sig": ed25519.Sign(private, preAuthenticationEncoding(payloadType, payload))}}}})
		require.NoError(t, err)
		return string(text)
	}
	for text, signer := range map[string]string{
		bundleOf(inTotoPayloadType, statementType, signPredicate, "1111"):                                 "trusted",
		bundleOf(inTotoPayloadType, statementType, "https://slsa.dev/provenance/v1", "1111"):              "", // an attestation
		bundleOf(inTotoPayloadType, "https://in-toto.io/Statement/v0.1", signPredicate, "1111"):           "",
		bundleOf(inTotoPayloadType, statementType, signPredicate, "2222"):                                 "",
		bundleOf("application/vnd.example+json", statementType, signPredicate, "1111"):                    "",
		strings.Replace(bundleOf(inTotoPayloadType, statementType, signPredicate, "1111"), "sig", "s", 1): "",
	} {
		found, _ := verifyBundle([]byte(text), "", digest, []Key{key})
		assert.Equal(t, signer, found, text)
	}
	for kind, signer := range map[string]string{simpleSigningKind: "trusted", "cosign attestation": "", "": ""} {
		content := fmt.Appendf(nil, `{"critical":{"type":%q,"image":{"docker-manifest-digest":%q}}}`, kind, digest)
		found, _ := verifySimpleSigning(content, base64.StdEncoding.EncodeToString(ed25519.Sign(private, content)), digest, []Key{key})
		assert.Equal(t, signer, found, kind)
	}
}

// TestSignaturesOfABundleAreLimited checks that the number of signatures in a bundle is limited, because verifying each
// of them takes time.
func TestSignaturesOfABundleAreLimited(t *testing.T) {
	for n, says := range map[int]string{maxSignatures: "", maxSignatures + 1: "more than 8"} {
		text := fmt.Sprintf(`{"dsseEnvelope":{"payloadType":%q,"payload":"","signatures":[%s]}}`, inTotoPayloadType, strings.TrimSuffix(strings.Repeat(`{"sig":"AAAA"},`, n), ","))
		_, err := verifyBundle([]byte(text), "", "", []Key{keyOf(t, "trusted")})
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
}

func TestPolicy(t *testing.T) {
	key, err := os.ReadFile("testdata/trusted.pub")
	require.NoError(t, err)
	indented := strings.ReplaceAll(string(key), "\n", "\n      ")
	policy, err := ParsePolicy([]byte(`default: Off
prefixes:
- prefix: registry.example.com
  mode: Warn
- prefix: Registry.Example.com:443/plugins/
  mode: Require
  keys:
  - |
      ` + indented + `
- prefix: https://plugins.example.com/trusted
  mode: Warn
- prefix: docker.io/library
  mode: Warn
`))
	require.NoError(t, err)
	for source, want := range map[string]Mode{
		"registry.example.com/plugins/strip":         Require,
		"registry.example.com/plugins":               Require,
		"registry.example.com:443/plugins/strip":     Require,
		"REGISTRY.example.com/plugins/strip":         Require,
		"registry.example.com./plugins/strip":        Require,
		"registry.example.com/plugins-of-others/a":   Warn,
		"registry.example.com/other":                 Warn,
		"registry.example.com.evil.org/plugins/a":    Off,
		"registry.example.com:5000/plugins/a":        Off,
		"https://plugins.example.com/trusted/a.wasm": Warn,
		"https://plugins.example.com/other/a.wasm":   Off,
		"index.docker.io/library/a":                  Warn,
		"registry-1.docker.io/library/a":             Warn,
		"configMap/a":                                Off,
	} {
		assert.Equal(t, want, policy.For(source).Mode, source)
	}
	// If a repository requires signatures, other spellings of its name are refused.
	for _, image := range []string{
		"registry.example.com/other/../plugins/strip", "registry.example.com/./plugins/strip", "registry.example.com//plugins/strip", "registry.example.com/plugins/./strip",
		"registry.example.com:/plugins/strip", "registry.example.com:0443/plugins/strip", "registry.example.com../plugins/strip", "ｒegistry.example.com/plugins/strip",
	} {
		_, err := pluginsource.ParseImage(image)
		assert.ErrorContains(t, err, "spec.source.oci.image", image)
	}
	assert.Len(t, policy.For("registry.example.com/plugins/strip").Keys, 1)
	assert.NotEqual(t, policy.For("registry.example.com/plugins/a").Fingerprint(), policy.For("registry.example.com/a").Fingerprint())
	trusted, other := Decision{Mode: Require, Keys: []Key{keyOf(t, "trusted")}}, Decision{Mode: Require, Keys: []Key{keyOf(t, "other")}}
	assert.NotEqual(t, trusted.Fingerprint(), other.Fingerprint(), "another key is another decision")
	for text, says := range map[string]string{
		"default: Always": "default",
		"prefixes: [{prefix: a.example.com, mode: Maybe}]":                                               "prefixes[0].mode",
		"prefixes: [{prefix: a.example.com, mode: Require}]":                                             "no keys",
		"prefixes: [{prefix: plugins, mode: Off}]":                                                       `prefixes[0].prefix "plugins" has no host`,
		"prefixes: [{prefix: configmap/a, mode: Off}]":                                                   "has no host",
		"prefixes: [{prefix: configMap/A_b, mode: Off}]":                                                 "configMap/NAME",
		"prefixes: [{prefix: a.example.com/*, mode: Off}]":                                               "wildcards",
		"prefixes: [{prefix: '*.example.com', mode: Off}]":                                               "wildcards",
		"prefixes: [{prefix: 'a.example.com/b:1', mode: Off}]":                                           "a tag or a digest",
		"prefixes: [{prefix: 'a.example.com/b@sha256:00', mode: Off}]":                                   "a tag or a digest",
		"prefixes: [{prefix: a.example.com//b, mode: Off}]":                                              "beginning of a repository",
		"prefixes: [{prefix: a.example.com/Plugins, mode: Off}]":                                         "beginning of a repository",
		"prefixes: [{prefix: 'http://a.example.com/b', mode: Off}]":                                      "an https URL",
		"prefixes: [{prefix: 'https://a.example.com/*', mode: Off}]":                                     "an https URL",
		"prefixes: [{prefix: 'https://u@a.example.com/b', mode: Off}]":                                   "an https URL",
		"prefixes: [{prefix: a.example.com/b, mode: Off}, {prefix: 'A.example.com:443/b/', mode: Warn}]": "prefixes[1].prefix \"a.example.com/b\" is also that of prefixes[0]",
		"prefixes: [{prefix: '', mode: Off}]":                                                            "prefixes[0].prefix",
		"prefixes: [{prefix: a.example.com, mode: Warn, keys: [text]}]":                                  "prefixes[0].keys[0]",
		"prefixes: [{prefix: a.example.com, mode: Warn, publicKeys: []}]":                                "publicKeys",
	} {
		_, err := ParsePolicy([]byte(text))
		assert.ErrorContains(t, err, says, text)
	}
}
