// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Registry accesses one image in a registry. It is returned by OCI.Open.
type Registry struct {
	reference name.Reference
	puller    *remote.Puller // holds the token of the registry
	budget    time.Duration  // remaining time for requests
}

// OCI is an image with one layer. The layer contains the module.
type OCI struct {
	// Image is a reference with a tag or a digest.
	Image string
	// Credentials is the content of .dockerconfigjson. If it is nil, access is anonymous.
	Credentials []byte
	// Authorities are the CA certificates of the registry, in PEM. If it is nil, the system's CAs are used.
	Authorities []byte
}

// Open returns access to the image. Credentials are sent only to the registry that they are for, and to the token
// server that this registry specifies.
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
	puller, err := remote.NewPuller(
		remote.WithAuth(credentials), remote.WithTransport(&guard{next: base, options: options}), remote.WithUserAgent(userAgent),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(),
	)
	if err != nil {
		return nil, classify(err)
	}
	return &Registry{reference: reference, puller: puller, budget: options.budget()}, nil
}

// spend returns a context that ends when the budget is used up. done subtracts the elapsed time from the budget.
func (r *Registry) spend(ctx context.Context) (_ context.Context, done func()) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.budget)
	return ctx, func() {
		cancel()
		r.budget -= time.Since(started)
	}
}

// Image is an image that was resolved to its digest.
type Image struct {
	// Digest is the digest of the manifest or index. Signatures refer to it.
	Digest name.Digest

	manifest  []byte
	mediaType types.MediaType
	registry  *Registry
}

// Resolve resolves the image to its digest.
func (r *Registry) Resolve(ctx context.Context) (*Image, error) {
	ctx, done := r.spend(ctx)
	defer done()
	return r.resolve(ctx, r.reference)
}

func (r *Registry) resolve(ctx context.Context, reference name.Reference) (*Image, error) {
	found, err := r.puller.Get(ctx, reference)
	if err != nil {
		return nil, classify(fmt.Errorf("resolving %s, %w", reference, redactError(err)))
	}
	if len(found.Manifest) > maxManifestBytes {
		return nil, Errorf(TooLarge, "the manifest of %s has more than %d bytes, the maximum", reference, maxManifestBytes)
	}
	if err := checkKind(found.Manifest, found.MediaType); err != nil {
		return nil, Errorf(WrongMediaType, "%s %w", reference, err)
	}
	return &Image{Digest: reference.Context().Digest(found.Digest.String()), manifest: found.Manifest, mediaType: found.MediaType, registry: r}, nil
}

