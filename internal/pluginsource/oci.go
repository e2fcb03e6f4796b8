// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Registry is access to an image.
type Registry struct {
	reference name.Reference
	options   []remote.Option
}

// OCI is an image with one layer, the module.
type OCI struct {
	// Image with a tag or a digest.
	Image string
	// Credentials are the content of .dockerconfigjson. Nil: access is anonymous.
	Credentials []byte
	// Authorities are the certificate authorities of the registry in PEM. Nil: the authorities of the system.
	Authorities []byte
}

// Open returns access to the image. Credentials are sent to the registry that they are for, and to the server of tokens that it names.
func (o OCI) Open(options Options) (*Registry, error) {
	reference, err := ParseImage(o.Image)
	if err != nil {
		return nil, err
	}
	host := reference.Context().RegistryStr()
	if options.isInsecure(host) {
		if reference, err = name.ParseReference(reference.Name(), name.Insecure); err != nil {
			return nil, Errorf(InvalidSource, "spec.source.oci.image: %w", err)
		}
	}
	credentials, err := credentialsFor(reference.Context(), o.Credentials)
	if err != nil {
		return nil, err
	}
	base, err := options.base(o.Authorities)
	if err != nil {
		return nil, err
	}
	return &Registry{reference: reference, options: []remote.Option{
		remote.WithAuth(credentials), remote.WithTransport(&guard{next: base, options: options}), remote.WithUserAgent(userAgent),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(),
	}}, nil
}

// Image is a resolved image.
type Image struct {
	// Digest of the manifest or index. Signatures sign it.
	Digest name.Digest

	manifest  []byte
	mediaType types.MediaType
	registry  *Registry
}

// Resolve finds the image.
func (r *Registry) Resolve(ctx context.Context) (*Image, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return r.resolve(ctx, r.reference)
}

func (r *Registry) resolve(ctx context.Context, reference name.Reference) (*Image, error) {
	found, err := remote.Get(reference, r.with(ctx)...)
	if err != nil {
		return nil, classify(fmt.Errorf("resolving %s, %w", reference, err))
	}
	if len(found.Manifest) > maxManifestBytes {
		return nil, Errorf(TooLarge, "the manifest of %s has more than %d bytes, the maximum", reference, maxManifestBytes)
	}
	return &Image{Digest: reference.Context().Digest(found.Digest.String()), manifest: found.Manifest, mediaType: found.MediaType, registry: r}, nil
}

func (r *Registry) with(ctx context.Context) []remote.Option {
	return append([]remote.Option{remote.WithContext(ctx)}, r.options...)
}

// Module returns the module in the image.
func (i *Image) Module(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	wasm, err := i.module(ctx)
	return wasm, classify(err)
}

func (i *Image) module(ctx context.Context) ([]byte, error) {
	switch {
	case i.mediaType.IsIndex():
		image, err := i.wasmImage(ctx)
		if err != nil {
			return nil, err
		}
		return image.module(ctx)
	case !i.mediaType.IsImage():
		return nil, Errorf(WrongMediaType, "%s is of the media type %q: push an image with one layer, the module (application/wasm)", i.Digest, i.mediaType)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(i.manifest))
	if err != nil {
		return nil, Errorf(WrongMediaType, "parsing the manifest of %s, %w", i.Digest, err)
	}
	if len(manifest.Layers) != 1 {
		return nil, Errorf(WrongMediaType, "%s has %d layers (%s): push an image with one layer, the module (application/wasm)", i.Digest, len(manifest.Layers), mediaTypesOf(manifest.Layers))
	}
	return i.layer(ctx, manifest.Layers[0])
}

func mediaTypesOf(descriptors []v1.Descriptor) string {
	var found []string
	for _, d := range descriptors[:min(len(descriptors), 5)] {
		found = append(found, string(d.MediaType))
	}
	return strings.Join(found, ", ")
}

// wasmImage returns the image for WebAssembly in an index.
func (i *Image) wasmImage(ctx context.Context) (*Image, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(i.manifest))
	if err != nil {
		return nil, Errorf(WrongMediaType, "parsing the index %s, %w", i.Digest, err)
	}
	var platforms []string
	for _, m := range index.Manifests {
		if m.MediaType.IsImage() && m.Platform != nil && m.Platform.Architecture == "wasm" {
			return i.registry.resolve(ctx, i.Digest.Context().Digest(m.Digest.String()))
		}
		if m.Platform != nil && len(platforms) < 5 {
			platforms = append(platforms, m.Platform.String())
		}
	}
	return nil, Errorf(WrongMediaType, "the index %s has no image of the architecture wasm (it has %d: %s)", i.Digest, len(index.Manifests), strings.Join(platforms, ", "))
}

