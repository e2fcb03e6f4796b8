// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// mayShow returns a *oscillation.QuarantineError if another client keeps reverting the status that we write. It is not
// used for the statuses of pods, because Kubernetes itself also writes them when a node becomes not ready.
func (o *Writer) mayShow(ctx context.Context, local *unstructured.Unstructured, status map[string]any, hash uint64) error {
	key := raw.Key(local)
	return o.shown.Describe(key, o.shown.MayWrite(key, hash, hash), func() string {
		entries, err := o.managersHere(ctx, local)
		if err != nil {
			return ""
		}
		subresource := ""
		if o.spec.Subresource {
			subresource = "status"
		}
		differing := oscillation.Differences(map[string]any{"status": status}, map[string]any{"status": local.Object["status"]}, false)
		return oscillation.DescribeWriter(entries, subresource, differing)
	})
}
