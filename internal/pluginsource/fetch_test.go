// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/cert"

	"github.com/refract-project/refract/test/support/registrytest"
	"github.com/refract-project/refract/test/support/short"
)

// stall is short, so that the test of a server that sends nothing does not take long.
const stall = 2 * time.Second

var wasm = []byte("\x00asm\x01\x00\x00\x00 and more of it, so that it can be truncated")

// reasonOfError returns the reason of an error. It returns "" if err is nil, and "unclassified: " with the message if err is not an *Error.
func reasonOfError(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	if err != nil {
		return Reason("unclassified: " + err.Error())
	}
	return ""
}

func authoritiesOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func TestHTTP(t *testing.T) {
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wasm) }))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wasm) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/good", http.StatusFound) })
	mux.HandleFunc("/circle", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/circle", http.StatusFound) })
	mux.HandleFunc("/plain", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/good", http.StatusFound)
	})
	mux.HandleFunc("/other", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/good", http.StatusFound) })
	mux.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/truncated", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(wasm)))
		_, _ = w.Write(wasm[:10])
	})
	mux.HandleFunc("/stalled", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(wasm[:10])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/folder/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/folder/below/good", http.StatusFound)
	})
	mux.HandleFunc("/folder/below/good", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wasm) })
	mux.HandleFunc("/folder/out", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/good", http.StatusFound) })
	mux.HandleFunc("/folder/encoded", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/folder/below%2Fgood")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/dribbling", dribble)
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", strconv.Itoa(200<<20)) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	bomb := gzipped(make([]byte, 64<<20))
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	// A registry on the same host may be accessed without TLS, but a file may not.
	options := Options{StallTimeout: stall, InsecureRegistries: []string{server.Listener.Addr().String()}}
	for path, want := range map[string]Reason{
		"/good": "", "/moved": "", "/circle": ForbiddenRedirect, "/plain": ForbiddenRedirect, "/other": ForbiddenRedirect, "/secret": Unauthorized, "/absent": NotFound,
		"/truncated": Truncated, "/folder/moved": "", "/folder/out": ForbiddenRedirect, "/folder/encoded": ForbiddenRedirect,
		"/folder/below%2Fgood": InvalidSource, "/folder/%2e%2e/good": InvalidSource, "/folder/../good": InvalidSource, "//good": InvalidSource, "/folder/..;/good": InvalidSource,
		"/stalled": Stalled, "/dribbling": Stalled, "/large": TooLarge, "/endless": TooLarge, "/bomb": DigestMismatch,
	} {
		t.Run(path, func(t *testing.T) {
			got, err := HTTP{URL: server.URL + path, SHA256: Digest(wasm), Authorities: authoritiesOf(server)}.Fetch(t.Context(), options)
			require.Equal(t, want, reasonOfError(err), "%v", err)
			switch want {
			case "":
				assert.Equal(t, wasm, got)
			case Unauthorized:
				assert.ErrorContains(t, err, "no credentials are sent to an http source")
			}
		})
	}
	t.Run("secrets in the URL", func(t *testing.T) {
		for _, text := range []string{
			server.URL + "/circle?token=secret", "https://127.0.0.1:1/a?token=secret", strings.Replace(server.URL, "://", "://user:secret@", 1) + "/good", "https://user:secret@[a", "https://a b/?secret",
		} {
			_, err := HTTP{URL: text, SHA256: Digest(wasm), Authorities: authoritiesOf(server)}.Fetch(t.Context(), Options{})
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
		}
		assert.Equal(t, "https://a.example.com/b", RedactURL("https://user:secret@a.example.com/b?token=secret#secret"))
	})
	t.Run("another digest", func(t *testing.T) {
		_, err := HTTP{URL: server.URL + "/good", SHA256: Digest([]byte("other")), Authorities: authoritiesOf(server)}.Fetch(t.Context(), Options{})
		assert.Equal(t, DigestMismatch, reasonOfError(err))
	})
	t.Run("another authority", func(t *testing.T) {
		_, err := HTTP{URL: server.URL + "/good", SHA256: Digest(wasm)}.Fetch(t.Context(), Options{})
		assert.Equal(t, UntrustedCertificate, reasonOfError(err))
	})
	t.Run("another host", func(t *testing.T) {
		_, err := HTTP{URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/good", SHA256: Digest(wasm), Authorities: authoritiesOf(server)}.Fetch(t.Context(), Options{})
		assert.Equal(t, UntrustedCertificate, reasonOfError(err))
	})
	t.Run("not encrypted", func(t *testing.T) {
		_, err := HTTP{URL: "http://127.0.0.1:1/good", SHA256: Digest(wasm)}.Fetch(t.Context(), Options{InsecureRegistries: []string{"127.0.0.1:1"}})
		assert.Equal(t, InvalidSource, reasonOfError(err), "%v", err)
	})
}

// dribble sends a response without an end, a few bytes at a time.
func dribble(w http.ResponseWriter, r *http.Request) {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		_, _ = w.Write(wasm[:10])
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func gzipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

func tarred(files ...string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range files {
		_ = w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(wasm)), Typeflag: tar.TypeReg})
		_, _ = w.Write(wasm)
	}
	_ = w.Close()
	return out.Bytes()
}

