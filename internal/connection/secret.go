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

	"github.com/refract-project/refract/api/wire"
)

// Secret is a Secret that contains a kubeconfig under the key "kubeconfig".
type Secret struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

// Read returns the current kubeconfig.
func (s Secret) Read(ctx context.Context) ([]byte, error) {
	secret, err := s.Client.CoreV1().Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting the kubeconfig of the provider from Secret %s/%s, %w", s.Namespace, s.Name, err)
	}
	kubeconfig := secret.Data[wire.KubeconfigSecretKey]
	if len(kubeconfig) == 0 {
		return nil, s.errEmpty()
	}
	return kubeconfig, nil
}

func (s Secret) errEmpty() error {
	return fmt.Errorf("Secret %s/%s has no kubeconfig of the provider: its key %q is empty", s.Namespace, s.Name, wire.KubeconfigSecretKey)
}

// Await reads the kubeconfig repeatedly until use accepts it. This may take long, because the peering may still be in
// progress. Whenever the error of reading or of use changes, problem is called. Await returns only errors of ctx.
func (s Secret) Await(ctx context.Context, retry time.Duration, use func(kubeconfig []byte) error, problem func(error)) ([]byte, error) {
	said := ""
	for {
		kubeconfig, err := s.Read(ctx)
		if err == nil {
			err = s.explainError(use(kubeconfig))
		}
		if err == nil {
			return kubeconfig, nil
		}
		if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			problem(err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retry):
		}
	}
}

// explainError adds the name of the Secret to an error.
func (s Secret) explainError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("using the kubeconfig of the provider in Secret %s/%s, %w", s.Namespace, s.Name, err)
}

// Follow calls use with each kubeconfig that differs from the previous one, until ctx is done. known is the kubeconfig
// before the first one. If use fails, Follow calls problem with the error. If the Secret is deleted or emptied, Follow
// also calls problem.
func (s Secret) Follow(ctx context.Context, known []byte, use func(kubeconfig []byte) error, problem func(error)) error {
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
		now := secret.Data[wire.KubeconfigSecretKey]
		if bytes.Equal(now, known) {
			return
		}
		known = now
		if len(now) == 0 {
			problem(s.errEmpty())
		} else if err := s.explainError(use(now)); err != nil {
			problem(err)
		}
	}
	if _, err := factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, obj any) { look(obj) },
		DeleteFunc: func(any) { problem(fmt.Errorf("Secret %s/%s was deleted", s.Namespace, s.Name)) },
	}); err != nil {
		return fmt.Errorf("watching Secret %s/%s, %w", s.Namespace, s.Name, err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
