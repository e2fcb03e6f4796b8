// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

func (c *Controller) setUpWatches(ctx context.Context, mgr manager.Manager) error {
	c.remotes.Bind(ctx)
	// Each NamespaceMap has its own worker, so a slow provider delays only its own map.
	lanes := workers.NewLanes(report.Failures(c, c.options.Failed))
	if err := mgr.Add(lanes); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		For(&offloading.NamespaceMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(peers.IsOutgoing))).
		WatchesRawSource(source.Channel(c.remotes.Events(), &handler.EnqueueRequestForObject{})).
		Complete(lanes)
}