func layerOf(data []byte, mediaType types.MediaType) v1.Layer {
	return static.NewLayer(data, mediaType)
}

// fetch returns the module of an image.
func fetch(t *testing.T, o OCI, options Options) ([]byte, error) {
	t.Helper()
	options.StallTimeout = stall
	access, err := o.Open(options)
	if err != nil {
		return nil, err
	}
	image, err := access.Resolve(t.Context())
	if err != nil {
		return nil, err
	}
	return image.Module(t.Context())
}

func appendLayer(t *testing.T, image v1.Image, layer v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(image, layer)
	require.NoError(t, err)
	return image
}

// TestLayouts checks that images with one module are accepted in the layouts that different tools push, and that all
// other images are refused.
func TestLayouts(t *testing.T) {
	f := registrytest.New(t, false)
	insecure := Options{InsecureRegistries: []string{f.Host()}}
	bomb := append(tarred("a.wasm"), make([]byte, 64<<20)...)
	for title, c := range map[string]struct {
		layers []v1.Layer
		want   Reason
		says   string
	}{
		"module":            {layers: []v1.Layer{layerOf(wasm, "application/wasm")}},
		"archive":           {layers: []v1.Layer{layerOf(tarred("README", "plugin.wasm"), types.OCIUncompressedLayer)}},
		"compressed":        {layers: []v1.Layer{layerOf(gzipped(tarred("plugin.wasm")), types.DockerLayer)}},
		"bomb":              {layers: []v1.Layer{layerOf(gzipped(bomb), types.OCILayer)}, want: TooLarge, says: "decompressed"},
		"no module in it":   {layers: []v1.Layer{layerOf(tarred("README"), types.OCIUncompressedLayer)}, want: WrongMediaType, says: "*.wasm"},
		"two modules in it": {layers: []v1.Layer{layerOf(tarred("a.wasm", "b.wasm"), types.OCIUncompressedLayer)}, want: WrongMediaType, says: "b.wasm"},
		"other type":        {layers: []v1.Layer{layerOf(wasm, "application/zip")}, want: WrongMediaType, says: "application/zip"},
		"two layers":        {layers: []v1.Layer{layerOf(wasm, "application/wasm"), layerOf([]byte("b"), "text/plain")}, want: WrongMediaType, says: "2 layers (application/wasm, text/plain)"},
		"no layer":          {want: WrongMediaType, says: "0 layers"},
	} {
		t.Run(title, func(t *testing.T) {
			f.Push(t, "plugins/a:1", registrytest.Image(t, c.layers...))
			got, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1"}, insecure)
			require.Equal(t, c.want, reasonOfError(err), "%v", err)
			if c.want == "" {
				assert.Equal(t, wasm, got)
			} else {
				assert.ErrorContains(t, err, c.says)
			}
		})
	}
	for title, architecture := range map[string]string{"index": "wasm", "index without wasm": "amd64"} {
		t.Run(title, func(t *testing.T) {
			f.PushIndex(t, "plugins/index:1", registrytest.Image(t, layerOf(wasm, "application/wasm")), architecture)
			_, err := fetch(t, OCI{Image: f.Host() + "/plugins/index:1"}, insecure)
			if architecture == "wasm" {
				require.NoError(t, err)
			} else {
				require.Equal(t, WrongMediaType, reasonOfError(err))
				assert.ErrorContains(t, err, "wasip1/amd64")
			}
		})
	}
	for title, image := range map[string]v1.Image{
		"image of Docker":          appendLayer(t, mutate.MediaType(empty.Image, types.DockerManifestSchema2), layerOf(gzipped(tarred("plugin.wasm")), types.DockerLayer)),
		"image with an OCI config": appendLayer(t, mutate.MediaType(empty.Image, types.OCIManifestSchema1), layerOf(wasm, "application/wasm")),
		"artifact without a config": appendLayer(t, mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.oci.empty.v1+json"),
			layerOf(wasm, "application/wasm")),
	} {
		t.Run(title, func(t *testing.T) {
			f.Push(t, "plugins/others:1", image)
			got, err := fetch(t, OCI{Image: f.Host() + "/plugins/others:1"}, insecure)
			require.NoError(t, err)
			assert.Equal(t, wasm, got)
		})
	}
	t.Run("registry that is not insecure", func(t *testing.T) {
		_, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1"}, Options{})
		require.Error(t, err)
		assert.ErrorContains(t, err, "http")
	})
}

