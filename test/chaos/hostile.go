// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/lab"
	"github.com/refract-project/refract/test/hostile/attacks"
)

// hostileConsumer tries, with the identity of the consumer, what no consumer may do. An attack that succeeds ends the game.
func hostileConsumer() fault {
	const name = "hostile-consumer"
	return fault{name: name, of: name,
		inflict: func(ctx context.Context, g *game) error {
			client, err := g.asConsumer()
			if err != nil {
				return err
			}
			list := attacks.OfConsumer()
			for range 8 {
				attack := list[g.random.IntN(len(list))]
				namespace := lab.ProviderTenantNamespace
				if !attack.Tenant {
					users := g.users.all()
					if len(users) == 0 {
						continue
					}
					namespace = remote(users[g.random.IntN(len(users))])
				}
				if err := g.try(ctx, client, &attack, namespace); err != nil {
					return err
				}
			}
			return nil
		},
		repair: func(context.Context, *game) error { return nil },
	}
}

// asConsumer returns a client of the provider with the permissions of the consumer.
func (g *game) asConsumer() (dynamic.Interface, error) {
	kubeconfig, err := g.NewIdentity()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the consumer, %w", err)
	}
	config.Timeout = 2 * time.Second
	return dynamic.NewForConfig(config)
}

// try returns an error if an attack succeeds. The API server may be unavailable at the same time: then it has no effect.
func (g *game) try(ctx context.Context, client dynamic.Interface, attack *attacks.Attack, namespace string) error {
	object, err := attack.Object(lab.ConsumerID, namespace)
	if err != nil {
		return err
	}
	_, err = client.Resource(attack.Resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return fmt.Errorf("the provider lets a consumer create %s in namespace %s", attack.Name, namespace)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		g.say("%s had no effect: %v", attack.Name, err)
	}
	return nil
}

// foreignNamespace is a namespace of the consumer that nobody has offloaded.
const foreignNamespace = "kube-system"

// hostileProvider adds a namespace to the copy of the NamespaceMap in its own cluster, and claims that it is accepted. The consumer must not
// desire it, and nothing of it may arrive.
func hostileProvider() fault {
	const name = "hostile-provider"
	maps := func(side *lab.Side, namespace string) dynamic.ResourceInterface {
		return side.Dynamic.Resource(offloading.NamespaceMapGVR).Namespace(namespace)
	}
	patch := func(ctx context.Context, g *game, patch string) error {
		_, err := maps(g.Provider, lab.ProviderTenantNamespace).Patch(ctx, lab.ProviderID, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	return fault{name: name, of: name, late: true,
		inflict: func(ctx context.Context, g *game) error {
			return g.attempt(ctx, name, func(ctx context.Context) error {
				return patch(ctx, g, fmt.Sprintf(`{"spec":{"desiredMapping":{%q:%q}}}`, foreignNamespace, remote("stolen")))
			})
		},
		repair: func(ctx context.Context, g *game) error {
			return eventually(ctx, func(ctx context.Context) error {
				own, err := maps(g.Consumer, lab.TenantNamespace).Get(ctx, lab.ProviderID, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				if err == nil {
					if err := desiresForeign(own.Object); err != nil {
						return err
					}
				}
				err = patch(ctx, g, fmt.Sprintf(`{"spec":{"desiredMapping":{%q:null}}}`, foreignNamespace))
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		},
	}
}

// desiresForeign returns an error if a NamespaceMap of the consumer has the namespace that only the provider has added.
func desiresForeign(nm map[string]any) error {
	spec, _ := nm["spec"].(map[string]any)
	desired, _ := spec["desiredMapping"].(map[string]any)
	if remoteNamespace, ok := desired[foreignNamespace]; ok {
		return fmt.Errorf("the consumer desires namespace %s as %v, which only the provider has asked for", foreignNamespace, remoteNamespace)
	}
	return nil
}
