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

// Mode is how copies are written on the provider.
type Mode int

const (
	// Apply: server-side apply. For kinds to which the provider's controllers add fields of their own.
	Apply Mode = iota
	// Replace: create and update. For kinds that are wholly ours, such as ShadowPod.
	Replace
)

// Kind describes a reflected kind. Its plugins define the mutations; this is the rest, and a custom
// resource needs no more than Name, Source and Workers.
type Kind struct {
	// Name is the kind with its API group unless that is the core one, as plugins name it: Pod, EndpointSlice.discovery.k8s.io. Options,
	// plugin chains, scopes, logs and our own metrics have it.
	Name string
	// LiqoName is what Liqo's metrics call it, and in lower case its flags, "" = Name.
	LiqoName string
	Source   schema.GroupVersionResource
	Workers  int

	Policy   Policy
	PolicyOf string // the kind whose policy in Options.Policies is that of this one too
	// Unless names objects to which the policy does not apply: they cross unless an annotation of their own says otherwise.
	Unless func(name string) bool
	// Never reports whether an object does not cross whatever the policy says.
	Never func(object *unstructured.Unstructured) bool

	Copy    Copy
	Status  Status
	Chain   Chain
	Follows Follows
	Cache   Cache

	// PerNode: every virtual kubelet reflects its own objects; other kinds only the leading one of a provider.
	PerNode bool
	// Reverse: the objects are the provider's and the copies are made here. All of that is up to the handler.
	Reverse bool
	// Needed reports whether handlers of other kinds ask this one for its objects where another virtual kubelet reflects them; nil: never.
	Needed func(*Options) bool
	// Unprotected is the consequence for a namespace if the provider does not grant the kind. Events quote it.
	Unprotected string
	// FailureReason of Events about what could not be written, "" = FailedReflection.
	FailureReason string
	// Tracked: it is recorded which objects are not in step, so that objects of other kinds that refer to them can wait; see Scope.Lags. The handler
	// must be Base, or call its Reconcile.
	Tracked bool
	// Handler makes what is special to the kind while it lives, nil = Base.
	Handler func(*Env) (Handler, error)
}

// Copy is what the provider has of an object. The zero value is an object of the same kind, applied with all of its content.
type Copy struct {
	GVR  schema.GroupVersionResource // zero = the source's
	GVK  schema.GroupVersionKind     // likewise
	Mode Mode

	// Payload is the field of the mutated object that is carried over, "" = all but apiVersion, kind, metadata and status.
	Payload string
	// Into is the field of the copy below which the payload goes, none = the same place.
	Into []string
	// FixedSpec: what was asked for cannot be taken back but by asking for something else (or the API server refuses it), so
	// only labels and annotations are looked through for what is no longer desired.
	FixedSpec bool

	// Labels of the copy in addition to origin and destination.
	Labels map[string]string
	// DropLabels never cross, in addition to wire.Bookkeeping.
	DropLabels []string
	// DropAnnotations likewise.
	DropAnnotations []string
	// KeepLabels are put on copies by the provider's admission and left alone.
	KeepLabels []string

	// Changeable returns the part of the content that is changed in an existing copy; nil: all of it. The provider's admission has decided about the rest.
	Changeable func(content map[string]any) map[string]any

	// Lesser lists what an API server may accept that refuses a copy as a whole, in the order in which it is tried; nil: nothing. remote is the present copy, nil
	// for a new one. It must not modify either.
	Lesser func(object, remote *unstructured.Unstructured) []*unstructured.Unstructured
	// LesserEffect is the consequence of it. Events quote it after "the rest was applied".
	LesserEffect string

	// Suffix ends the names of all copies.
	Suffix string
	// Rename lists the objects whose copies have other names, by their own; nil keeps all names.
	Rename func(localClusterID string) map[string]string
	// Except narrows the copies that are known by their labels: a further label selector.
	Except string
}

// Status is what comes back.
type Status struct {
	// Back brings the status of the copy back, as the incoming chain mutates it. The provider whose status is shown is named in
	// StatusFromAnnotation.
	Back bool
	// Handled: the handler brings a status back itself, with the incoming chain.
	Handled bool
	// Fields of it that come back, nil = all.
	Fields []string
	// Class lists the paths of the fields that choose the controller of an object, which writes Fields.
	Class [][]string
	// Subresource: the status of the source is written by itself.
	Subresource bool
	// Shown, when set, decides last about a status that comes back for an object of this cluster. It must not modify the status.
	Shown func(e *Env, w *Worker, local *unstructured.Unstructured, status map[string]any) map[string]any
}

// Chain is how plugins are called.
type Chain struct {
	// None: no plugin sees what is written. It is made here, and stands for no object of this cluster.
	None bool
	// Confidential: what a plugin sees of an object must not reach another one, not even of the same namespace.
	Confidential bool
	// RoutineSkipper is the plugin whose skips are everyday business and make no Events.
	RoutineSkipper string
}

// Follows is what re-evaluates all objects of the kind when it changes.
type Follows struct {
	Network   bool // virtual nodes and IP mappings
	APIServer bool // how offloaded pods reach this cluster's API server
	Nodes     bool // virtual nodes alone
	// Namespaces: the offloaded namespaces, which plugins read from the field namespaces of their context.
	Namespaces bool
}

// Cache is what is kept in memory.
type Cache struct {
	// Copies returns what is kept of the content of a copy, besides a hash of all of it; nil: everything is kept. It may
	// return other values than the content has, and must not modify that.
	Copies func(content map[string]any) map[string]any
	// Objects: the same goes for the objects here. They are read again when they are to be mutated.
	Objects func(content map[string]any) map[string]any
	// Indexers are those of the informers of the objects, and of the copies.
	Indexers cache.Indexers
}

// Liqo returns what Liqo's metrics call the kind.
func (k Kind) Liqo() string { return cmp.Or(k.LiqoName, k.Name) }

// Flag returns what flags and chart values call the kind.
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

// hasIncoming reports whether something of the kind comes back.
func (k *Kind) hasIncoming() bool { return k.Status.Handled || k.Status.Back }

// isOurs reports whether a virtual kubelet that leads its provider, or does not, watches the objects of the kind.
func (k *Kind) isOurs(o *Options, leading bool) bool {
	return leading || k.PerNode || k.Reverse || k.Needed != nil && k.Needed(o)
}

// target returns what the copy is stored as.
func (k Kind) target() schema.GroupVersionResource {
	if k.Copy.GVR.Resource == "" {
		return k.Source
	}
	return k.Copy.GVR
}

// targetKind returns the kind as which the copy is stored, for texts.
func (k Kind) targetKind() string { return cmp.Or(k.Copy.GVK.Kind, k.SourceKind().Kind) }
