// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/lab"
	"github.com/refract-project/refract/test/hostile/attacks"
)

// hostileConsumer attacks with the identity of the consumer: it creates forbidden objects, changes its own objects
// into forbidden ones, and deletes objects of the provider. An attack that succeeds ends the game.
func hostileConsumer() fault {
	const name = "hostile-consumer"
	return fault{name: name, of: name,
		inflict: func(ctx context.Context, g *game) error {
			client, err := g.asConsumer()
			if err != nil {
				return err
			}
			list, removals := attacks.OfConsumer(), attacks.RemovalsByConsumer()
			for range 12 {
				namespace := lab.ProviderTenantNamespace
				if users := g.users.all(); len(users) > 0 {
					namespace = remote(users[g.random.IntN(len(users))])
				}
				attack := &list[g.random.IntN(len(list))]
				switch g.random.IntN(3) {
				case 0:
					err = g.remove(ctx, client, &removals[g.random.IntN(len(removals))], namespace)
				case 1:
					err = g.change(ctx, client, attack, namespace)
				default:
					if attack.Tenant {
						namespace = lab.ProviderTenantNamespace
					}
					err = g.create(ctx, client, attack, namespace)
				}
				if err != nil {
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

// create returns an error if an attack succeeds. While the API server is unavailable, the attack has no effect.
func (g *game) create(ctx context.Context, client dynamic.Interface, attack *attacks.Attack, namespace string) error {
	object, err := attack.Object(lab.ConsumerID, namespace)
	if err != nil {
		return err
	}
	_, err = client.Resource(attack.Resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	return g.mustFail(err, "create %s in namespace %s", attack.Name, namespace)
}

// change attacks with an existing object of the consumer.
func (g *game) change(ctx context.Context, client dynamic.Interface, attack *attacks.Attack, namespace string) error {
	patch, ok, err := attack.Change(lab.ConsumerID)
	if err != nil || !ok {
		return err
	}
	objects := client.Resource(attack.Resource).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 20})
	if err != nil || len(list.Items) == 0 {
		return nil //nolint:nilerr // there is nothing to attack
	}
	name := list.Items[g.random.IntN(len(list.Items))].GetName()
	_, err = objects.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return g.mustFail(err, "make %s/%s %s", namespace, name, attack.Name)
}

// remove tries to delete an object that belongs to the provider.
func (g *game) remove(ctx context.Context, client dynamic.Interface, removal *attacks.Removal, namespace string) error {
	err := client.Resource(removal.Resource).Namespace(namespace).Delete(ctx, removal.Name, metav1.DeleteOptions{})
	return g.mustFail(err, "delete %s %s/%s", removal.Resource.Resource, namespace, removal.Name)
}

// mustFail returns an error if an attack did not fail.
func (g *game) mustFail(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	switch {
	case err == nil:
		return fmt.Errorf("the provider lets a consumer %s", what)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		g.say("the attempt to %s had no effect: %v", what, err)
	}
	return nil
}

// foreignNamespace is a namespace of the consumer that is never offloaded.
const foreignNamespace = "kube-system"

// hostileProvider writes at random into the copy of the NamespaceMap in its own cluster: namespaces that were not
// requested, their acceptance, and invalid texts. The consumer must not desire any of these namespaces, and no
// objects of them may be reflected.
func hostileProvider() fault {
	const name = "hostile-provider"
	maps := func(side *lab.Side, namespace string) dynamic.ResourceInterface {
		return side.Dynamic.Resource(offloading.NamespaceMapGVR).Namespace(namespace)
	}
	write := func(ctx context.Context, g *game, field string, value any, subresources ...string) error {
		entries := map[string]any{foreignNamespace: value}
		parent := "spec"
		if len(subresources) > 0 {
			parent = "status"
		}
		patch, err := json.Marshal(map[string]any{parent: map[string]any{field: entries}})
		if err != nil {
			return fmt.Errorf("encoding the patch, %w", err)
		}
		_, err = maps(g.Provider, lab.ProviderTenantNamespace).Patch(ctx, lab.ProviderID, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
		return err
	}
	lies := []func(ctx context.Context, g *game) error{
		func(ctx context.Context, g *game) error {
			return write(ctx, g, "desiredMapping", remote("stolen"))
		},
		func(ctx context.Context, g *game) error {
			return write(ctx, g, "currentMapping", map[string]any{"remoteNamespace": remote("stolen"), "phase": offloading.MappingAccepted}, "status")
		},
		func(ctx context.Context, g *game) error {
			text := "\x1b[2J" + strings.Repeat("\u202e\r\n", 4<<10)
			return write(ctx, g, "currentMapping", map[string]any{"phase": offloading.MappingCreationLoopBackOff, "message": text}, "status")
		},
	}
	return fault{name: name, of: name, late: true,
		inflict: func(ctx context.Context, g *game) error {
			for _, lie := range g.random.Perm(len(lies))[:1+g.random.IntN(len(lies))] {
				if err := g.attempt(ctx, name, func(ctx context.Context) error { return lies[lie](ctx, g) }); err != nil {
					return err
				}
			}
			return nil
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
				err = errors.Join(write(ctx, g, "desiredMapping", nil), write(ctx, g, "currentMapping", nil, "status"))
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		},
	}
}

// desiresForeign returns an error if a NamespaceMap of the consumer contains the namespace that only the provider has
// added, as desired or as accepted.
func desiresForeign(nm map[string]any) error {
	for _, path := range [][]string{{"spec", "desiredMapping"}, {"status", "currentMapping"}} {
		// A missing map has no entries.
		entries, _, _ := unstructured.NestedMap(nm, path...)
		if entry, ok := entries[foreignNamespace]; ok {
			return fmt.Errorf("%s of the consumer has %v for namespace %s, which only the provider has asked for", strings.Join(path, "."), entry, foreignNamespace)
		}
	}
	return nil
}