// layer returns the module in a layer.
func (i *Image) layer(ctx context.Context, layer v1.Descriptor) ([]byte, error) {
	unpack, known := unpackers[layer.MediaType]
	if !known {
		return nil, Errorf(WrongMediaType, "the layer of %s is of the media type %q: push the module as application/wasm", i.Digest, layer.MediaType)
	}
	data, err := i.registry.blob(ctx, i.Digest.Context(), layer, maxArchiveBytes)
	if err != nil {
		return nil, err
	}
	return unpack(data)
}

// blob reads a blob, whose digest is checked.
func (r *Registry) blob(ctx context.Context, repository name.Repository, blob v1.Descriptor, most int64) ([]byte, error) {
	if blob.Size > most {
		return nil, Errorf(TooLarge, "the blob %s has %d bytes, more than %d, the maximum", blob.Digest, blob.Size, most)
	}
	layer, err := remote.Layer(repository.Digest(blob.Digest.String()), r.with(ctx)...)
	if err != nil {
		return nil, err
	}
	reader, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	data, err := readAll(reader, most, "the blob "+blob.Digest.String())
	if err == nil && int64(len(data)) != blob.Size {
		err = Errorf(Truncated, "the blob %s has %d bytes, its manifest says %d", blob.Digest, len(data), blob.Size)
	}
	return data, err
}

// Attachment is a layer of a manifest that is attached to an image, such as a signature.
type Attachment struct {
	Layer v1.Descriptor
	read  func() ([]byte, error)
}

// Read returns the content of the layer.
func (a Attachment) Read() ([]byte, error) { return a.read() }

const (
	// maxAttachments of an image are read, each of at most maxAttachmentBytes.
	maxAttachments     = 64
	maxAttachmentBytes = 1 << 20
)

// Attachments returns the layers that are attached to the image with a tag of cosign 2, or as referrers, in this order.
func (i *Image) Attachments(ctx context.Context) ([]Attachment, error) {
	tagged, err := i.tagged(ctx)
	if err != nil {
		return nil, classify(err)
	}
	referring, err := i.referring(ctx)
	return append(tagged, referring...), classify(err)
}

// tagged returns the layers of the image with the tag sha256-<digest>.sig.
func (i *Image) tagged(ctx context.Context) ([]Attachment, error) {
	tag := i.Digest.Context().Tag(strings.Replace(i.Digest.DigestStr(), ":", "-", 1) + ".sig")
	return i.layersOf(ctx, tag)
}

// referring returns the layers of the manifests that refer to the image.
func (i *Image) referring(ctx context.Context) (attachments []Attachment, err error) {
	index, err := remote.Referrers(i.Digest, i.registry.with(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("listing the referrers of %s, %w", i.Digest, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("listing the referrers of %s, %w", i.Digest, err)
	}
	for n, m := range manifest.Manifests {
		if n == maxAttachments || !m.MediaType.IsImage() {
			continue
		}
		// Each manifest is opened: some registries list the type of its config as its artifact type.
		layers, err := i.layersOf(ctx, i.Digest.Context().Digest(m.Digest.String()))
		if err != nil {
			return nil, err
		}
		attachments = append(attachments, layers...)
		if len(attachments) >= maxAttachments {
			break
		}
	}
	return attachments, nil
}

func (i *Image) layersOf(ctx context.Context, reference name.Reference) (attachments []Attachment, err error) {
	found, err := remote.Get(reference, i.registry.with(ctx)...)
	var response *transport.Error
	if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting the signatures %s, %w", reference, err)
	}
	manifest, err := v1.ParseManifest(io.LimitReader(bytes.NewReader(found.Manifest), maxManifestBytes))
	if err != nil {
		return nil, nil //nolint:nilerr // no signature
	}
	for _, layer := range manifest.Layers[:min(len(manifest.Layers), maxAttachments)] {
		attachments = append(attachments, Attachment{Layer: layer, read: func() ([]byte, error) {
			data, err := i.registry.blob(ctx, i.Digest.Context(), layer, maxAttachmentBytes)
			return data, classify(err)
		}})
	}
	return attachments, nil
}
