// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginrevision"
)

// turnInterval is the retry interval of a promotion while another plugin is being promoted. With a longer interval, the
// second of two promotions is delayed for longer.
const turnInterval = time.Second

// turn is held by the plugin whose candidate is promoted after its rehearsal, until the plugin's status is written,
// because two candidates that were rehearsed without each other must not become active at once.
type turn struct {
	mu     sync.Mutex
	holder string
}

// take reports whether the plugin has the turn now.
func (t *turn) take(plugin string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == "" {
		t.holder = plugin
	}
	return t.holder == plugin
}

// pass ends the turn if the plugin has it.
func (t *turn) pass(plugin string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == plugin {
		t.holder = ""
	}
}

// readOthers returns the key of the active revisions of all other plugins. It is not read from the cache, because a
// virtual kubelet may have newer revisions in its own cache.
func (c *Controller) readOthers(ctx context.Context, p *plugins.ReflectionPlugin) (string, error) {
	all := &plugins.ReflectionPluginList{}
	if err := c.live.List(ctx, all); err != nil {
		return "", fmt.Errorf("listing ReflectionPlugins, %w", err)
	}
	found := make([]*plugins.ReflectionPlugin, len(all.Items))
	for i := range all.Items {
		found[i] = &all.Items[i]
	}
	return pluginrevision.OthersKey(found, p.Name), nil
}

// listCandidates returns requests for the other plugins with a candidate, after the active revision of a plugin has
// changed, because this determines which of their reports count.
func (c *Controller) listCandidates(ctx context.Context, changed client.Object) (requests []reconcile.Request) {
	all := &plugins.ReflectionPluginList{}
	if err := c.client.List(ctx, all); err != nil {
		return nil // a cache returns no error once it is filled
	}
	for i := range all.Items {
		if p := &all.Items[i]; p.Status.CandidateRevision != "" && p.Name != changed.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
		}
	}
	return requests
}
