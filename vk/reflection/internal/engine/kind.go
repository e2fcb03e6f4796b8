// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
)

// Kind describes a reflected kind. The plugins of a kind define the mutations; the Kind defines everything else. A
// custom resource needs no more than Name, Source and Workers.
type Kind struct {
	// Name is the kind and, unless it is the core group, the API group, as in the names of plugins: Pod,
	// EndpointSlice.discovery.k8s.io. Options, plugin chains, scopes, logs and our own metrics use it.
	Name string
	// LiqoName is the name of the kind in Liqo's metrics and, in lower case, in its flags. If it is empty, the value
	// of Name is used.
	LiqoName string
	Source   schema.GroupVersionResource
	Workers  int

	Policy   Policy
	PolicyOf string // the kind whose policy in Options.Policies also applies to this kind
	// Unless reports whether objects with this name are exempt from the policy: they are reflected unless their own annotation
	// excludes them.
	Unless func(name string) bool
	// Never reports whether an object must never be reflected, regardless of the policy.
	Never func(object *unstructured.Unstructured) bool

	Copy    copies.Spec
	Status  objects.Status
	Chain   Chain
	Follows Follows
	Cache   Cache

	// Shown, if set, adapts a status before it is written to an object of this cluster. It must not modify the status
	// in place.
	Shown func(e *Env, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any) map[string]any

	// PerNode means that every virtual kubelet reflects the objects of its own node. The objects of all other kinds
	// are reflected only by the leading virtual kubelet of a provider.
	PerNode bool
	// Reverse means that the originals are on the provider and the copies in this cluster. The handler of such a kind
	// selects the objects, runs the plugin chain and writes the copies itself.
	Reverse bool
	// Needed reports whether handlers of other kinds look up objects of this kind even if another virtual kubelet
	// reflects them. If it is nil, they never do.
	Needed func(*Options) bool
	// Unprotected is the consequence for a namespace if the provider does not permit the kind. Events quote it.
	Unprotected string
	// FailureReason is the reason of Events about failed writes. If it is empty, the reason is FailedReflection.
	FailureReason string
	// Tracked means that the scopes record which objects are not up to date on the provider, so that objects of other
	// kinds that refer to them can wait; see Scope.Lags. The handler must be Base, or call its Reconcile.
	Tracked bool
	// Handler creates the handler of the kind. If it is nil, Base is the handler.
	Handler func(*Env) (Handler, error)
}

// Chain describes how plugins are called.
type Chain struct {
	// None means that no plugin mutates the copy, because the handler creates its content, and the copy does not
	// represent an object of this cluster.
	None bool
	// Confidential means that the content of an object that a plugin sees must not leak to another object, not even in
	// the same namespace.
	Confidential bool
	// RoutineSkipper is a plugin whose skips are routine and cause no Events.
	RoutineSkipper string
}

// Follows selects the inputs whose changes reconcile all objects of the kind again.
type Follows struct {
	Network   bool // virtual nodes and IP mappings
	APIServer bool // address of this cluster's API server for offloaded pods
	Nodes     bool // virtual nodes only
	// Namespaces selects the offloaded namespaces. Plugins read them from the field namespaces of their context.
	Namespaces bool
}

// Cache describes which parts of objects are cached.
type Cache struct {
	// Copies returns the cached part of the content of a copy. A hash of all of the content is cached as well. If
	// Copies is nil, all of the content is cached. Copies may return other values than the content has, and must not
	// modify the content.
	Copies func(content map[string]any) map[string]any
	// Objects is the same as Copies, but for the objects of this cluster. Plugins need the whole object, so it is
	// read from the API server again before it is mutated.
	Objects func(content map[string]any) map[string]any
	// Indexers are the indexers of the informers of both objects and copies.
	Indexers cache.Indexers
}

// Liqo returns the name of the kind in Liqo's metrics.
func (k Kind) Liqo() string { return cmp.Or(k.LiqoName, k.Name) }

// Flag returns the name of the kind in flags and chart values.
func (k Kind) Flag() string { return strings.ToLower(k.Liqo()) }

// validate returns an error if the fields of the Kind contradict each other.
func (k Kind) validate() error {
	if k.Name == "" || k.Source.Resource == "" {
		return fmt.Errorf("kind %q needs a name and a source", k.Name)
	}
	if group := schema.ParseGroupKind(k.Name).Group; group != k.Source.Group {
		return fmt.Errorf("kind %s has the API group %q and its source %q: they must be the same", k.Name, group, k.Source.Group)
	}
	if k.Copy.Mode != copies.Apply && k.Copy.Mode != copies.Replace {
		return fmt.Errorf("kind %s has the unknown write mode %d", k.Name, k.Copy.Mode)
	}
	if k.Copy.Mode == copies.Apply && len(k.Copy.Into) > 0 {
		return errors.New("kind " + k.Name + " is wrapped, so it must be written by Replace")
	}
	if _, err := labels.Parse(k.Copy.Except); err != nil {
		return fmt.Errorf("kind %s: reading the label selector %q, %w", k.Name, k.Copy.Except, err)
	}
	return k.Policy.Validate(k.Name)
}

// hasIncoming reports whether a status of the kind is reflected back.
func (k *Kind) hasIncoming() bool { return k.Status.Handled || k.Status.Back }

// isOurs reports whether a virtual kubelet, which may be the leading one of its provider, watches the objects of the
// kind.
func (k *Kind) isOurs(o *Options, leading bool) bool {
	return leading || k.PerNode || k.Reverse || k.Needed != nil && k.Needed(o)
}

// Means reports whether reflected objects have that kind on the provider: the kind of the copy or, for shadows, the
// kind that the provider's controllers make from them.
func (k *Kind) Means(kind schema.GroupKind) bool {
	if k.Reverse || k.Chain.None {
		return false
	}
	if k.Copy.GVK.Kind != "" && k.Copy.GVK.GroupKind() == kind {
		return true
	}
	return (k.Copy.GVK.Kind == "" || k.Copy.GVK.Group == offloadingv1beta1.GroupVersion.Group) && k.SourceKind() == kind
}

// SourceKind returns the kind of the objects in this cluster.
func (k *Kind) SourceKind() schema.GroupKind {
	return schema.ParseGroupKind(k.Name)
}

// unprotected returns the text of Unprotected as the end of a clause.
func (k *Kind) unprotected() string {
	if k.Unprotected == "" {
		return ""
	}
	return ": " + k.Unprotected
}
