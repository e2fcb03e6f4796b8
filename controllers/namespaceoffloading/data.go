// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/remotedata"
)

// holdData records which volumes have data in the remote namespaces that would be withdrawn. As long as such volumes
// exist, the namespace is not withdrawn from their provider. A provider that is declared dead is skipped, because it no
// longer deletes anything.
func (c *Controller) holdData(ctx context.Context, nso *offloading.NamespaceOffloading, providers []*provider, withdrawn func(*provider) bool) error {
	loses := func(p *provider) bool { return p.isRequested(nso.Namespace) && !p.dead && withdrawn(p) }
	if !slices.ContainsFunc(providers, loses) {
		return nil
	}
	all, err := remotedata.List(ctx, c.uncached)
	if err != nil {
		return err
	}
	for _, p := range providers {
		if loses(p) {
			p.held = all.On(p.id).In(nso.Namespace).Holding(remotedata.IsConfirmed(nso, p.mapping))
		}
	}
	return nil
}

// isHeld reports whether the remote namespace is kept because it contains data.
func (p *provider) isHeld() bool { return len(p.held) > 0 }

// describeHeld returns a message that lists the volumes that keep a remote namespace, and the remedy.
func (p *provider) describeHeld(namespace string) string {
	return fmt.Sprintf("Namespace %s of cluster %s is not deleted, because it has the data of the volumes %s: %s",
		p.requestedName(namespace), p.id, p.held, p.held.Remedy(remotedata.Annotate("NamespaceOffloading")))
}

// describeAllHeld joins the messages of describeHeld for all providers. The result is empty if no remote namespace is
// kept.
func describeAllHeld(namespace string, providers []*provider) string {
	var held []string
	for _, p := range providers {
		if p.isHeld() {
			held = append(held, p.describeHeld(namespace))
		}
	}
	return strings.Join(held, ". ")
}

// nextHeld returns the delay until the kept remote namespaces are checked again, or 0 if there are none.
func (c *Controller) nextHeld(nso *offloading.NamespaceOffloading, providers []*provider) (wait time.Duration) {
	for _, p := range providers {
		if !p.isHeld() {
			continue
		}
		since := p.leaves
		if nso.DeletionTimestamp != nil {
			since = nso.DeletionTimestamp.Time
		}
		next := remotedata.RecheckInterval(c.options.Clock.Now().Sub(since))
		wait = min(cmp.Or(wait, next), next)
	}
	return wait
}

// keepRetained handles volumes that are retained after their namespace was deleted: they have lost their claims, but
// still have data in the remote namespaces. Therefore the mappings are kept as long as these volumes exist. If a
// namespace with the same name is created, it gets the data back.
func (c *Controller) keepRetained(ctx context.Context, namespace string, providers []*provider) error {
	if !slices.ContainsFunc(providers, (*provider).isHeld) {
		return nil
	}
	found := &corev1.Namespace{}
	err := c.client.Get(ctx, client.ObjectKey{Name: namespace}, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting namespace %s, %w", namespace, err)
	}
	if err == nil && found.DeletionTimestamp == nil {
		return nil
	}
	for _, p := range providers {
		p.retained = p.isHeld() && p.held.AreReleased()
	}
	return nil
}
