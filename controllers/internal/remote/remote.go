// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote gives the controllers of a consumer access to the consumer's tenant namespaces on providers. The
// controllers read, write and watch objects of one kind there.
package remote

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
)

// Access contains the data that is needed to access a consumer's tenant namespace on a provider.
type Access struct {
	// Kubeconfig is the kubeconfig of the provider.
	Kubeconfig []byte
	// Namespace is the tenant namespace. Provider is the cluster ID that the provider must report.
	Namespace, Provider string
}

// AccessFrom returns the consumer's access to a provider from a Secret.
func AccessFrom(secret *corev1.Secret, provider, consumer core.ClusterID) Access {
	namespace := secret.Annotations[wire.RemoteTenantNamespaceAnnotation]
	if namespace == "" {
		namespace = wire.TenantNamespace(consumer.String())
	}
	return Access{Kubeconfig: secret.Data[wire.KubeconfigSecretKey], Namespace: namespace, Provider: provider.String()}
}

// Options are the settings of a Pool.
type Options struct {
	Scheme *runtime.Scheme
	// Kind is the kind of the objects on the providers. It must be namespaced.
	Kind schema.GroupVersionKind
	// Others are further namespaced kinds that the clients can read and write. They are not watched.
	Others []schema.GroupVersionKind
	// Selector selects the watched objects. If it is nil, all objects are watched.
	Selector labels.Selector
	// SameName restricts the watch to the object with the name with which the Remote was opened.
	SameName bool
	// Observe wraps the client of each provider. It may be nil.
	Observe func(client.Client) client.Client
}

// Pool contains a Remote for each object of this cluster that needs one. It is safe for concurrent use.
type Pool struct {
	options Options
	events  chan event.GenericEvent

	mu sync.Mutex
	// lifetime is done when the manager stops.
	lifetime context.Context
	remotes  map[types.NamespacedName]*Remote
}

// Remote accesses one provider. It must not be used concurrently.
type Remote struct {
	// Client reads and writes objects of the kinds in the Options. It is not cached.
	client.Client
	// Namespace is the tenant namespace.
	Namespace string

	pool       *Pool
	key        types.NamespacedName
	access     Access
	connection *connection.Connection
	lifetime   context.Context
	stop       context.CancelFunc
	watching   bool
}

// NewPool returns an empty pool.
func NewPool(options Options) *Pool {
	return &Pool{options: options, events: make(chan event.GenericEvent), lifetime: context.Background(), remotes: map[types.NamespacedName]*Remote{}}
}

// Bind sets the context of watches that are started later.
func (p *Pool) Bind(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lifetime = ctx
}

// Events returns the changes on the providers. The object in an event has only the name and namespace with which the
// Remote was opened.
func (p *Pool) Events() <-chan event.GenericEvent { return p.events }

// Drop stops the watch of a Remote and removes it.
func (p *Pool) Drop(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(key)
}

func (p *Pool) drop(key types.NamespacedName) {
	if r := p.remotes[key]; r != nil {
		r.stop()
		delete(p.remotes, key)
	}
}

// ParseKubeconfig parses the kubeconfig of a provider like connection.Parse, and sets the user agent of the controller
// manager. Otherwise the provider would record the name of the executable as the field manager of writes.
func ParseKubeconfig(kubeconfig []byte) (*rest.Config, error) {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = wire.ControllerManagerProcess + "/" + cmdutil.Version()
	return config, nil
}

// Open returns the Remote of an object, with the current credentials. Open sends no requests: it holds the lock of the
// pool, and an unresponsive provider must not block access to other providers.
func (p *Pool) Open(key types.NamespacedName, access Access) (*Remote, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	config, err := ParseKubeconfig(access.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if r := p.remotes[key]; r != nil && r.access.Namespace == access.Namespace && r.access.Provider == access.Provider {
		if bytes.Equal(r.access.Kubeconfig, access.Kubeconfig) {
			return r, nil
		}
		if r.connection.Update(config) == nil {
			r.access = access
			return r, nil
		}
	}
	p.drop(key)
	r, err := p.dial(key, config, access)
	if err != nil {
		return nil, err
	}
	p.remotes[key] = r
	return r, nil
}

func (p *Pool) dial(key types.NamespacedName, config *rest.Config, access Access) (*Remote, error) {
	config.QPS = -1
	conn, err := connection.New(config, Answers)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: access.Provider, TenantNamespace: access.Namespace})
	// With a static mapper, the client sends no discovery requests.
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{p.options.Kind.GroupVersion()})
	for _, kind := range append([]schema.GroupVersionKind{p.options.Kind}, p.options.Others...) {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	c, err := client.New(conn.Config(), client.Options{Scheme: p.options.Scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	if p.options.Observe != nil {
		c = p.options.Observe(c)
	}
	ctx, stop := context.WithCancel(p.lifetime)
	return &Remote{Client: c, Namespace: access.Namespace, pool: p, key: key, access: access, connection: conn, lifetime: ctx, stop: stop}, nil
}

// Watch starts to report changes as events of the pool, until the Remote is dropped. Further calls have no effect.
// Watch does not wait for the provider.
func (r *Remote) Watch() error {
	if r.watching {
		return nil
	}
	options := &r.pool.options
	selector := fields.Everything()
	if options.SameName {
		selector = fields.OneTermEqualSelector("metadata.name", r.key.Name)
	}
	objects, err := cache.New(r.connection.Config(), cache.Options{
		Scheme: options.Scheme, Mapper: r.RESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{r.Namespace: {}},
		DefaultLabelSelector: options.Selector,
		DefaultFieldSelector: selector,
		DefaultTransform:     keepIdentity,
	})
	if err != nil {
		return fmt.Errorf("watching %s of the provider, %w", options.Kind.Kind, err)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(options.Kind)
	informer, err := objects.GetInformer(r.lifetime, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %s of the provider, %w", options.Kind.Kind, err)
	}
	enqueue := func(any) {
		select {
		case r.pool.events <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: r.key.Namespace, Name: r.key.Name}}}:
		case <-r.lifetime.Done():
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, now any) { enqueue(now) }, DeleteFunc: enqueue,
	}); err != nil {
		return fmt.Errorf("watching %s of the provider, %w", options.Kind.Kind, err)
	}
	r.watching = true
	go func() {
		if err := objects.Start(r.lifetime); err != nil {
			log.FromContext(r.lifetime).Error(err, "Cannot watch objects of a provider", "kind", options.Kind.Kind, "for", r.key)
		}
	}()
	return nil
}