func TestFaultsOfRegistries(t *testing.T) {
	short.NeedTime(t, "answers that stall")
	plainHTTP := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wasm) }))
	defer plainHTTP.Close()
	for title, c := range map[string]struct {
		fault registrytest.Fault
		want  Reason
	}{
		"none": {want: ""},
		"401": {want: Unauthorized, fault: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("WWW-Authenticate", `Basic realm="plugins"`)
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"404":     {want: NotFound, fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })},
		"500":     {want: Unavailable, fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })},
		"altered": {want: DigestMismatch, fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.ToUpper(wasm)) })},
		"200 MB":  {want: TooLarge, fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", strconv.Itoa(200<<20)) })},
		"redirect": {want: ForbiddenRedirect, fault: registrytest.OnBlobs(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plainHTTP.URL, http.StatusTemporaryRedirect)
		})},
		"truncated": {want: Truncated, fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(wasm)))
			_, _ = w.Write(wasm[:10])
		})},
		"stalled": {want: Stalled, fault: registrytest.OnBlobs(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(wasm[:10])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})},
		"dribbling": {want: Stalled, fault: registrytest.OnBlobs(dribble)},
		"altered manifest": {want: DigestMismatch, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !strings.Contains(r.URL.Path, "/manifests/sha256:") {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			_, _ = w.Write([]byte("{}"))
		}},
		"silent": {want: Stalled, fault: registrytest.OnBlobs(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })},
	} {
		t.Run(title, func(t *testing.T) {
			f := registrytest.New(t, true)
			image := registrytest.Image(t, layerOf(wasm, "application/wasm"))
			f.Push(t, "plugins/a:1", image)
			digest, err := image.Digest()
			require.NoError(t, err)
			f.PushIndex(t, "plugins/index:1", image, "wasm")
			f.Inject(c.fault)
			for _, image := range []string{"a@" + digest.String(), "index:1"} {
				_, err := fetch(t, OCI{Image: f.Host() + "/plugins/" + image, Authorities: f.Authorities()}, Options{})
				require.Equal(t, c.want, reasonOfError(err), "%s: %v", image, err)
			}
		})
	}
	for manifest, says := range map[string]string{
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","layers":[]}`:                   "of the media type",
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[],"manifests":[]}`: "layers and manifests",
		`{"schemaVersion":2,"manifests":[]}`: "is not what the registry says",
	} {
		t.Run(says, func(t *testing.T) {
			f := registrytest.New(t, true)
			ambiguous := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "/manifests/") {
					w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
					_, _ = w.Write([]byte(manifest))
					return
				}
				next.ServeHTTP(w, r)
			}
			f.Inject(ambiguous)
			access, err := OCI{Image: f.Host() + "/plugins/a:1", Authorities: f.Authorities()}.Open(Options{})
			require.NoError(t, err)
			_, err = access.Resolve(t.Context())
			require.Equal(t, WrongMediaType, reasonOfError(err), "%v", err)
			assert.ErrorContains(t, err, says)
		})
	}
	t.Run("another authority", func(t *testing.T) {
		f := registrytest.New(t, true)
		_, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1"}, Options{})
		require.Equal(t, UntrustedCertificate, reasonOfError(err), "%v", err)
	})
	t.Run("a certificate for another host", func(t *testing.T) {
		bundle, key, err := cert.GenerateSelfSignedCertKey("registry.example.com", nil, nil)
		require.NoError(t, err)
		pair, err := tls.X509KeyPair(bundle, key)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		_, err = fetch(t, OCI{Image: server.Listener.Addr().String() + "/plugins/a:1", Authorities: bundle}, Options{})
		require.Equal(t, UntrustedCertificate, reasonOfError(err), "%v", err)
		assert.ErrorContains(t, err, "127.0.0.1")
		assert.ErrorContains(t, err, otherHostRemedy)
	})
	t.Run("large manifest", func(t *testing.T) {
		f := registrytest.New(t, true)
		large := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				_, _ = w.Write(make([]byte, maxManifestBytes+1))
				return
			}
			next.ServeHTTP(w, r)
		}
		f.Inject(large)
		_, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1", Authorities: f.Authorities()}, Options{})
		require.Equal(t, TooLarge, reasonOfError(err), "%v", err)
	})
}

// TestAlteredArchives checks that an archive with other content, or with more bytes after its end, is rejected because
// of its digest. A blob is read to its end, because its digest and its size are known only there.
func TestAlteredArchives(t *testing.T) {
	whole, other := tarred("plugin.wasm"), tarred("other1.wasm")
	require.Len(t, other, len(whole))
	for title, c := range map[string]struct {
		answer []byte
		want   Reason
	}{
		"whole":   {whole, ""},
		"altered": {other, DigestMismatch},
		"longer":  {append(bytes.Clone(whole), make([]byte, 512)...), DigestMismatch},
	} {
		f := registrytest.New(t, true)
		f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(whole, types.OCIUncompressedLayer)))
		f.Inject(registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(c.answer) }))
		_, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1", Authorities: f.Authorities()}, Options{})
		assert.Equal(t, c.want, reasonOfError(err), "%s: %v", title, err)
	}
}

// TestSizesOfBlobs checks that a blob must have the size in its manifest, and that a blob that is too large according
// to its manifest is not requested.
func TestSizesOfBlobs(t *testing.T) {
	own := int64(len(wasm))
	for size, want := range map[int64]Reason{own: "", own + 1: Truncated, maxArchiveBytes: Truncated, maxArchiveBytes + 1: TooLarge} {
		f := registrytest.New(t, true)
		f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(wasm, "application/wasm")))
		digest, _, err := v1.SHA256(bytes.NewReader(wasm))
		require.NoError(t, err)
		f.Inject(registrytest.OnManifests(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			fmt.Fprintf(w, `{"schemaVersion":2,"layers":[{"mediaType":"application/wasm","size":%d,"digest":%q}]}`, size, digest)
		}))
		f.TakeBlobs()
		_, err = fetch(t, OCI{Image: f.Host() + "/plugins/a:1", Authorities: f.Authorities()}, Options{})
		assert.Equal(t, want, reasonOfError(err), "%d bytes: %v", size, err)
		assert.Equal(t, want != TooLarge, f.TakeBlobs() > 0, "%d bytes", size)
	}
}

// TestManifestsOfSignaturesAreLimited checks that the manifests of signatures have their own size limit, because an
// image may have many of them.
func TestManifestsOfSignaturesAreLimited(t *testing.T) {
	f := registrytest.New(t, true)
	digest := f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(wasm, "application/wasm")))
	manifest := fmt.Sprintf(`{"schemaVersion":2,"layers":[{"mediaType":"text/plain","size":1,"digest":"sha256:%s"}]}`, strings.Repeat("0", 64))
	for size, want := range map[int]Reason{maxSignatureManifestBytes: "", maxSignatureManifestBytes + 1: TooLarge} {
		f.Inject(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.HasSuffix(r.URL.Path, ".sig") {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				_, _ = w.Write([]byte(manifest + strings.Repeat(" ", size-len(manifest))))
				return
			}
			next.ServeHTTP(w, r)
		})
		access, err := OCI{Image: digest.Name(), Authorities: f.Authorities()}.Open(Options{})
		require.NoError(t, err)
		image, err := access.Resolve(t.Context())
		require.NoError(t, err)
		attachments := image.Attachments(t.Context())
		require.NotEmpty(t, attachments)
		assert.Equal(t, want, reasonOfError(attachments[0].Err()), "%d bytes: %v", size, attachments[0].Err())
	}
}

// TestBudget checks that all requests of one attempt share a time budget, and fail when it is used up.
func TestBudget(t *testing.T) {
	short.NeedTime(t, "slow answers")
	// The budget is sufficient for one slow response, even on a busy machine, but not for two.
	const budget, delay = 5 * time.Second, 3 * time.Second
	f := registrytest.New(t, true)
	f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(wasm, "application/wasm")))
	access, err := OCI{Image: f.Host() + "/plugins/a:1", Authorities: f.Authorities()}.Open(Options{Budget: budget})
	require.NoError(t, err)
	image, err := access.Resolve(t.Context())
	require.NoError(t, err)
	slow := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-r.Context().Done():
		case <-time.After(delay):
			next.ServeHTTP(w, r)
		}
	}
	f.Inject(slow)
	started := time.Now()
	_, err = image.Module(t.Context())
	require.NoError(t, err)
	attachments := image.Attachments(t.Context())
	require.NotEmpty(t, attachments)
	assert.Equal(t, Stalled, reasonOfError(attachments[0].Err()))
	_, err = image.Module(t.Context())
	assert.Equal(t, Stalled, reasonOfError(err))
	assert.Less(t, time.Since(started), 2*budget)
}

// TestReferrersAreLimited checks that only a limited number of the manifests that refer to an image is opened, all with
// the same token.
func TestReferrersAreLimited(t *testing.T) {
	f := registrytest.New(t, true)
	f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(wasm, "application/wasm")))
	var manifests, pings, foreign atomic.Int32
	many := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case r.URL.Path == "/v2/":
			pings.Add(1)
		case strings.Contains(r.URL.Path, "/referrers/"):
			w.Header().Set("Content-Type", string(types.OCIImageIndex))
			index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
			for n := range 1000 {
				digest, _, _ := v1.SHA256(strings.NewReader(strconv.Itoa(n)))
				kind := types.OCIManifestSchema1
				if n%2 == 0 {
					kind = "application/json"
				}
				index.Manifests = append(index.Manifests, v1.Descriptor{MediaType: kind, Size: 2, Digest: digest})
			}
			_ = json.NewEncoder(w).Encode(index)
			return
		case strings.Contains(r.URL.Path, "/manifests/sha256:"):
			manifests.Add(1)
			digest, _, _ := v1.SHA256(strings.NewReader("0"))
			if strings.HasSuffix(r.URL.Path, digest.String()) {
				foreign.Add(1)
			}
		}
		next.ServeHTTP(w, r)
	}
	f.Inject(many)
	access, err := OCI{Image: f.Host() + "/plugins/a:1", Authorities: f.Authorities()}.Open(Options{})
	require.NoError(t, err)
	image, err := access.Resolve(t.Context())
	require.NoError(t, err)
	for _, a := range image.Attachments(t.Context()) {
		assert.Equal(t, NotFound, reasonOfError(a.Err()))
	}
	assert.EqualValues(t, maxAttachments, manifests.Load())
	assert.EqualValues(t, 1, pings.Load())
	assert.Zero(t, foreign.Load())
}

// TestCredentials checks that credentials are sent only to their registry, even if it redirects to another host.
func TestCredentials(t *testing.T) {
	var leaked atomic.Pointer[string]
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if header := r.Header.Get("Authorization"); header != "" {
			leaked.Store(&header)
		}
		_, _ = w.Write(wasm)
	}))
	defer elsewhere.Close()
	f := registrytest.New(t, false)
	f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(wasm, "application/wasm")))
	private := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, password, _ := r.BasicAuth(); user != "puller" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="plugins"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if registrytest.IsBlob(r) {
			http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, r)
	}
	f.Inject(private)
	config := func(registry string) []byte {
		return fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, registry, base64.StdEncoding.EncodeToString([]byte("puller:secret")))
	}
	options := Options{InsecureRegistries: []string{f.Host(), strings.Replace(elsewhere.Listener.Addr().String(), "127.0.0.1", "localhost", 1)}}
	image := f.Host() + "/plugins/a:1"
	got, err := fetch(t, OCI{Image: image, Credentials: config(f.Host())}, options)
	require.NoError(t, err)
	assert.Equal(t, wasm, got)
	if header := leaked.Load(); header != nil {
		t.Errorf("another host got %q", *header)
	}
	_, err = fetch(t, OCI{Image: image, Credentials: config("https://" + f.Host() + "/v2/")}, options)
	require.NoError(t, err)
	_, err = fetch(t, OCI{Image: image}, options)
	assert.Equal(t, Unauthorized, reasonOfError(err))
	_, err = fetch(t, OCI{Image: image, Credentials: config("registry.example.com")}, options)
	assert.Equal(t, InvalidSecret, reasonOfError(err))
	_, err = fetch(t, OCI{Image: image, Credentials: []byte(`{"auths": "secret-text"}`)}, options)
	assert.Equal(t, InvalidSecret, reasonOfError(err))
	assert.NotContains(t, err.Error(), "secret-text")
}

// TestTokens checks access with a token from a separate server, which the registry specifies. The credentials, which
// may be an identity token, must be sent only to the token server, and the token only to the registry. A server to
// which one of them redirects must receive neither. No credentials may be sent to a token server without TLS, or with a
// private address that is not the registry's own, and redirects to such a server must not be followed.
func TestTokens(t *testing.T) {
	const token, basic = "Bearer token-for-one-image", "Basic cHVsbGVyOnNlY3JldA==" // puller:secret
	const password = `{"username":"puller","password":"secret"}`
	// The user is 00000000-0000-0000-0000-000000000000, without a password.
	const identity = `{"auth":"MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAwOg==","identitytoken":"puller-identity"}`
	bundle, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(bundle, key)
	require.NoError(t, err)
	// serve returns the URL of a server whose certificate is for localhost only.
	serve := func(t *testing.T, answer http.HandlerFunc) string {
		server := httptest.NewUnstartedServer(answer)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	}
	var leaked atomic.Pointer[string]
	leak := func(w http.ResponseWriter, r *http.Request) {
		if header := r.Header.Get("Authorization") + r.FormValue("refresh_token"); header != "" {
			leaked.Store(&header)
		}
		_, _ = w.Write(wasm)
	}
	elsewhere, plain := serve(t, leak), httptest.NewServer(http.HandlerFunc(leak))
	defer plain.Close()
	grant := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != basic || r.FormValue("scope") != "repository:plugins/a:pull" || r.FormValue("service") != "plugins" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"token":%q}`, strings.TrimPrefix(token, "Bearer "))
	}
	exchange := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.RawQuery != "" || r.FormValue("grant_type") != "refresh_token" ||
			r.FormValue("refresh_token") != "puller-identity" ||
			r.FormValue("scope") != "repository:plugins/a:pull" || r.FormValue("service") != "plugins" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":%q}`, strings.TrimPrefix(token, "Bearer "))
	}
	redirect := func(target string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target, http.StatusTemporaryRedirect)
		}
	}
	unencrypted := strings.Replace(plain.URL, "127.0.0.1", "localhost", 1)
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for title, c := range map[string]struct {
		answer http.HandlerFunc // of the token server
		public bool             // the plugin has no credentials
		entry  string           // the credentials, by default a password
		realm  string           // URL of the token server, by default one that answers
		secret string           // host of the credentials, by default the registry
		want   Reason
		says   string
	}{
		"a token": {answer: grant},
		"a public image": {public: true, answer: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				_, _ = fmt.Fprintf(w, `{"token":%q}`, strings.TrimPrefix(token, "Bearer "))
			}
		}},
		"no credentials":           {answer: grant, secret: "registry.example.com", want: InvalidSecret},
		"refused credentials":      {answer: refuse, want: Unauthorized},
		"an identity token":        {answer: exchange, entry: identity},
		"a refused identity token": {answer: refuse, entry: identity, want: Unauthorized},
		"a redirect to https":      {answer: redirect(elsewhere), want: Unavailable},
		"a redirect to http":       {answer: redirect(unencrypted), want: Unavailable, says: tokenRedirectRemedy},
		"a redirect to a private address": {answer: redirect(strings.Replace(elsewhere, "localhost", "127.0.0.1", 1)),
			want: Unavailable, says: tokenRedirectRemedy},
		"a redirected identity token": {answer: redirect(elsewhere), entry: identity,
			want: ForbiddenRedirect, says: tokenFormRemedy},
		"an identity token redirected to http": {answer: redirect(unencrypted), entry: identity,
			want: Unavailable, says: tokenRedirectRemedy},
		"without TLS": {realm: unencrypted, want: Unavailable, says: invalidRealmRemedy},
		"private address": {realm: strings.Replace(elsewhere, "localhost", "127.0.0.1", 1),
			want: Unavailable, says: invalidRealmRemedy},
		"no end": {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxManifestBytes+1)) },
			want: Unavailable, says: "byte limit"},
	} {
		t.Run(title, func(t *testing.T) {
			leaked.Store(nil)
			realm := cmp.Or(c.realm, serve(t, c.answer))
			f := registrytest.New(t, true)
			f.Push(t, "plugins/a:1", registrytest.Image(t, layerOf(wasm, "application/wasm")))
			f.Inject(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				switch header := r.Header.Get("Authorization"); {
				case header == basic, strings.Contains(header, "identity"):
					leaked.Store(&header)
				case header != token:
					w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="plugins"`, realm))
					w.WriteHeader(http.StatusUnauthorized)
				case registrytest.IsBlob(r):
					http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
				default:
					next.ServeHTTP(w, r)
				}
			})
			credentials := fmt.Appendf(nil, `{"auths":{%q:%s}}`, cmp.Or(c.secret, f.Host()), cmp.Or(c.entry, password))
			if c.public {
				credentials = nil
			}
			got, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1", Credentials: credentials, Authorities: slices.Concat(f.Authorities(), bundle)}, Options{})
			if header := leaked.Load(); header != nil {
				t.Errorf("another server got %q", *header)
			}
			require.Equal(t, c.want, reasonOfError(err), "%v", err)
			if c.want == "" {
				assert.Equal(t, wasm, got)
			} else {
				assert.ErrorContains(t, err, c.says)
				assert.NotContains(t, err.Error(), "puller")
			}
		})
	}
}

// TestTokenServersOfInsecureRegistries checks that a registry that may be accessed without TLS cannot make the client
// send credentials to another host without TLS. Token servers and targets of redirects must be listed, too.
func TestTokenServersOfInsecureRegistries(t *testing.T) {
	var reached atomic.Int32
	unlisted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, `{"token":"of-a-stranger"}`)
	}))
	defer unlisted.Close()
	onLocalhost := func(address string) string { return strings.Replace(address, "127.0.0.1", "localhost", 1) }
	listed := httptest.NewServer(http.RedirectHandler(onLocalhost(unlisted.URL), http.StatusTemporaryRedirect))
	defer listed.Close()
	for title, c := range map[string]struct {
		realm, entry string
		want         Reason
	}{
		"a redirect":               {onLocalhost(listed.URL), `{"username":"puller","password":"secret"}`, ForbiddenRedirect},
		"a redirected identity":    {onLocalhost(listed.URL), `{"identitytoken":"puller-identity"}`, ForbiddenRedirect},
		"a token server":           {onLocalhost(unlisted.URL), `{"username":"puller","password":"secret"}`, Unavailable},
		"a token server, identity": {onLocalhost(unlisted.URL), `{"identitytoken":"puller-identity"}`, Unavailable},
	} {
		t.Run(title, func(t *testing.T) {
			f := registrytest.New(t, false)
			f.Inject(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="plugins"`, c.realm))
				w.WriteHeader(http.StatusUnauthorized)
			})
			_, err := fetch(t, OCI{Image: f.Host() + "/plugins/a:1", Credentials: fmt.Appendf(nil, `{"auths":{%q:%s}}`, f.Host(), c.entry)},
				Options{InsecureRegistries: []string{f.Host(), onLocalhost(listed.Listener.Addr().String())}})
			assert.Equal(t, c.want, reasonOfError(err), "%v", err)
			assert.NotContains(t, err.Error(), "puller")
			assert.Zero(t, reached.Load(), "the host that is not listed was reached")
		})
	}
}

