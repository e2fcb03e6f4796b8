// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Mode is how copies are written on the provider.
type Mode int

const (
	// Apply: server-side apply. For kinds to which the provider's controllers add fields of their own.
	Apply Mode = iota
	// Replace: create and update. For kinds that are wholly ours, such as ShadowPod.
	Replace
)

// Kind describes what is reflected. What is special to a kind is what its plugins do; this is the rest, and a custom
// resource needs no more than Name, Source and Workers.
type Kind struct {
	Name   string // of the plugin chain, of metrics and Events; "Kind" or "Kind.group"
	Source schema.GroupVersionResource
	// Target and TargetKind are what the copy is; zero Target = the source's kind.
	Target     schema.GroupVersionResource
	TargetKind schema.GroupVersionKind
	Mode       Mode
	Policy     Policy
	Workers    int

	// Payload is the field of the bent object that is carried over, "" = all but apiVersion, kind, metadata and status.
	Payload string
	// Into is the field of the copy below which the payload goes, none = the same place.
	Into []string

	// Labels of the copy besides origin and destination.
	Labels map[string]string
	// DropLabels are bookkeeping of this cluster and never cross.
	DropLabels []string
	// DropAnnotations likewise.
	DropAnnotations []string
	// KeepLabels are put on copies by the provider's admission and left alone.
	KeepLabels []string

	// Rename gives the copy another name; nil keeps it.
	Rename *Rename
	// Except narrows the copies that are known by their labels: a further label selector.
	Except string

	// StatusBack brings the status of the copy back, as the incoming chain bends it, of which StatusFields, nil = all.
	// The provider whose status is shown is named in StatusFromAnnotation.
	StatusBack   bool
	StatusFields []string
	// StatusSubresource: the status of the source is written by itself.
	StatusSubresource bool

	// Unless names objects to which the policy does not apply: they cross unless an annotation of their own says otherwise.
	Unless func(name string) bool
	// Never tells which objects do not cross whatever the policy says.
	Never func(object *unstructured.Unstructured) bool
	// FollowsService: the annotations of the Service decide, and changes of it re-evaluate.
	FollowsService bool
	// FollowsNetwork: changes of virtual nodes and of IP mappings re-evaluate.
	FollowsNetwork bool
	// RoutineSkipper is the plugin whose skips are everyday business and make no Events.
	RoutineSkipper string
	// PerNode: every virtual kubelet reflects its own objects; other kinds only the leading one of a provider.
	PerNode bool
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
	return k.Policy.validate(k.Name)
}

// hasIncoming tells kinds of which something comes back.
func (k *Kind) hasIncoming() bool { return k.PerNode || k.StatusBack }

// Rename maps the names of some objects to those of their copies, and back; all others keep theirs.
type Rename struct{ Outgoing, Incoming map[string]string }

func (k *Kind) remoteName(local string) string {
	if k.Rename != nil {
		if name, ok := k.Rename.Outgoing[local]; ok {
			return name
		}
	}
	return local
}

func (k *Kind) localName(remote string) string {
	if k.Rename != nil {
		if name, ok := k.Rename.Incoming[remote]; ok {
			return name
		}
	}
	return remote
}

// target returns what the copy is stored as.
func (k Kind) target() schema.GroupVersionResource {
	if k.Target.Resource == "" {
		return k.Source
	}
	return k.Target
}

// The names of the kinds that have rules of their own.
const (
	PodKind           = "Pod"
	ServiceKind       = "Service"
	EndpointSliceKind = "EndpointSlice"
)

var (
	podsResource           = corev1.SchemeGroupVersion.WithResource("pods")
	servicesResource       = corev1.SchemeGroupVersion.WithResource("services")
	nodesResource          = corev1.SchemeGroupVersion.WithResource("nodes")
	endpointSlicesResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	ipsResource            = schema.GroupVersionResource{Group: "ipam.liqo.io", Version: "v1alpha1", Resource: "ips"}
)

// DefaultKinds returns pods, Services and EndpointSlices.
func DefaultKinds() []Kind {
	return []Kind{
		{
			Name: PodKind, Source: podsResource,
			Target: offloadingv1beta1.ShadowPodGVR, TargetKind: offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowPodKind),
			Mode: Replace, Policy: Always, Workers: 10, Payload: "spec", Into: []string{"spec", "pod"},
			DropLabels: []string{wire.OffloadedPodLabel, wire.RemoteUnavailableLabel}, DropAnnotations: []string{RestartsAnnotation, GatesAnnotation},
			KeepLabels: []string{wire.CreatorUserLabel}, PerNode: true,
		},
		{
			Name: ServiceKind, Source: servicesResource, Policy: DenyList, Workers: 3,
			Never: func(o *unstructured.Unstructured) bool { return isAPIServer(o.GetNamespace(), o.GetName()) },
		},
		{
			Name: EndpointSliceKind, Source: endpointSlicesResource,
			Target: offloadingv1beta1.ShadowEndpointSliceGVR, TargetKind: offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowEndpointSliceKind),
			Mode: Replace, Policy: DenyList, Workers: 10, Into: []string{"spec", "template"},
			Labels: map[string]string{wire.EndpointSliceManagedByLabel: wire.EndpointSliceManager},
			Never: func(o *unstructured.Unstructured) bool {
				return isAPIServer(o.GetNamespace(), o.GetName()) || isAPIServer(o.GetNamespace(), serviceOf(o))
			},
			// The default plugin skips slices without endpoints for the provider: most are, at some time of their life.
			FollowsService: true, FollowsNetwork: true, RoutineSkipper: "endpointslice",
		},
	}
}

// isAPIServer tells the Service of this cluster's own API server: the provider has its own of that name.
func isAPIServer(namespace, name string) bool { return namespace == "default" && name == "kubernetes" }
