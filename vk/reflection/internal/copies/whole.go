// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/content"
)

// trim removes, from an object in a response of the provider's API server, the content that is not cached.
func (c *Writer) trim(copied *unstructured.Unstructured) {
	if c.Trim != nil {
		c.Trim(copied)
	}
}

// WholeCopy returns a copy with its whole content. If the cache does not contain all of it, it is read from the
// provider. If the copy on the provider is not the same object as the cached one, the cache is outdated, and WholeCopy
// returns the error of the method replaced.
func (c *Writer) WholeCopy(ctx context.Context, s *Namespace, copied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if _, trimmed := content.DigestOf(copied); !trimmed {
		return copied, nil
	}
	found, err := c.read(ctx, s, copied.GetName())
	if err != nil {
		return nil, err
	}
	if found == nil || found.GetUID() != copied.GetUID() {
		return nil, c.replaced(s, s.Key(c.LocalName(copied.GetName())), copied, found)
	}
	return found, nil
}
