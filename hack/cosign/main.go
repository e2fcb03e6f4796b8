// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command cosign signs images with a real cosign, in both of cosign's layouts. The images are test data for the
// verification of plugins.
//
//	go -C hack/cosign run . $PWD/internal/pluginsource/signature/testdata $PWD/examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm
//
// writes the public keys and an OCI image layout, in which an annotation has the name of each image. All images contain
// the given module. It starts a registry on the loopback address and needs no other network. Each run creates new keys
// and deletes the private keys.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nameAnnotation is the annotation with the name of an image in the layout, such as v2. The names of its signatures
// have a suffix, such as v2.signature or v3.referrer.
const nameAnnotation = "org.opencontainers.image.ref.name"

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go -C hack/cosign run . FOLDER MODULE")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(folder, module string) error {
	wasm, err := os.ReadFile(module)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "refract-cosign-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	m := maker{wasm: wasm, work: work, registry: strings.TrimPrefix(server.URL, "http://"), layout: path}
	if err := m.keys(folder, "trusted", "other"); err != nil {
		return err
	}
	predicate := filepath.Join(work, "predicate.json")
	if err := os.WriteFile(predicate, []byte(`{"vulnerabilities": 1}`), 0o600); err != nil {
		return err
	}
	sign := func(key string, more ...string) []string {
		return append([]string{"sign", "--yes", "--key", filepath.Join(work, key+".key"), "--tlog-upload=false", "--use-signing-config=false"}, more...)
	}
	return errors.Join(
		m.make("unsigned"),
		m.make("v2", sign("trusted", "--new-bundle-format=false")...),
		m.make("v3", sign("trusted")...),
		m.make("other-v2", sign("other", "--new-bundle-format=false")...),
		m.make("other-v3", sign("other")...),
		m.make("attested", "attest", "--yes", "--key", filepath.Join(work, "trusted.key"), "--tlog-upload=false", "--use-signing-config=false", "--new-bundle-format=true", "--type", "custom", "--predicate", predicate),
	)
}

type maker struct {
	wasm           []byte
	work, registry string
	layout         layout.Path
}

// cosign runs the version of cosign pinned in go.mod, or the binary named by $COSIGN if that is set.
func (m *maker) cosign(args ...string) error {
	command := exec.Command("go", append([]string{"tool", "cosign"}, args...)...)
	if binary := os.Getenv("COSIGN"); binary != "" { // an existing binary, which need not be built
		command = exec.Command(binary, args...)
	}
	command.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+m.work, "GOPATH="+goEnv("GOPATH"), "GOCACHE="+goEnv("GOCACHE"), "GOMODCACHE="+goEnv("GOMODCACHE"))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("cosign %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}

func goEnv(name string) string {
	value, err := exec.Command("go", "env", name).Output()
	if err != nil {
		log.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

// keys creates key pairs and copies the public keys to the folder.
func (m *maker) keys(folder string, names ...string) error {
	for _, n := range names {
		if err := m.cosign("generate-key-pair", "--output-key-prefix", filepath.Join(m.work, n)); err != nil {
			return err
		}
		public, err := os.ReadFile(filepath.Join(m.work, n+".pub"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, n+".pub"), public, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// make pushes an image, runs a cosign command for it, and stores the image and its attachments in the layout.
func (m *maker) make(image string, command ...string) error {
	reference, err := name.ParseReference(m.registry+"/plugins/"+image+":1", name.Insecure)
	if err != nil {
		return err
	}
	made, err := newImage(image, m.wasm)
	if err != nil {
		return err
	}
	if err := remote.Write(reference, made); err != nil {
		return err
	}
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	signed := reference.Context().Digest(digest.String())
	if len(command) > 0 {
		if err := m.cosign(append(command, "--allow-insecure-registry", signed.String())...); err != nil {
			return err
		}
	}
	if err := m.keep(image, made); err != nil {
		return err
	}
	return m.keepAttached(image, signed)
}

// newImage returns an image that contains a module, in the layout of the CNCF. The title is an annotation, so that each
// image has its own digest.
func newImage(title string, wasm []byte) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.wasm.config.v0+json")
	image, err := mutate.AppendLayers(image, static.NewLayer(wasm, "application/wasm"))
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, map[string]string{"org.opencontainers.image.title": title}).(v1.Image), nil
}

func (m *maker) keep(title string, image v1.Image) error {
	return m.layout.AppendImage(image, layout.WithAnnotations(map[string]string{nameAnnotation: title}))
}

// keepAttached stores the signatures of an image in the layout. Cosign attaches them either as an image with a tag, or
// as referrers of the signed image.
func (m *maker) keepAttached(title string, signed name.Digest) error {
	tag := signed.Context().Tag(strings.Replace(signed.DigestStr(), ":", "-", 1) + ".sig")
	if image, err := remote.Image(tag); err == nil {
		return m.keep(title+".signature", image)
	}
	index, err := remote.Referrers(signed)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, referrer := range manifest.Manifests {
		image, err := remote.Image(signed.Context().Digest(referrer.Digest.String()))
		if err != nil {
			return err
		}
		if err := m.keep(title+".referrer", image); err != nil {
			return err
		}
	}
	return nil
}
