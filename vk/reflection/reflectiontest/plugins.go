// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"context"
	"testing"

	"github.com/refract-project/refract/vk/reflection"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
)

// WithDefaultPlugins returns an option that runs the default plugins.
func WithDefaultPlugins(t *testing.T) func(*reflection.Options) {
	t.Helper()
	h := Must(host.New(t.Context(), host.NewConfig()))(t)
	registry := host.NewRegistry(nil)
	var keys []string
	for _, kind := range reflection.DefaultKinds() {
		if !kind.Chain.None {
			keys = append(keys, kind.Name)
		}
	}
	chains := Must(source.NewChains(t.Context(), source.ChainsConfig{Host: h, Registry: registry, Kinds: keys,
		Defaults: Must(source.ReadFS(plugins.FS))(t)}))(t)
	t.Cleanup(func() {
		_ = chains.Close(context.Background())
		_ = h.Close(context.Background())
	})
	return func(o *reflection.Options) { o.Registry = registry }
}
