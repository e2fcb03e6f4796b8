// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/refract-project/refract/vk/reflection"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
)

// compiledPlugins creates a folder for compiled plugins, which all labs use: compiling the plugins in each lab would
// take half of the tests' CPU time. Main removes the folder.
var compiledPlugins = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "refract-compiled-") })

// WithDefaultPlugins returns an option with which the lab runs the default plugins.
func WithDefaultPlugins(t *testing.T) func(*reflection.Options) {
	t.Helper()
	h := Must(host.New(t.Context(), host.NewConfig().WithCacheDir(Must(compiledPlugins())(t))))(t)
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
