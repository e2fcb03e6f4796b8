// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"bytes"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
)

// access is what it takes to reach the tenant namespace of a provider.
type access struct {
	kubeconfig []byte
	namespace  string
	cluster    string // which it is meant for
}

func accessFrom(secret *corev1.Secret, vn *offloading.VirtualNode, consumer core.ClusterID) access {
	namespace := secret.Annotations[wire.RemoteTenantNamespaceAnnotation]
	if namespace == "" {
		namespace = wire.TenantNamespace(consumer.String())
	}
	return access{kubeconfig: secret.Data[wire.KubeconfigSecretKey], namespace: namespace, cluster: vn.Spec.ClusterID.String()}
}

// remotes are the providers of VirtualNodes. It is safe for concurrent use.
type remotes struct {
	scheme *runtime.Scheme
	// lifetime ends with the manager.
	lifetime context.Context

	mu     sync.Mutex
	byNode map[types.NamespacedName]*remote
}

// remote is one provider, seen from one VirtualNode, whose lane is the only one to use it.
type remote struct {
	access     access
	connection *connection.Connection
	client     client.Client
	stop       context.CancelFunc
	// watch begins to report changes of the slices. It is called once, when they could be read: a provider that has none, or shows
	// none, would be asked for them for ever.
	watch func() error
}

func newRemotes(scheme *runtime.Scheme) *remotes {
	return &remotes{scheme: scheme, lifetime: context.Background(), byNode: map[types.NamespacedName]*remote{}}
}

// drop ends the watch for a VirtualNode.
func (s *remotes) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byNode[key]; r != nil {
		r.stop()
		delete(s.byNode, key)
	}
}

// open returns the provider of a VirtualNode, with the credentials of now. It makes no requests.
func (s *remotes) open(key types.NamespacedName, with access, answers chan<- event.GenericEvent) (*remote, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	config, err := connection.Parse(with.kubeconfig)
	if err != nil {
		return nil, err
	}
	if r := s.byNode[key]; r != nil && r.access.namespace == with.namespace && r.access.cluster == with.cluster {
		if bytes.Equal(r.access.kubeconfig, with.kubeconfig) {
			return r, nil
		}
		if r.connection.Update(config) == nil {
			r.access = with
			return r, nil
		}
	}
	if r := s.byNode[key]; r != nil {
		r.stop()
		delete(s.byNode, key)
	}
	r, err := s.dial(key, config, with, answers)
	if err != nil {
		return nil, err
	}
	s.byNode[key] = r
	return r, nil
}

// maxAnswer of a provider, in bytes: it has a slice for each virtual node, and an API server stores none of more than some MiB.
const maxAnswer = 4 << 20

func (s *remotes) dial(key types.NamespacedName, config *rest.Config, with access, answers chan<- event.GenericEvent) (*remote, error) {
	config.QPS = -1
	conn, err := connection.New(config, maxAnswer)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: with.cluster, TenantNamespace: with.namespace})
	// The mapper is given, so that nothing is asked of the provider here, while the lock is held.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{auth.GroupVersion})
	mapper.Add(auth.GroupVersion.WithKind(auth.ResourceSliceKind), meta.RESTScopeNamespace)
	c, err := client.New(conn.Config(), client.Options{Scheme: s.scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(s.lifetime)
	r := &remote{access: with, connection: conn, client: c, stop: stop}
	r.watch = sync.OnceValue(func() error { return r.start(ctx, s.scheme, key, answers) })
	return r, nil
}

// start notifies answers whenever a slice changes, until ctx ends. It returns before anything has been asked of the provider.
func (r *remote) start(ctx context.Context, scheme *runtime.Scheme, key types.NamespacedName, answers chan<- event.GenericEvent) error {
	slices, err := cache.New(r.connection.Config(), cache.Options{
		Scheme: scheme, Mapper: r.client.RESTMapper(),
		DefaultNamespaces: map[string]cache.Config{r.access.namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	informer, err := slices.GetInformer(ctx, &auth.ResourceSlice{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	enqueue := func(any) {
		vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		select {
		case answers <- event.GenericEvent{Object: vn}:
		case <-ctx.Done():
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, now any) { enqueue(now) }, DeleteFunc: enqueue,
	}); err != nil {
		return err
	}
	go func() {
		if err := slices.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot watch the ResourceSlices of a provider", "virtualnode", key)
		}
	}()
	return nil
}

// slices returns what the provider has answered, and has changes reported from now on.
func (r *remote) slices(ctx context.Context) ([]auth.ResourceSlice, error) {
	list := &auth.ResourceSliceList{}
	if err := r.client.List(ctx, list, client.InNamespace(r.access.namespace)); err != nil {
		return nil, err
	}
	return list.Items, r.watch()
}
