// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/admission"
)

// counted is a client that counts its writes, and denials by admission policies.
type counted struct {
	client.Client
	writes, denials *prometheus.CounterVec
}

// countDenial counts a failed write if an admission policy denied it. Denials must be counted here, because a
// controller may treat them as expected errors.
func (c *counted) countDenial(err error) error {
	if err != nil {
		if policy := admission.DenyingPolicy(err); policy != "" {
			c.denials.WithLabelValues(policy).Inc()
		}
	}
	return err
}

func (c *counted) count(obj runtime.Object, subresource, verb string) {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return // the client does not know the kind either, so it does not send the write
	}
	c.writes.WithLabelValues(gvk.Kind, subresource, verb).Inc()
}

// countApply counts an apply request. The kind is in the apply configuration.
func (c *counted) countApply(obj runtime.ApplyConfiguration, subresource string) {
	if named, ok := obj.(interface{ GetKind() *string }); ok && named.GetKind() != nil {
		c.writes.WithLabelValues(*named.GetKind(), subresource, "apply").Inc()
	}
}

// Create counts the write and forwards it, like all of the following methods.
func (c *counted) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	c.count(obj, "", "create")
	return c.countDenial(c.Client.Create(ctx, obj, opts...))
}

func (c *counted) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	c.count(obj, "", "update")
	return c.countDenial(c.Client.Update(ctx, obj, opts...))
}

func (c *counted) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	c.count(obj, "", "patch")
	return c.countDenial(c.Client.Patch(ctx, obj, patch, opts...))
}

func (c *counted) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	c.countApply(obj, "")
	return c.countDenial(c.Client.Apply(ctx, obj, opts...))
}

func (c *counted) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	c.count(obj, "", "delete")
	return c.countDenial(c.Client.Delete(ctx, obj, opts...))
}

func (c *counted) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	c.count(obj, "", "deletecollection")
	return c.countDenial(c.Client.DeleteAllOf(ctx, obj, opts...))
}

func (c *counted) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *counted) SubResource(name string) client.SubResourceClient {
	return &countedPart{SubResourceClient: c.Client.SubResource(name), whole: c, name: name}
}

// countedPart counts writes to a subresource as writes of the object's kind.
type countedPart struct {
	client.SubResourceClient
	whole *counted
	name  string
}

func (p *countedPart) Create(ctx context.Context, obj, part client.Object, opts ...client.SubResourceCreateOption) error {
	p.whole.count(obj, p.name, "create")
	return p.whole.countDenial(p.SubResourceClient.Create(ctx, obj, part, opts...))
}

func (p *countedPart) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	p.whole.count(obj, p.name, "update")
	return p.whole.countDenial(p.SubResourceClient.Update(ctx, obj, opts...))
}

func (p *countedPart) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	p.whole.count(obj, p.name, "patch")
	return p.whole.countDenial(p.SubResourceClient.Patch(ctx, obj, patch, opts...))
}

func (p *countedPart) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	p.whole.countApply(obj, p.name)
	return p.whole.countDenial(p.SubResourceClient.Apply(ctx, obj, opts...))
}
