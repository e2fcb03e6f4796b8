// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchTo patches fields of an object. The object then has the content of the API server's response.
func PatchTo(ctx context.Context, c client.Client, object client.Object, fields map[string]any) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding a patch, %w", err)
	}
	if err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patching %s, %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}
