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

// NewClient returns a client like client.New, for manager.Options. Options that apply to every write, such as a field
// owner, have no effect on the creation of unstructured objects.
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

// creator creates unstructured objects directly, without the inner client.
type creator struct {
	client.Client
	dynamic dynamic.Interface
}

// Create stores the API server's response in the object. Other goroutines may read the object's old content, so its
// map is replaced, not modified.
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
