// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
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
	Name   string // by which options, scopes, Events and Liqo's metrics know it; "Kind" or "Kind.group"
	Source schema.GroupVersionResource
	// Target and TargetKind are what the copy is; zero Target = the source's kind.
	Target     schema.GroupVersionResource
	TargetKind schema.GroupVersionKind
	Mode       Mode
	Policy     Policy
	PolicyOf   string // the kind whose policy in Options.Policies is that of this one too
	Workers    int

	// Payload is the field of the mutated object that is carried over, "" = all but apiVersion, kind, metadata and status.
	Payload string
	// Into is the field of the copy below which the payload goes, none = the same place.
	Into []string

	// Labels of the copy in addition to origin and destination.
	Labels map[string]string
	// DropLabels are bookkeeping of this cluster and never cross.
	DropLabels []string
	// DropAnnotations likewise.
	DropAnnotations []string
	// KeepLabels are put on copies by the provider's admission and left alone.
	KeepLabels []string

	// Suffix ends the names of all copies.
	Suffix string
	// Rename lists the objects whose copies have other names, by their own; nil keeps all names.
	Rename func(localClusterID string) map[string]string
	// Except narrows the copies that are known by their labels: a further label selector.
	Except string

	// StatusBack brings the status of the copy back, as the incoming chain mutates it, of which StatusFields, nil = all.
	// The provider whose status is shown is named in StatusFromAnnotation.
	StatusBack bool
	// Mute takes back what StatusBack has shown, and shows nothing more.
	Mute         bool
	StatusFields []string
	// StatusSubresource: the status of the source is written by itself.
	StatusSubresource bool

	// Unless names objects to which the policy does not apply: they cross unless an annotation of their own says otherwise.
	Unless func(name string) bool
	// Never reports whether an object does not cross whatever the policy says.
	Never func(object *unstructured.Unstructured) bool
	// FollowsNetwork: changes of virtual nodes and of IP mappings re-evaluate.
	FollowsNetwork bool
	// FollowsAPIServer: changes of how offloaded pods reach this cluster's API server re-evaluate.
	FollowsAPIServer bool
	// FollowsNodes: changes of virtual nodes alone re-evaluate.
	FollowsNodes bool
	// FixedSpec: what was asked for cannot be taken back but by asking for something else (or the API server refuses it), so
	// only labels and annotations are looked through for what is no longer desired.
	FixedSpec bool
	// RoutineSkipper is the plugin whose skips are everyday business and make no Events.
	RoutineSkipper string
	// Confidential: what a plugin sees of an object must not reach another one, not even of the same namespace.
	Confidential bool
	// NoChain: copies are not mutated by plugins. They are generated here, and represent no object of this cluster.
	NoChain bool
	// FailureReason of Events about what could not be written, "" = FailedReflection.
	FailureReason string
	// Reverse: the objects are the provider's and the copies are made here. All of that is up to the handler.
	Reverse bool
	// Indexers are those of the informers of the objects, and of the copies.
	Indexers cache.Indexers
	// Keep returns what is kept in memory of the content of a copy, in addition to a hash of all of it; nil: everything is kept. It may
	// return other values than the content has, and must not modify that.
	Keep func(content map[string]any) map[string]any
	// KeepObjects: the same goes for the objects here. They are read again when they are to be mutated.
	KeepObjects func(content map[string]any) map[string]any
	// Handler makes what is special to the kind while it lives, nil = Base.
	Handler func(*Env) (Handler, error)
	// Shown, when set, decides last about a status that comes back.
	Shown func(status map[string]any) map[string]any
	// Needed reports whether handlers of other kinds ask this one for its objects where another virtual kubelet reflects them; nil: never.
	Needed func(*Options) bool
	// PerNode: every virtual kubelet reflects its own objects; other kinds only the leading one of a provider.
	PerNode bool
}

// Chain returns the name of the plugin chains of the kind, which our metrics and logs have too: with the API group unless that is the core one.
func (k Kind) Chain() string {
	if k.Source.Group == "" || strings.Contains(k.Name, ".") {
		return k.Name
	}
	return k.Name + "." + k.Source.Group
}

func (k Kind) validate() error {
	if k.Name == "" || k.Source.Resource == "" {
		return fmt.Errorf("kind %q needs a name and a source", k.Name)
	}
	if k.Mode != Apply && k.Mode != Replace {
		return fmt.Errorf("kind %s has the unknown write mode %d", k.Name, k.Mode)
	}
	if k.Mode == Apply && len(k.Into) > 0 {
		return errors.New("kind " + k.Name + " is wrapped, so it must be written by Replace")
	}
	if _, err := labels.Parse(k.Except); err != nil {
		return fmt.Errorf("kind %s: reading the label selector %q, %w", k.Name, k.Except, err)
	}
	return k.Policy.Validate(k.Name)
}

// hasIncoming reports whether something of the kind comes back.
func (k *Kind) hasIncoming() bool { return k.PerNode || k.StatusBack }

// isOurs reports whether a virtual kubelet that leads its provider, or does not, watches the objects of the kind.
func (k *Kind) isOurs(o *Options, leading bool) bool {
	return leading || k.PerNode || k.Reverse || k.Needed != nil && k.Needed(o)
}

// target returns what the copy is stored as.
func (k Kind) target() schema.GroupVersionResource {
	if k.Target.Resource == "" {
		return k.Source
	}
	return k.Target
}