// checkKind returns an error if a manifest could be parsed both as an image and as an index. The media type that the
// registry reports is not protected by the signature.
func checkKind(manifest []byte, mediaType types.MediaType) error {
	var kind struct {
		MediaType types.MediaType `json:"mediaType"`
		Layers    json.RawMessage `json:"layers"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(manifest, &kind); err != nil {
		return fmt.Errorf("has a manifest that cannot be parsed, %w", err)
	}
	switch {
	case kind.Layers != nil && kind.Manifests != nil:
		return errors.New("has a manifest with layers and manifests: push it again, as an image or an index")
	case kind.MediaType != "" && kind.MediaType != mediaType:
		return fmt.Errorf("is of the media type %q, and the registry says %q", kind.MediaType, mediaType)
	case kind.Layers != nil && mediaType.IsIndex(), kind.Manifests != nil && mediaType.IsImage():
		return fmt.Errorf("is not what the registry says, %q", mediaType)
	}
	return nil
}

// Module returns the module in the image.
func (i *Image) Module(ctx context.Context) ([]byte, error) {
	ctx, done := i.registry.spend(ctx)
	defer done()
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

// wasmImage returns the image for WebAssembly that an index contains.
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
	return i.registry.blob(ctx, i.Digest.Context(), layer, maxArchiveBytes, unpack)
}

// blob calls read with the content of a blob, and returns its result. It checks the digest of the blob.
func (r *Registry) blob(ctx context.Context, repository name.Repository, blob v1.Descriptor, most int64, read func(io.Reader, int64) ([]byte, error)) ([]byte, error) {
	if blob.Size > most {
		return nil, Errorf(TooLarge, "the blob %s has %d bytes, more than %d, the maximum", blob.Digest, blob.Size, most)
	}
	layer, err := r.puller.Layer(ctx, repository.Digest(blob.Digest.String()))
	if err != nil {
		return nil, err
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, redactError(err)
	}
	defer func() { _ = content.Close() }()
	reader := limit(content, most, "the blob "+blob.Digest.String())
	data, err := read(reader, blob.Size)
	// The digest can be checked only when all data was read. If the digest is wrong, this is the cause of any error of
	// read.
	if _, wrong := io.Copy(io.Discard, reader); wrong != nil {
		return nil, fmt.Errorf("reading %s, %w", reader.what, wrong)
	}
	if err == nil && reader.read != blob.Size {
		err = Errorf(Truncated, "the blob %s has %d bytes, its manifest says %d", blob.Digest, reader.read, blob.Size)
	}
	return data, err
}

// Attachment is a layer of a manifest that is attached to an image, such as a signature.
type Attachment struct {
	MediaType types.MediaType
	// Signature is the annotation with the signature on a layer that cosign 2 has written.
	Signature string
	read      func(context.Context) ([]byte, error)
	err       error
}

// Err returns the error if the attachment could not be read, and nil otherwise.
func (a Attachment) Err() error { return a.err }

// Read returns the content of the layer.
func (a Attachment) Read(ctx context.Context) ([]byte, error) { return a.read(ctx) }

const (
	// maxAttachments is the maximum number of attachments that are read, for the tag and for the referrers
	// separately. maxAttachmentBytes is the maximum size of each.
	maxAttachments      = 64
	maxAttachmentBytes  = 1 << 20
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// Attachments returns the layers that are attached to the image: first the layers of the manifest with the tag of
// cosign 2, followed by the layers of referrers. A layer that cannot be read is an Attachment with an Err, because
// another one may have the required signature.
func (i *Image) Attachments(ctx context.Context) []Attachment {
	ctx, done := i.registry.spend(ctx)
	defer done()
	return append(i.tagged(ctx), i.referring(ctx)...)
}

// tagged returns the layers of the image with the tag sha256-<digest>.sig.
func (i *Image) tagged(ctx context.Context) []Attachment {
	attached, err := i.layersOf(ctx, i.Digest.Context().Tag(strings.Replace(i.Digest.DigestStr(), ":", "-", 1)+".sig"))
	switch {
	case err == nil:
		return attached
	case IsOf(err, NotFound):
		return nil
	}
	return []Attachment{{err: err}}
}

// referring returns the layers of the manifests that refer to the image.
func (i *Image) referring(ctx context.Context) (attachments []Attachment) {
	manifest, err := i.referrers(ctx)
	if err != nil {
		return []Attachment{{err: classify(fmt.Errorf("listing the referrers of %s, %w", i.Digest, err))}}
	}
	opened := 0
	for _, m := range manifest.Manifests {
		if !m.MediaType.IsImage() {
			continue
		}
		if opened++; opened > maxAttachments || len(attachments) >= maxAttachments {
			break
		}
		// Each manifest is opened, because some registries report the type of its config instead of its artifact
		// type.
		layers, err := i.layersOf(ctx, i.Digest.Context().Digest(m.Digest.String()))
		if err != nil {
			layers = []Attachment{{err: err}}
		}
		attachments = append(attachments, layers...)
		if err != nil && !IsDamage(err) {
			break // Further requests would fail, too.
		}
	}
	return attachments
}

func (i *Image) referrers(ctx context.Context) (*v1.IndexManifest, error) {
	index, err := remote.Referrers(i.Digest, remote.WithContext(ctx), remote.Reuse(i.registry.puller))
	if err != nil {
		return nil, redactError(err)
	}
	return index.IndexManifest()
}

func (i *Image) layersOf(ctx context.Context, reference name.Reference) (attachments []Attachment, err error) {
	found, err := i.registry.puller.Get(withLimit(ctx, maxSignatureManifestBytes), reference)
	if err != nil {
		return nil, classify(fmt.Errorf("getting the signatures %s, %w", reference, redactError(err)))
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(found.Manifest))
	if err != nil {
		return nil, nil //nolint:nilerr // no signature
	}
	for _, layer := range manifest.Layers[:min(len(manifest.Layers), maxAttachments)] {
		blob := v1.Descriptor{MediaType: layer.MediaType, Digest: layer.Digest, Size: layer.Size}
		attachments = append(attachments, Attachment{MediaType: layer.MediaType, Signature: layer.Annotations[signatureAnnotation], read: func(ctx context.Context) ([]byte, error) {
			ctx, done := i.registry.spend(ctx)
			defer done()
			data, err := i.registry.blob(ctx, i.Digest.Context(), blob, maxAttachmentBytes, readAttachment)
			return data, classify(err)
		}})
	}
	return attachments, nil
}

func readAttachment(layer io.Reader, size int64) ([]byte, error) {
	return readAll(layer, size, maxAttachmentBytes, "the attachment")
}
