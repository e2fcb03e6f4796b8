// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// RemoteReferencesAnnotation, on pods of this cluster, lists kinds, separated by commas, or "*" for all kinds. The
// provider has its own objects of these kinds with the names in the pod's spec. Therefore the pod is offloaded, and no
// Event warns about ConfigMaps and Secrets that are not reflected.
const RemoteReferencesAnnotation = "plugins.refract.io/remote-references"

// Kinds that RemoteReferencesAnnotation may name.
const (
	volumeClaims  = "PersistentVolumeClaim"
	deviceClaims  = "ResourceClaim"
	trustBundles  = "ClusterTrustBundle"
	certificates  = "PodCertificate"
	avoidNodeHint = "keep the pod off virtual nodes with a node affinity (" + wire.TypeLabel + " NotIn " + wire.VirtualNodeType + ")"
)

// Claims provides information about the claims of pods. The kind PersistentVolumeClaim implements it.
type Claims interface {
	// KeptClass reports whether the volume of a claim exists, or will exist, in this cluster only, and returns the
	// storage class of the claim.
	KeptClass(namespace, name string) (class string, kept bool)
}

// obstacle is a reference to an object that is never reflected.
type obstacle struct {
	kind    string // kind as in RemoteReferencesAnnotation
	problem string
	remedy  string
	claim   string // name of the PersistentVolumeClaim, "" for another kind
}

// refuseObstacles refuses a new pod if it needs an object that is never reflected, and reports whether it has refused
// the pod. If the pod were offloaded, the provider's pod would wait forever for an object that exists only in this
// cluster. Pods that have a ShadowPod or have run are not affected.
func (h *Handler) refuseObstacles(ctx context.Context, w *evaluation.Worker, v *podView) (refused bool, err error) {
	if v.shadow != nil || !pods.Untouched(v.status) {
		return false, nil
	}
	for _, found := range h.obstacles(v, w.Doc.Root().View().Field("spec")) {
		if h.isRemote(v, found.kind) {
			continue
		}
		if found.claim != "" {
			h.blocked.add(v.scope.Key(found.claim), v.key)
		}
		h.tellTokens(v, nil)
		return true, h.refusePod(ctx, w, v.local, fmt.Sprintf("%s; %s. If the provider has its own, annotate the pod %s: %s", found.problem, found.remedy, RemoteReferencesAnnotation, found.kind))
	}
	return false, nil
}

// isRemote reports whether RemoteReferencesAnnotation lists a kind, or all kinds.
func (h *Handler) isRemote(v *podView, kind string) bool {
	text, _ := raw.Annotations(v.local.Object)[RemoteReferencesAnnotation].(string)
	return slices.ContainsFunc(strings.Split(text, ","), func(named string) bool {
		named = strings.TrimSpace(named)
		return named == kind || named == "*"
	})
}

// obstacles returns the references in a mutated spec to objects that are never reflected.
func (h *Handler) obstacles(v *podView, spec document.View) (found []obstacle) {
	volumes := spec.Field("volumes")
	for i := range volumes.Len() {
		volume := volumes.Index(i)
		name, _ := volume.Field("name").Text()
		found = append(found, h.claimObstacles(v, volume, name)...)
		sources := volume.Field("projected").Field("sources")
		for j := range sources.Len() {
			found = append(found, sourceObstacles(sources.Index(j), name)...)
		}
	}
	devices := spec.Field("resourceClaims")
	for i := range devices.Len() {
		name, _ := devices.Index(i).Field("name").Text()
		for field, kind := range map[string]string{"resourceClaimName": claimKind, "resourceClaimTemplateName": claimTemplateKind} {
			if devices.Index(i).Field(field).Exists() && !h.IsReflected(kind) {
				found = append(found, obstacle{kind: deviceClaims, problem: "spec.resourceClaims " + name + " asks for devices of this cluster, which a pod on a provider cannot use",
					remedy: "request extended resources that the virtual node offers, or " + avoidNodeHint})
			}
		}
	}
	return found
}

// claimObstacles returns an obstacle if a pod volume needs a claim, or an ephemeral volume, of another storage class
// than the virtual one. It ignores ephemeral volumes whose storage class was replaced by a plugin.
func (h *Handler) claimObstacles(v *podView, volume document.View, name string) []obstacle {
	claim, _ := volume.Field("persistentVolumeClaim").Field("claimName").Text()
	template := volume.Field("ephemeral").Field("volumeClaimTemplate")
	if template.Exists() {
		claim = v.key.Name + "-" + name
	}
	claims, ok := engine.Peer[Claims](h.Env)
	if claim == "" || !ok {
		return nil
	}
	class, kept := claims.KeptClass(v.key.Namespace, claim)
	if own, given := template.Field("spec").Field("storageClassName").Text(); given {
		before := h.templateClass(v, name)
		class, kept = own, before == own && own != h.Options().Storage.Class
	}
	if !kept {
		return nil
	}
	claim, problem := strings.Clone(claim), "a volume"
	if !template.Exists() {
		problem = "PersistentVolumeClaim " + claim
	}
	remedy := avoidNodeHint
	if h.Options().Storage.Enabled {
		remedy = "use storage class " + h.Options().Storage.Class + ", or " + remedy
	}
	return []obstacle{{kind: volumeClaims, claim: claim, remedy: remedy,
		problem: fmt.Sprintf("spec.volumes %s needs %s of storage class %q, which exists in this cluster only", name, problem, strings.Clone(class))}}
}

// templateClass returns the storage class of an ephemeral volume before the mutation.
func (h *Handler) templateClass(v *podView, volume string) string {
	volumes, _ := raw.Nested(v.local.Object, "spec", "volumes").([]any)
	for _, item := range volumes {
		if entry := raw.Map(item); entry["name"] == volume {
			class, _ := raw.Nested(entry, "ephemeral", "volumeClaimTemplate", "spec", "storageClassName").(string)
			return class
		}
	}
	return ""
}

// sourceObstacles returns an obstacle if a source of a projected volume exists in this cluster only.
func sourceObstacles(source document.View, volume string) []obstacle {
	if bundle := source.Field("clusterTrustBundle"); bundle.Exists() {
		if optional, _ := bundle.Field("optional").Bool(); !optional {
			return []obstacle{{kind: trustBundles, problem: "spec.volumes " + volume + " projects a ClusterTrustBundle, which is not reflected",
				remedy: "project a ConfigMap with the certificates, or " + avoidNodeHint}}
		}
	}
	if source.Field("podCertificate").Exists() {
		return []obstacle{{kind: certificates, problem: "spec.volumes " + volume + " projects a certificate of the pod, which a signer of this cluster does not issue to a pod on a provider",
			remedy: "project a Secret with a certificate, or " + avoidNodeHint}}
	}
	return nil
}

// ClaimChanged enqueues the pods that were refused because of a claim.
func (h *Handler) ClaimChanged(claim queue.Key) {
	for _, key := range h.blocked.take(claim) {
		h.Queue.Add(key)
	}
}

// blocked maps claims to the pods that were refused because of them. The zero value is ready for use. It is safe for
// concurrent use.
type blocked struct {
	mu sync.Mutex
	by map[queue.Key][]queue.Key
}

// add records that a pod was refused because of a claim.
func (b *blocked) add(claim, pod queue.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[queue.Key][]queue.Key{}
	}
	if !slices.Contains(b.by[claim], pod) {
		b.by[claim] = append(b.by[claim], pod)
	}
}

// take returns the pods that were refused because of a claim, and removes them.
func (b *blocked) take(claim queue.Key) []queue.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.by[claim]
	delete(b.by, claim)
	return waiting
}
