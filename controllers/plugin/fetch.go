// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource"
)

// module is the present content of a source.
type module struct {
	digest   string // SHA-256 in hexadecimal digits
	resolved string // the source; an image has its digest
	signer   string
	wasm     []byte              // nil if the module was fetched earlier
	image    *pluginsource.Image // nil if the module was fetched earlier, or is not from an image

	isResolved bool // whether this fetch has resolved the tag of the image
}

// isFresh reports whether this reconciliation has fetched the module.
func (m *module) isFresh() bool { return m.wasm != nil }

// fetch returns the present module of the source. If the source cannot have changed since the last fetch, it returns
// before, the module of the last fetch. It calls acquire before it downloads a module from a server.
func (c *Controller) fetch(ctx context.Context, p *plugins.ReflectionPlugin, before *module, acquire func(context.Context) error) (*module, error) {
	switch from := p.Spec.Source; {
	case from.ConfigMap != nil:
		return c.readConfigMap(ctx, from.ConfigMap)
	case from.HTTP != nil && before.digest != "":
		return before, nil
	case from.HTTP != nil:
		return c.fetchHTTP(ctx, from.HTTP, acquire)
	case from.OCI != nil && before.digest != "" && !c.isResolutionDue(p):
		return before, nil
	case from.OCI != nil:
		return c.fetchOCI(ctx, p, before, acquire)
	}
	return nil, pluginsource.Errorf(pluginsource.InvalidSource, "spec.source: set exactly one of oci, http and configMap")
}

// readConfigMap reads the key of a ConfigMap.
func (c *Controller) readConfigMap(ctx context.Context, from *plugins.ConfigMapSource) (*module, error) {
	configMap := &corev1.ConfigMap{}
	name := fmt.Sprintf("%s/%s", c.options.Namespace, from.Name)
	err := c.live.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: from.Name}, configMap)
	if apierrors.IsNotFound(err) {
		return nil, pluginsource.Errorf(pluginsource.NotFound, "there is no ConfigMap %s", name)
	}
	if err != nil {
		return nil, fmt.Errorf("getting ConfigMap %s, %w", name, err)
	}
	wasm, ok := configMap.BinaryData[from.Key]
	if !ok || len(wasm) == 0 {
		return nil, pluginsource.Errorf(pluginsource.NotFound, "the ConfigMap %s has no key %q in binaryData", name, from.Key)
	}
	return &module{digest: pluginsource.Digest(wasm), resolved: "configMap " + name + "/" + from.Key, wasm: wasm}, nil
}

func (c *Controller) fetchHTTP(ctx context.Context, from *plugins.HTTPSource, acquire func(context.Context) error) (*module, error) {
	authorities, err := c.readSecret(ctx, "caSecret", from.CASecret, "", "ca.crt")
	if err != nil {
		return nil, err
	}
	if err := acquire(ctx); err != nil {
		return nil, err
	}
	wasm, err := pluginsource.HTTP{URL: from.URL, SHA256: from.SHA256, Authorities: authorities}.Fetch(ctx, c.options.Sources)
	if err != nil {
		return nil, err
	}
	return &module{digest: from.SHA256, resolved: pluginsource.RedactURL(from.URL), wasm: wasm}, nil
}

// fetchOCI resolves an image, and downloads it if its digest has changed.
func (c *Controller) fetchOCI(ctx context.Context, p *plugins.ReflectionPlugin, before *module, acquire func(context.Context) error) (*module, error) {
	from := p.Spec.Source.OCI
	credentials, err := c.readSecret(ctx, "pullSecret", from.PullSecret, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey)
	if err != nil {
		return nil, err
	}
	authorities, err := c.readSecret(ctx, "caSecret", from.CASecret, "", "ca.crt")
	if err != nil {
		return nil, err
	}
	registry, err := pluginsource.OCI{Image: from.Image, Credentials: credentials, Authorities: authorities}.Open(c.options.Sources)
	if err != nil {
		return nil, err
	}
	image, err := registry.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	if before.digest != "" && before.resolved == image.Digest.Name() {
		return &module{digest: before.digest, resolved: before.resolved, signer: before.signer, isResolved: true}, nil
	}
	if err := acquire(ctx); err != nil {
		return nil, err
	}
	wasm, err := image.Module(ctx)
	if err != nil {
		return nil, err
	}
	return &module{digest: pluginsource.Digest(wasm), resolved: image.Digest.Name(), wasm: wasm, image: image, isResolved: true}, nil
}

// isResolutionDue reports whether the interval since the last resolution of the tag is over.
func (c *Controller) isResolutionDue(p *plugins.ReflectionPlugin) bool {
	interval := intervalOf(p)
	if interval == 0 {
		return false
	}
	last, ok := c.resolved.Load(p.Name)
	return !ok || c.options.Clock.Since(last.(time.Time)) >= interval
}

// readSecret returns the value of a key of a Secret that a field of the source names, or nil if the reference is nil.
func (c *Controller) readSecret(ctx context.Context, field string, reference *plugins.SecretReference, kind corev1.SecretType, key string) ([]byte, error) {
	if reference == nil {
		return nil, nil
	}
	secret := &corev1.Secret{}
	name := fmt.Sprintf("%s/%s", c.options.Namespace, reference.Name)
	err := c.live.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: reference.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, pluginsource.Errorf(pluginsource.InvalidSecret, "%s: there is no Secret %s, create it", field, name)
	case err != nil:
		return nil, fmt.Errorf("getting Secret %s, %w", name, err)
	case kind != "" && secret.Type != kind:
		return nil, pluginsource.Errorf(pluginsource.InvalidSecret, "%s: the Secret %s is of type %q, use one of type %s", field, name, secret.Type, kind)
	case len(secret.Data[key]) == 0:
		return nil, pluginsource.Errorf(pluginsource.InvalidSecret, "%s: the Secret %s has no key %s", field, name, key)
	}
	return secret.Data[key], nil
}

// sourceName returns the name of a source in the policy of signatures.
func sourceName(from plugins.PluginSource) (string, error) {
	switch {
	case from.OCI != nil:
		reference, err := pluginsource.ParseImage(from.OCI.Image)
		if err != nil {
			return "", err
		}
		return reference.Context().Name(), nil
	case from.HTTP != nil:
		u, err := pluginsource.ParseURL(from.HTTP.URL)
		if err != nil {
			return "", err
		}
		return "https://" + u.Host + u.Path, nil
	case from.ConfigMap != nil:
		return "configMap/" + from.ConfigMap.Name, nil
	}
	return "", nil
}
