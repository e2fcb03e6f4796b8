// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"encoding/json"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/rollout"
)

// seal adds three items to the Deployment: the owner, a hash of the desired spec, and the record of the fields that
// keepChanges keeps. The hash shows whether the desired spec has changed since the last write.
func seal(desired *appsv1.Deployment, vn *offloading.VirtualNode) error {
	hash, err := rollout.HashSpec(desired.Spec)
	if err != nil {
		return err
	}
	if desired.Annotations == nil {
		desired.Annotations = map[string]string{}
	}
	desired.Annotations[wire.TemplateHashAnnotation] = hash
	desired.Annotations[asked.Annotation] = (&asked.Record{Content: keptValues(&desired.Spec)}).Text()
	owner := metav1.NewControllerRef(vn, offloading.GroupVersion.WithKind(offloading.VirtualNodeKind))
	desired.OwnerReferences = []metav1.OwnerReference{*owner}
	return nil
}

// isCurrent reports whether the last write of a Deployment was for the same desired spec, and whether the Deployment
// has the owner, the labels and the annotations. The actual spec is not compared, because admission, an autoscaler or
// an administrator may have changed it.
func isCurrent(current, desired *appsv1.Deployment) bool {
	owner := metav1.GetControllerOf(current)
	return owner != nil && owner.UID == metav1.GetControllerOf(desired).UID &&
		contains(current.Annotations, desired.Annotations) && contains(current.Labels, desired.Labels)
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// nextSpec returns the spec to write. It is the actual spec, unless the desired spec has changed since the last write.
// A changed spec keeps some actual values (see keepChanges).
func nextSpec(current, desired *appsv1.Deployment) appsv1.DeploymentSpec {
	if current.Annotations[wire.TemplateHashAnnotation] == desired.Annotations[wire.TemplateHashAnnotation] {
		return current.Spec
	}
	next := desired.Spec.DeepCopy()
	if last := asked.Read(current.Annotations); last != nil {
		keepChanges(next, &current.Spec, last.Content)
	}
	return *next
}

// keptValues returns the desired values of the fields that keepChanges keeps.
func keptValues(spec *appsv1.DeploymentSpec) asked.Values {
	values := asked.Values{}
	values.Set(replicasText(spec), "replicas")
	for i := range spec.Template.Spec.Containers {
		container := &spec.Template.Spec.Containers[i]
		values.Set(container.Image, "image", container.Name)
		values.Set(resourcesText(container), "resources", container.Name)
	}
	return values
}

// keepChanges sets replicas, images and resources in next to their actual values if their desired values have not
// changed. Otherwise, a change of another field would end a pause, or undo the choice of an image mirror or autoscaler.
func keepChanges(next, actual *appsv1.DeploymentSpec, last asked.Values) {
	if last.Has(replicasText(next), "replicas") {
		next.Replicas = actual.Replicas
	}
	for i := range next.Template.Spec.Containers {
		container := &next.Template.Spec.Containers[i]
		for j := range actual.Template.Spec.Containers {
			present := &actual.Template.Spec.Containers[j]
			if present.Name != container.Name {
				continue
			}
			if last.Has(container.Image, "image", container.Name) {
				container.Image = present.Image
			}
			if last.Has(resourcesText(container), "resources", container.Name) {
				container.Resources = present.Resources
			}
		}
	}
}

func replicasText(spec *appsv1.DeploymentSpec) string {
	return strconv.Itoa(int(ptr.Deref(spec.Replicas, 1)))
}

func resourcesText(container *corev1.Container) string {
	text, _ := json.Marshal(container.Resources) // quantities can always be encoded
	return string(text)
}
