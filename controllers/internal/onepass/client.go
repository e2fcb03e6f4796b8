// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/dynamicclient"
)

// NewClient returns a client like client.New, for manager.Options. When it creates an unstructured object, options that
// apply to all writes, such as a field owner, have no effect.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	usual, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		config.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{})
	}
	dynamicClient, err := dynamicclient.New(config, dynamicclient.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing the client, %w", err)
	}
	return &creator{Client: usual, dynamic: dynamicClient}, nil
}

// creator is a client that creates unstructured objects with the dynamic client.
type creator struct {
	client.Client
	dynamic dynamic.Interface
}

// Create stores the API server's response in the object. It replaces the object's map instead of modifying it, because
// other goroutines may still read the old map.
func (c *creator) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return c.Client.Create(ctx, object, opts...)
	}
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	stored, err := c.dynamic.Resource(resourceOf(u.GroupVersionKind())).Namespace(u.GetNamespace()).Create(ctx, u, *options.AsCreateOptions())
	if err != nil {
		return err
	}
	u.Object = stored.Object
	return nil
}
