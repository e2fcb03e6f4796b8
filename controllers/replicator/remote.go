// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/jsonpatch"
)

const fieldManager = "crd-replicator"

// remotes are the providers that maps are replicated to, by the original map.
// It is safe for concurrent use.
type remotes struct {
	scheme *runtime.Scheme
	origin core.ClusterID
	// observe wraps the client of each provider.
	observe func(client.Client) client.Client
	// lifetime ends with the manager.
	lifetime context.Context

	mu    sync.Mutex
	byMap map[types.NamespacedName]*remote
}

// remote is one provider, seen through one map.
type remote struct {
	access     access
	origin     core.ClusterID
	connection *connection.Connection
	client     client.Client
	stop       context.CancelFunc
}

func newRemotes(scheme *runtime.Scheme, options Options) *remotes {
	observe := options.Observe
	if observe == nil {
		observe = func(c client.Client) client.Client { return c }
	}
	return &remotes{
		scheme: scheme, origin: options.ClusterID, observe: observe,
		lifetime: context.Background(), byMap: map[types.NamespacedName]*remote{},
	}
}

// drop ends the watch on the copy of the map key.
func (s *remotes) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byMap[key]; r != nil {
		r.stop()
		delete(s.byMap, key)
	}
}

// open returns the remote of the map key, with the credentials of now. What
// happens to the copy is sent to answers.
func (s *remotes) open(key types.NamespacedName, with access, answers chan<- event.GenericEvent) (*remote, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	config, err := connection.Parse(with.kubeconfig)
	if err != nil {
		return nil, report.Errorf(report.Invalid, "connecting to the provider of NamespaceMap %s, %w", key, err)
	}
	if r := s.byMap[key]; r != nil && r.access.namespace == with.namespace {
		if bytes.Equal(r.access.kubeconfig, with.kubeconfig) {
			return r, nil
		}
		if r.connection.Update(config) == nil {
			r.access = with
			return r, nil
		}
	}
	if r := s.byMap[key]; r != nil {
		r.stop()
		delete(s.byMap, key)
	}
	r, err := s.dial(key, config, with, answers)
	if err != nil {
		return nil, fmt.Errorf("connecting to the provider of NamespaceMap %s, %w", key, err)
	}
	s.byMap[key] = r
	return r, nil
}

// maxAnswer of a provider, in bytes: it has one NamespaceMap of ours, and an API server stores none of more than some MiB.
const maxAnswer = 16 << 20

func (s *remotes) dial(key types.NamespacedName, config *rest.Config, with access, answers chan<- event.GenericEvent) (*remote, error) {
	config.QPS = -1
	conn, err := connection.New(config, maxAnswer)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: with.cluster, TenantNamespace: with.namespace})
	r := &remote{access: with, origin: s.origin, connection: conn}
	// The mapper is given, so that nothing is asked of the provider here: the
	// lock is held, and a provider that is down must not keep others waiting.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{offloading.GroupVersion})
	mapper.Add(offloading.GroupVersion.WithKind(offloading.NamespaceMapKind), meta.RESTScopeNamespace)
	c, err := client.New(conn.Config(), client.Options{Scheme: s.scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	r.client = s.observe(c)
	ctx, stop := context.WithCancel(s.lifetime)
	r.stop = stop
	if err := r.watch(ctx, s.scheme, key, answers); err != nil {
		stop()
		return nil, err
	}
	return r, nil
}

// watch notifies answers whenever a copy changes, until ctx ends. It returns
// before anything has been asked of the provider.
func (r *remote) watch(ctx context.Context, scheme *runtime.Scheme, key types.NamespacedName, answers chan<- event.GenericEvent) error {
	copies, err := cache.New(r.connection.Config(), cache.Options{
		Scheme:               scheme,
		Mapper:               r.client.RESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{r.access.namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{wire.OriginIDLabel: r.origin.String(), wire.ReplicatedLabel: "true"}),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	informer, err := copies.GetInformer(ctx, &offloading.NamespaceMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	enqueue := func(any) {
		original := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		select {
		case answers <- event.GenericEvent{Object: original}:
		case <-ctx.Done():
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, now any) { enqueue(now) }, DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	go func() {
		if err := copies.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot watch the copy of a NamespaceMap", "namespacemap", key)
		}
	}()
	return nil
}

// get returns the object of that name on the provider, nil when there is none.
func (r *remote) get(ctx context.Context, name string) (*offloading.NamespaceMap, error) {
	copied := &offloading.NamespaceMap{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.access.namespace, Name: name}, copied)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, report.Errorf(report.Provider, "getting NamespaceMap %s/%s on the provider, %w", r.access.namespace, name, err)
	}
	return copied, nil
}

func (r *remote) isCopy(copied *offloading.NamespaceMap) bool {
	return copied.Labels[wire.ReplicatedLabel] == "true" && copied.Labels[wire.OriginIDLabel] == r.origin.String()
}

func (r *remote) create(ctx context.Context, local *offloading.NamespaceMap) error {
	copied := &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.access.namespace, Name: local.Name,
			Labels: maps.Clone(local.Labels), Annotations: maps.Clone(local.Annotations),
		},
		Spec: *local.Spec.DeepCopy(),
	}
	delete(copied.Labels, wire.RemoteIDLabel)
	maps.Copy(copied.Labels, map[string]string{
		wire.ReplicationLabel:     "false",
		wire.ReplicatedLabel:      "true",
		wire.OriginIDLabel:        r.origin.String(),
		wire.RemoteClusterIDLabel: r.origin.String(),
	})
	if err := r.client.Create(ctx, copied, client.FieldOwner(fieldManager)); err != nil {
		return report.Errorf(report.Provider, "creating NamespaceMap %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	return nil
}

func (r *remote) update(ctx context.Context, local, copied *offloading.NamespaceMap) error {
	if copied.DeletionTimestamp != nil || equality.Semantic.DeepEqual(local.Spec, copied.Spec) {
		return nil
	}
	var changes jsonpatch.Patch
	changes.Add("/spec", local.Spec)
	patch, err := changes.For(copied.UID)
	if err != nil {
		return err
	}
	if err := r.client.Patch(ctx, copied, patch, client.FieldOwner(fieldManager)); err != nil {
		return report.Errorf(report.Provider, "updating NamespaceMap %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	return nil
}

// remove deletes our copy and reports whether there is none any more.
func (r *remote) remove(ctx context.Context, name string) (bool, error) {
	copied, err := r.get(ctx, name)
	if err != nil {
		return false, err
	}
	if copied == nil || !r.isCopy(copied) {
		return true, nil
	}
	if copied.DeletionTimestamp != nil {
		return false, nil
	}
	err = r.client.Delete(ctx, copied, client.Preconditions{UID: &copied.UID})
	if client.IgnoreNotFound(err) != nil {
		return false, report.Errorf(report.Provider, "deleting NamespaceMap %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	return false, nil
}
