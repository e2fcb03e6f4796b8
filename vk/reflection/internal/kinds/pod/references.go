// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// Kinds of the objects that pods refer to.
const (
	configMapKind     = "ConfigMap"
	secretKind        = "Secret"
	serviceKind       = "Service"
	volumeClaimKind   = "PersistentVolumeClaim"
	claimKind         = "ResourceClaim.resource.k8s.io"
	claimTemplateKind = "ResourceClaimTemplate.resource.k8s.io"
)

// containerFields are the fields of a spec with lists of containers.
var containerFields = [...]string{"initContainers", "containers", "ephemeralContainers"}

// volumeSecrets are the fields of volume sources that name a Secret. They include the source of Secret volumes.
var volumeSecrets = [...][2]string{{"secret", "secretName"}, {"csi", "nodePublishSecretRef"}, {"azureFile", "secretName"}, {"cephfs", "secretRef"}, {"cinder", "secretRef"}, {"flexVolume", "secretRef"},
	{"iscsi", "secretRef"}, {"rbd", "secretRef"}, {"scaleIO", "secretRef"}, {"storageos", "secretRef"}}

// references is a list of references without duplicates, in no particular order. The names are the names of the
// objects on the provider.
type references struct {
	all      []queue.Reference
	required bool // optional references are left out
}

// ReferencesOf returns the objects that the containers of a pod read, from its mutated spec, including optional
// references.
func ReferencesOf(spec document.View) []queue.Reference { return listReferences(spec, false) }

func listReferences(spec document.View, required bool) []queue.Reference {
	all := references{required: required}
	for _, field := range containerFields {
		containers := spec.Field(field)
		for i := range containers.Len() {
			all.addContainer(containers.Index(i))
		}
	}
	volumes := spec.Field("volumes")
	for i := range volumes.Len() {
		all.addVolume(volumes.Index(i))
	}
	pullSecrets := spec.Field("imagePullSecrets")
	for i := range pullSecrets.Len() {
		all.add(secretKind, pullSecrets.Index(i), "name")
	}
	resourceClaims := spec.Field("resourceClaims")
	for i := range resourceClaims.Len() {
		all.add(claimKind, resourceClaims.Index(i), "resourceClaimName")
		all.add(claimTemplateKind, resourceClaims.Index(i), "resourceClaimTemplateName")
	}
	if links, ok := spec.Field("enableServiceLinks").Bool(); links || !ok {
		all.addReference(queue.Reference{Kind: serviceKind})
	}
	return all.all
}

// addContainer adds the ConfigMaps and Secrets that a container gets environment variables from.
func (r *references) addContainer(container document.View) {
	env := container.Field("env")
	for i := range env.Len() {
		from := env.Index(i).Field("valueFrom")
		r.add(configMapKind, from.Field("configMapKeyRef"), "name")
		r.add(secretKind, from.Field("secretKeyRef"), "name")
	}
	envFrom := container.Field("envFrom")
	for i := range envFrom.Len() {
		r.add(configMapKind, envFrom.Index(i).Field("configMapRef"), "name")
		r.add(secretKind, envFrom.Index(i).Field("secretRef"), "name")
	}
}

// addVolume adds the objects that a volume gets its files from.
func (r *references) addVolume(volume document.View) {
	if volume.Field("persistentVolumeClaim").Exists() || volume.Field("ephemeral").Exists() {
		// This reference makes the pod wait until claims have been listed, because obstacles cannot be found before.
		// The claim itself need not be up to date, because Kubernetes waits for volumes.
		r.addReference(queue.Reference{Kind: volumeClaimKind})
	}
	r.add(configMapKind, volume.Field("configMap"), "name")
	for _, field := range volumeSecrets {
		source := volume.Field(field[0])
		switch name := source.Field(field[1]); name.Kind() {
		case document.Map:
			r.add(secretKind, name, "name")
		default:
			r.add(secretKind, source, field[1])
		}
	}
	sources := volume.Field("projected").Field("sources")
	for i := range sources.Len() {
		r.add(configMapKind, sources.Index(i).Field("configMap"), "name")
		r.add(secretKind, sources.Index(i).Field("secret"), "name")
	}
}

// add adds the object that a field of a reference names, unless the name is empty.
func (r *references) add(kind string, reference document.View, field string) {
	if optional, _ := reference.Field("optional").Bool(); optional && r.required {
		return
	}
	if text, _ := reference.Field(field).Text(); text != "" {
		r.addReference(queue.Reference{Kind: kind, Name: text})
	}
}

// addReference adds a reference that is not in the list yet.
func (r *references) addReference(reference queue.Reference) {
	if !slices.Contains(r.all, reference) {
		r.all = append(r.all, reference)
	}
}