// TestCredentialsOfTheLongestEntry checks that the credentials of the longest entry are used if several entries contain
// a repository. An entry that ends within a segment of the repository's path is for another host or path.
func TestCredentialsOfTheLongestEntry(t *testing.T) {
	config := []byte(`{"auths":{
		"registry.example.com": {"username": "host"}, "https://REGISTRY.example.com:443/plugins/": {"username": "folder"},
		"registry.example.com/plugins/labels": {"username": "repository"}, "registry.example.com/plug": {"username": "another folder"},
		"registry.example.co": {"username": "another host"}, "registry.example.com:5000": {"username": "another port"}}}`)
	for image, want := range map[string]string{
		"registry.example.com/other": "host", "registry.example.com/plugins": "folder", "registry.example.com/plugins/a": "folder",
		"registry.example.com/pluginsmith/a": "host", "registry.example.com/plugins/labelsmith": "folder",
		"registry.example.com/plugins/labels": "repository", "registry.example.com/plugins/labels/a": "repository",
		"registry.example.com:5000/plugins/a": "another port", "registry.example.com:5001/plugins/a": "",
		"example.com/plugins/a": "", "registry.example.com.example.org/a": "",
	} {
		reference, err := ParseImage(image + ":1")
		require.NoError(t, err)
		credentials, err := credentialsFor(reference.Context(), config)
		if want == "" {
			assert.Equal(t, InvalidSecret, reasonOfError(err), image)
			continue
		}
		require.NoError(t, err, image)
		got, err := credentials.Authorization()
		require.NoError(t, err)
		assert.Equal(t, want, got.Username, image)
	}
}

// TestErrorsHaveRemedies checks that the message of every reason has exactly one remedy.
func TestErrorsHaveRemedies(t *testing.T) {
	t.Parallel()
	for _, reason := range []Reason{Unauthorized, NotFound, UntrustedCertificate, Truncated, Stalled, TooLarge, ForbiddenRedirect, DigestMismatch, Unavailable} {
		assert.NotEmpty(t, remedies[reason], reason)
		assert.EqualError(t, classify(Errorf(reason, "it failed.")), "it failed: "+remedies[reason])
	}
	own := &Error{Reason: Unavailable, Err: errors.New("it failed"), remedy: "do this"}
	assert.EqualError(t, classify(fmt.Errorf("fetching, %w", own)), "it failed: do this")
}
