// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// reconciled changes the Deployment's label with the provider's name, and waits until the controller has restored the
// label. Then the controller has also seen all earlier changes of the Deployment.
func reconciled(t *testing.T, vn *offloading.VirtualNode) *appsv1.Deployment {
	t.Helper()
	consumer.Patch(t, deployment(vn), `{"metadata":{"labels":{"`+wire.RemoteClusterIDLabel+`":"other"}}}`)
	return awaitDeployment(t, vn, "its labels", func(d *appsv1.Deployment) bool {
		return d.Labels[wire.RemoteClusterIDLabel] == vn.Spec.ClusterID.String()
	})
}

const theirChanges = `{"spec":{"replicas":0,"template":{"spec":{"priorityClassName":"theirs","containers":[` +
	`{"name":"virtual-kubelet","image":"mirror.example/vk:1","resources":{"requests":{"cpu":"3"}}}]}}}}`

// change applies a strategic merge patch to the Deployment of a virtual kubelet.
func change(t *testing.T, vn *offloading.VirtualNode, patch string) {
	t.Helper()
	require.NoError(t, consumer.Client.Patch(t.Context(), deployment(vn), client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// TestAdmissionKeepsTheImageOfAVirtualKubelet checks that the image of an admission policy that rewrites images, for
// example for an image mirror, is kept.
func TestAdmissionKeepsTheImageOfAVirtualKubelet(t *testing.T) {
	_, byDefault := template(t, "mirror")
	namespace := wire.TenantNamespace("vasto")
	consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "vasto"},
	}})
	labels := map[string]string{"app": "probe"}
	probe := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
	consumer.Mutate(t, "refract-mirrors-images", "apps", "deployments", namespace,
		`[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "mirror.example/vk:1"}]`, probe,
		func() bool {
			changed := image(probe) == "mirror.example/vk:1"
			probe.Spec.Template.Spec.Containers[0].Image = "i"
			return changed
		})
	consumer.StartManager(t, byDefault)
	vn := bare(t, "vasto", "vasto")
	awaitDeployment(t, vn, "an image", func(*appsv1.Deployment) bool { return true })
	assert.Equal(t, "mirror.example/vk:1", image(reconciled(t, vn)))
}

// TestChangesOfOthersToAVirtualKubeletStay checks that the changes that other clients make to the Deployment of a
// virtual kubelet are kept until the desired value of the field changes. If the desired value of another field changes,
// the replicas, images and resources that other clients have set are still kept.
func TestChangesOfOthersToAVirtualKubeletStay(t *testing.T) {
	options, byDefault := template(t, "stay")
	consumer.StartManager(t, byDefault)
	vn := bare(t, "sulmona", "sulmona")
	awaitDeployment(t, vn, "an image", func(*appsv1.Deployment) bool { return true })
	change(t, vn, theirChanges)
	theirs := func(d *appsv1.Deployment) bool {
		cpu := d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
		return *d.Spec.Replicas == 0 && image(d) == "mirror.example/vk:1" && cpu.String() == "3"
	}
	current := reconciled(t, vn)
	assert.True(t, theirs(current), "%+v", current.Spec)
	assert.Equal(t, "theirs", current.Spec.Template.Spec.PriorityClassName)

	consumer.Patch(t, options, `{"spec":{"labelsNotReflected":["other"]}}`) // the Deployment does not contain this field
	before := current.Spec.DeepCopy()
	current = awaitDeployment(t, vn, "the generation of the template", func(d *appsv1.Deployment) bool {
		return strings.HasSuffix(d.Annotations[wire.TemplateAnnotation], "@2")
	})
	assert.Equal(t, *before, current.Spec)

	consumer.Patch(t, options, `{"spec":{"extraArgs":["--more=1"]}}`)
	current = awaitDeployment(t, vn, "the argument", func(d *appsv1.Deployment) bool {
		return strings.Contains(strings.Join(d.Spec.Template.Spec.Containers[0].Args, " "), "--more=1")
	})
	assert.True(t, theirs(current), "%+v", current.Spec)
	assert.Empty(t, current.Spec.Template.Spec.PriorityClassName)

	consumer.Patch(t, options, `{"spec":{"containerImage":"registry.example/vk:2"}}`)
	current = awaitDeployment(t, vn, "the requested image", func(d *appsv1.Deployment) bool {
		return image(d) == "registry.example/vk:2"
	})
	assert.Zero(t, *current.Spec.Replicas)
	consumer.Patch(t, options, `{"spec":{"replicas":2}}`)
	awaitDeployment(t, vn, "the requested replicas", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })
}

// TestADeploymentOfAnEarlierVersionIsReplaced checks that a Deployment of Liqo or an earlier version, which has no
// annotations of ours or another hash, gets the desired spec.
func TestADeploymentOfAnEarlierVersionIsReplaced(t *testing.T) {
	_, byDefault := template(t, "earlier")
	var virtualNodes []*offloading.VirtualNode
	for name, annotations := range map[string]map[string]string{"liqo": nil, "earlier": {wire.TemplateHashAnnotation: "1"}} {
		vn := bare(t, "grosseto", "grosseto-"+name, withoutAccount)
		labels := map[string]string{
			wire.ComponentLabel: wire.VirtualKubeletComponent, wire.RemoteClusterIDLabel: "grosseto", wire.VirtualNodeLabel: vn.Name,
		}
		former := deployment(vn)
		former.Labels, former.Annotations = labels, annotations
		former.Spec = appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "virtual-kubelet", Image: "former"}}},
		}}
		consumer.Create(t, former)
		virtualNodes = append(virtualNodes, vn)
	}
	consumer.StartManager(t, byDefault)
	for _, vn := range virtualNodes {
		awaitDeployment(t, vn, "the image and the record", func(d *appsv1.Deployment) bool {
			return image(d) == "registry.example/vk:1" && asked.Read(d.Annotations) != nil && metav1.GetControllerOf(d) != nil
		})
	}
}

// TestAFightAboutAVirtualKubelet checks that the controller slows down and reports a conflict if another client keeps
// changing or deleting the Deployment.
func TestAFightAboutAVirtualKubelet(t *testing.T) {
	_, byDefault := template(t, "fight")
	consumer.StartManager(t, byDefault)
	for name, fight := range map[string]func(d *appsv1.Deployment) error{
		"pistoia-change": func(d *appsv1.Deployment) error {
			other := `{"metadata":{"labels":{"` + wire.RemoteClusterIDLabel + `":"other"}}}`
			return consumer.Client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(other)))
		},
		"pistoia-delete": func(d *appsv1.Deployment) error { return consumer.Client.Delete(t.Context(), d) },
	} {
		vn := bare(t, "pistoia", name)
		controllertest.Eventually(t, "the Event about the fight over "+name, func() error {
			all := &eventsv1.EventList{}
			if err := consumer.Client.List(t.Context(), all, client.InNamespace(vn.Namespace)); err != nil {
				return err
			}
			for _, event := range all.Items {
				if event.Regarding.Name == name && event.Reason == wire.ReflectionQuarantinedReason && event.Type == corev1.EventTypeWarning &&
					strings.Contains(event.Note, "Deployment "+vn.Namespace+"/vk-"+name) {
					return nil
				}
			}
			_ = client.IgnoreNotFound(fight(deployment(vn))) // this also fails as long as the controller has not restored the Deployment
			return fmt.Errorf("there are only %d Events", len(all.Items))
		})
	}
}
