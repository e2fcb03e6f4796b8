// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
)

// Secret that holds a kubeconfig under the key "kubeconfig".
type Secret struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

// Read returns the kubeconfig as it is now.
func (s Secret) Read(ctx context.Context) ([]byte, error) {
	secret, err := s.Client.CoreV1().Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting the kubeconfig of the provider from Secret %s/%s, %w", s.Namespace, s.Name, err)
	}
	kubeconfig := secret.Data[wire.KubeconfigSecretKey]
	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("Secret %s/%s has no kubeconfig of the provider: its key %q is empty", s.Namespace, s.Name, wire.KubeconfigSecretKey)
	}
	return kubeconfig, nil
}

// Await reads the kubeconfig, again and again until it is there and parses: a
// peering that is being set up is no reason to end. It returns ctx's error.
func (s Secret) Await(ctx context.Context, retry time.Duration) ([]byte, error) {
	for {
		kubeconfig, err := s.Read(ctx)
		if err == nil {
			_, err = Parse(kubeconfig)
		}
		if err == nil {
			return kubeconfig, nil
		}
		log.FromContext(ctx).Info("The provider's kubeconfig is not usable yet, trying again", "in", retry.String(), "reason", err.Error())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retry):
		}
	}
}

// Follow calls changed with every new content of the kubeconfig after known,
// until ctx ends. A Secret that is deleted or emptied changes nothing.
func (s Secret) Follow(ctx context.Context, known []byte, changed func(kubeconfig []byte)) error {
	factory := informers.NewSharedInformerFactoryWithOptions(s.Client, 0,
		informers.WithNamespace(s.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.Name).String()
		}))
	look := func(obj any) {
		secret, ok := obj.(*corev1.Secret)
		if !ok {
			return
		}
		if now := secret.Data[wire.KubeconfigSecretKey]; len(now) > 0 && !bytes.Equal(now, known) {
			known = now
			changed(now)
		}
	}
	if _, err := factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, obj any) { look(obj) },
	}); err != nil {
		return fmt.Errorf("watching Secret %s/%s, %w", s.Namespace, s.Name, err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
