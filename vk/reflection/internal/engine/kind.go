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
)

// Mode selects how copies are written on the provider.
type Mode int

const (
	// Apply is server-side apply, for kinds whose copies the provider's controllers extend with fields of their own.
	Apply Mode = iota
	// Replace is create and update, for kinds that are wholly ours, such as ShadowPod.
	Replace
)

// Kind describes a reflected kind. Its plugins define the mutations, and the Kind everything else. A custom resource
// needs no more than Name, Source and Workers.
type Kind struct {
	// Name is the kind and, unless it is the core group, the API group, as in the names of plugins: Pod,
	// EndpointSlice.discovery.k8s.io. Options, plugin chains, scopes, logs and our own metrics use it.
	Name string
	// LiqoName is the name of the kind in Liqo's metrics and, in lower case, in its flags. "" = Name.
	LiqoName string
	Source   schema.GroupVersionResource
	Workers  int

	Policy   Policy
	PolicyOf string // the kind whose policy in Options.Policies also applies to this kind
	// Unless reports whether the policy does not apply to objects of a name: they cross unless an annotation of their
	// own excludes them.
	Unless func(name string) bool
	// Never reports whether an object never crosses, regardless of the policy.
	Never func(object *unstructured.Unstructured) bool

	Copy    Copy
	Status  Status
	Chain   Chain
	Follows Follows
	Cache   Cache

	// PerNode kinds are reflected by every virtual kubelet for its own objects, other kinds only by the leading virtual
	// kubelet of a provider.
	PerNode bool
	// Reverse kinds have their objects on the provider and their copies here. The handler does all of it.
	Reverse bool
	// Needed reports whether handlers of other kinds look up objects of this kind even if another virtual kubelet
	// reflects them; nil = never.
	Needed func(*Options) bool
	// Unprotected is the consequence for a namespace if the provider does not permit the kind. Events quote it.
	Unprotected string
	// FailureReason is the reason of Events about failed writes, "" = FailedReflection.
	FailureReason string
	// Tracked kinds record which objects are not in step, so that objects of other kinds that refer to them can wait;
	// see Scope.Lags. The handler must be Base, or call its Reconcile.
	Tracked bool
	// Handler creates the handler of the kind, nil = Base.
	Handler func(*Env) (Handler, error)
}

// Copy describes the copy of an object on the provider. The zero value is an object of the same kind, applied with all
// of its content.
type Copy struct {
	GVR  schema.GroupVersionResource // zero = the GVR of the source
	GVK  schema.GroupVersionKind     // zero = the GVK of the source
	Mode Mode

	// Payload is the field of the mutated object that is carried over, "" = all fields except apiVersion, kind,
	// metadata and status.
	Payload string
	// Into is the path of the field of the copy below which the payload is stored, empty = the same place.
	Into []string
	// FixedSpec means that a write cannot remove a field of the spec: it can only set another value, or the API server
	// refuses the change. So only labels and annotations are checked for entries that are no longer desired.
	FixedSpec bool

	// Labels are set on the copy in addition to origin and destination.
	Labels map[string]string
	// DropLabels are labels that never cross, in addition to wire.Bookkeeping.
	DropLabels []string
	// DropAnnotations are annotations that never cross, in addition to wire.Bookkeeping.
	DropAnnotations []string
	// KeepLabels are labels that the provider's admission sets on copies. They are left alone.
	KeepLabels []string

	// Changeable returns the part of the content that is updated in an existing copy, nil = all of it. The rest stays
	// as the provider's admission has decided.
	Changeable func(content map[string]any) map[string]any

	// Lesser lists what an API server may accept that refuses a copy as a whole, in the order in which it is tried; nil: nothing. remote is the present copy, nil
	// for a new one. It must not modify either.
	Lesser func(object, remote *unstructured.Unstructured) []*unstructured.Unstructured
	// LesserEffect is the consequence of it. Events quote it after "the rest was applied".
	LesserEffect string

	// Suffix is appended to the names of all copies.
	Suffix string
	// Rename maps names of objects to different names of their copies, nil = all names are kept.
	Rename func(localClusterID string) map[string]string
	// Except is a further label selector that narrows the copies selected by their labels.
	Except string
}

// Status describes the status that is reflected back.
type Status struct {
	// Back reflects the status of the copy back, mutated by the incoming chain. StatusFromAnnotation names the provider
	// whose status is shown.
	Back bool
	// Handled means that the handler itself reflects a status back, through the incoming chain.
	Handled bool
	// Fields are the reflected fields of the status, nil = all.
	Fields []string
	// Class lists the paths of the fields that choose the controller of an object, which writes Fields.
	Class [][]string
	// Subresource means that the source has a status subresource, which is written separately.
	Subresource bool
	// Shown, if set, adapts a status before it is written to an object of this cluster. It must not modify the status
	// in place.
	Shown func(e *Env, w *Worker, local *unstructured.Unstructured, status map[string]any) map[string]any
}

// Chain describes how plugins are called.
type Chain struct {
	// None means that no plugin mutates the written object. It is made here and does not represent an object of this
	// cluster.
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
	// Copies returns the cached part of the content of a copy. A hash of all of the content is cached as well. nil =
	// all of it is cached. Copies may return other values than the content has, and must not modify the content.
	Copies func(content map[string]any) map[string]any
	// Objects returns the cached part of objects of this cluster in the same way. They are read from the API server
	// before they are mutated.
	Objects func(content map[string]any) map[string]any
	// Indexers are the indexers of the informers of both objects and copies.
	Indexers cache.Indexers
}

// Liqo returns the name of the kind in Liqo's metrics.
func (k Kind) Liqo() string { return cmp.Or(k.LiqoName, k.Name) }

// Flag returns the name of the kind in flags and chart values.
func (k Kind) Flag() string { return strings.ToLower(k.Liqo()) }

func (k Kind) validate() error {
	if k.Name == "" || k.Source.Resource == "" {
		return fmt.Errorf("kind %q needs a name and a source", k.Name)
	}
	if group := schema.ParseGroupKind(k.Name).Group; group != k.Source.Group {
		return fmt.Errorf("kind %s has the API group %q and its source %q: they must be the same", k.Name, group, k.Source.Group)
	}
	if k.Copy.Mode != Apply && k.Copy.Mode != Replace {
		return fmt.Errorf("kind %s has the unknown write mode %d", k.Name, k.Copy.Mode)
	}
	if k.Copy.Mode == Apply && len(k.Copy.Into) > 0 {
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

// target returns the resource of the copies.
func (k Kind) target() schema.GroupVersionResource {
	if k.Copy.GVR.Resource == "" {
		return k.Source
	}
	return k.Copy.GVR
}

// targetKind returns the kind of the copies, for messages.
func (k Kind) targetKind() string { return cmp.Or(k.Copy.GVK.Kind, k.SourceKind().Kind) }
