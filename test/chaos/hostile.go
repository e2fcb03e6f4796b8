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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/test/hostile/attacks"
	"github.com/refract-project/refract/test/support/lab"
)

// hostileConsumer attacks the provider with the identity of the consumer: it creates forbidden objects, changes
// permitted objects into forbidden ones, and deletes objects of the provider. The game fails if an attack succeeds.
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

// asConsumer returns a client for the provider with the permissions of the consumer.
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

// create tries to create the object of an attack. It returns an error if this succeeds, or if a policy refuses it for
// another reason than the expected one. If the API server is unavailable, the attack has no effect.
func (g *game) create(ctx context.Context, client dynamic.Interface, attack *attacks.Attack, namespace string) error {
	object, err := attack.Object(lab.ConsumerID, namespace)
	if err != nil {
		return err
	}
	_, err = client.Resource(attack.Resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	if isOtherRefusal(err, attack.Refusal) {
		return fmt.Errorf("the provider does not let a consumer create %s in namespace %s, but for another reason than %q, %w",
			attack.Name, namespace, attack.Refusal, err)
	}
	return g.mustFail(err, "create %s in namespace %s", attack.Name, namespace)
}

// change applies the patch of an attack to a random object of the consumer. It returns an error if the provider accepts
// the patch.
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

// remove tries to delete an object that belongs to the provider, and returns an error if this succeeds.
func (g *game) remove(ctx context.Context, client dynamic.Interface, removal *attacks.Removal, namespace string) error {
	err := client.Resource(removal.Resource).Namespace(namespace).Delete(ctx, removal.Name, metav1.DeleteOptions{})
	return g.mustFail(err, "delete %s %s/%s", removal.Resource.Resource, namespace, removal.Name)
}

// isOtherRefusal reports whether an admission policy has refused an attack for another reason than the expected one. In
// this case, the intended protection might be missing. It returns false for denials that do not depend on the object,
// for example because the namespace is being deleted, or because the consumer has no access yet.
func isOtherRefusal(err error, refusal string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") &&
		!strings.Contains(err.Error(), refusal)
}

// mustFail returns an error if err is nil, because the attack has then succeeded. If err is not a refusal, mustFail
// reports that the attack had no effect.
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

// stolenNamespace is the remote namespace to which the hostile provider maps foreignNamespace.
var stolenNamespace = remote("stolen")

// openStolen creates stolenNamespace on the provider, and lets everybody write to it. The namespace is not in the
// provider's NamespaceMap, so the provider's controllers do not delete it together with the entry.
func (g *game) openStolen(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stolenNamespace}}
	_, err := g.Provider.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	everybody := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everybody"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	}
	_, err = g.Provider.Client.RbacV1().RoleBindings(stolenNamespace).Create(ctx, everybody, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// findStolen returns an error if the remote namespace contains an object of the consumer. The ConfigMap with the
// provider's root certificates is not such an object.
func (g *game) findStolen(ctx context.Context) error {
	core := func(resource string) schema.GroupVersionResource {
		return corev1.SchemeGroupVersion.WithResource(resource)
	}
	for _, resource := range []schema.GroupVersionResource{
		core("secrets"), core("configmaps"), core("services"), core("pods"),
		discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), offloading.ShadowPodGVR,
	} {
		list, err := g.Provider.Dynamic.Resource(resource).Namespace(stolenNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if name := list.Items[i].GetName(); name != "kube-root-ca.crt" {
				return fmt.Errorf("%s %s/%s is on the provider, although namespace %s is not offloaded",
					resource.Resource, stolenNamespace, name, foreignNamespace)
			}
		}
	}
	return nil
}

// hostileProvider makes random changes to the copy of the NamespaceMap in the provider's own cluster: it adds
// namespaces that were not requested, accepts them, and writes invalid texts. The remote namespace exists, and the
// consumer may write to it. Nevertheless the consumer must not request any of these namespaces, and none of their
// objects may be reflected, so the remote namespace must stay empty.
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
			return write(ctx, g, "desiredMapping", stolenNamespace)
		},
		func(ctx context.Context, g *game) error {
			accepted := map[string]any{"remoteNamespace": stolenNamespace, "phase": offloading.MappingAccepted}
			return write(ctx, g, "currentMapping", accepted, "status")
		},
		func(ctx context.Context, g *game) error {
			text := "\x1b[2J" + strings.Repeat("\u202e\r\n", 4<<10)
			return write(ctx, g, "currentMapping", map[string]any{"phase": offloading.MappingCreationLoopBackOff, "message": text}, "status")
		},
	}
	return fault{name: name, of: name, late: true,
		inflict: func(ctx context.Context, g *game) error {
			if err := g.attempt(ctx, name, g.openStolen); err != nil {
				return err
			}
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
				if err := g.findStolen(ctx); err != nil {
					return err
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

// desiresForeign returns an error if the desired or the current mapping in the consumer's NamespaceMap contains the
// namespace that only the provider has added.
func desiresForeign(nm map[string]any) error {
	for _, path := range [][]string{{"spec", "desiredMapping"}, {"status", "currentMapping"}} {
		// A mapping that does not exist has no entries.
		entries, _, _ := unstructured.NestedMap(nm, path...)
		if entry, ok := entries[foreignNamespace]; ok {
			return fmt.Errorf("%s of the consumer has %v for namespace %s, which only the provider has asked for", strings.Join(path, "."), entry, foreignNamespace)
		}
	}
	return nil
}
