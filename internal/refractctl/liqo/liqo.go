// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/doctor"
)

// Options selects the virtual kubelets to replace. It must not be used concurrently.
type Options struct {
	Client    client.Client
	Clientset kubernetes.Interface
	// Nodes are the names of the virtual nodes. If it is empty, all virtual nodes and VkOptionsTemplates are selected.
	// Virtual nodes that are created later then get the image from their template, but get the permissions only when
	// Adopt is called again.
	Nodes []string
	// Image is the image of Refract's virtual kubelet.
	Image string
	// Progress receives a line for each step. Lines do not end with a newline.
	Progress progress.Reporter

	changed []client.ObjectKey
}

// Changed returns the VirtualNodes whose image was successfully changed by Adopt or Revert.
func (o *Options) Changed() []client.ObjectKey { return o.changed }

const (
	containerName = "virtual-kubelet"
	// ignoreUnknown is an argument with which the virtual kubelet starts even if there are unknown flags from a newer
	// version of Liqo.
	ignoreUnknown = "--ignore-unknown-flags"
	// defaultTemplate is the VkOptionsTemplate in Liqo's chart. It applies to virtual nodes without a template of their
	// own.
	defaultTemplate = "virtual-kubelet-default"
	fieldOwner      = client.FieldOwner("refractctl")
)

// containers is the path of the list of containers in a VirtualNode, which contains the Deployment.
var containers = []string{"spec", "template", "spec", "template", "spec", "containers"}

// Check reports which virtual kubelet each virtual node runs, and whether the prerequisites of Refract's virtual
// kubelet are met. It does not change anything.
func (o *Options) Check(ctx context.Context) ([]doctor.Finding, error) {
	nodes, err := o.selectedNodes(ctx)
	if err != nil {
		return nil, err
	}
	var found []doctor.Finding
	for i := range nodes {
		vn := &nodes[i]
		add := func(level doctor.Level, format string, arguments ...any) {
			found = append(found, doctor.Finding{Subject: "virtual node " + vn.Name, Level: level, Message: fmt.Sprintf(format, arguments...)})
		}
		image := imageOf(vn)
		if image == "" {
			add(doctor.Error, "its VirtualNode has no spec.template with a container %s, which Liqo's webhook writes: nothing to adopt", containerName)
			continue
		}
		former, err := o.formerImage(ctx, vn)
		if err != nil {
			return nil, err
		}
		remedy := "run refractctl liqo adopt again"
		switch {
		case former == "":
			add(doctor.OK, "it runs %s: replace that with refractctl liqo adopt %s --image=IMAGE", image, vn.Name)
			remedy = "refractctl liqo adopt grants that"
		case vn.Annotations[wire.FormerImageAnnotation] == "":
			add(doctor.OK, "it was created after refractctl liqo adopt: it runs %s, instead of %s", image, former)
		default:
			add(doctor.OK, "it was adopted: it runs %s, and ran %s", image, former)
		}
		missing, err := o.missingRights(ctx, vn)
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			add(doctor.Warning, "its ServiceAccount may not %s: %s", strings.Join(missing, ", nor "), remedy)
		}
	}
	return found, nil
}

// Adopt makes the virtual nodes run the image, one after the other, and returns when all of them are ready. If a
// virtual node does not become ready, it is reverted. Adopt may be called again, even with another image.
func (o *Options) Adopt(ctx context.Context) error {
	nodes, err := o.selectedNodes(ctx)
	if err != nil {
		return err
	}
	// All virtual nodes are checked before the first one is changed.
	for i := range nodes {
		if err := o.checkAdoptable(ctx, &nodes[i]); err != nil {
			return err
		}
	}
	for i := range nodes {
		vn := &nodes[i]
		o.Progress.Report("%s: granting what Liqo's role lacks", vn.Name)
		if err := rbac.Install(ctx, o.Clientset, kubeletRights(vn, rolePrefix)...); err != nil {
			return errors.Join(err, o.takeBack(ctx, vn))
		}
		o.Progress.Report("%s: replacing %s with %s", vn.Name, imageOf(vn), o.Image)
		if err := o.replaceImage(ctx, vn, o.Image); err != nil {
			return errors.Join(err, o.takeBack(ctx, vn))
		}
		if err := o.awaitImage(ctx, vn, o.Image); err != nil {
			o.Progress.Report("%s: putting it back: %v", vn.Name, err)
			return errors.Join(err, o.putBack(context.WithoutCancel(ctx), vn, func() error { return nil }))
		}
		o.changed = append(o.changed, client.ObjectKeyFromObject(vn))
	}
	if len(o.Nodes) > 0 {
		return nil
	}
	return o.changeTemplates(ctx, func(template *offloading.VkOptionsTemplate) {
		if template.Annotations == nil {
			template.Annotations = map[string]string{}
		}
		if !isAdopted(template) {
			template.Annotations[wire.FormerImageAnnotation] = template.Spec.ContainerImage
		}
		template.Spec.ContainerImage, template.Annotations[wire.AdoptedImageAnnotation] = o.Image, o.Image
		if !slices.Contains(template.Spec.ExtraArgs, ignoreUnknown) {
			template.Spec.ExtraArgs = append(template.Spec.ExtraArgs, ignoreUnknown)
		}
	})
}

// checkAdoptable returns an error if a VirtualNode has no image that can be replaced. It also returns an error if the
// VirtualNode runs an image other than Liqo's and its previous image is not recorded.
func (o *Options) checkAdoptable(ctx context.Context, vn *offloading.VirtualNode) error {
	image := imageOf(vn)
	if image == "" {
		return fmt.Errorf("VirtualNode %s has no spec.template with a container %s, which Liqo's webhook writes: was it created by Liqo?", client.ObjectKeyFromObject(vn), containerName)
	}
	former, err := o.formerImage(ctx, vn)
	if err != nil || former != "" || image != o.Image && !ignoresUnknown(vn) {
		return err
	}
	template, err := o.templateOf(ctx, vn)
	if err == nil && (template == nil || !isOfUpgrade(vn, template)) {
		return fmt.Errorf("VirtualNode %s runs %s, which is not Liqo's, and it is unknown which image to put back: set its annotation %s to that of Liqo's virtual kubelet",
			client.ObjectKeyFromObject(vn), image, wire.FormerImageAnnotation)
	}
	return err
}

// Revert restores the previous images of adopted virtual nodes, and revokes the permissions that Adopt granted.
func (o *Options) Revert(ctx context.Context) error {
	nodes, err := o.selectedNodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		if err := o.rememberImage(ctx, &nodes[i]); err != nil {
			return err
		}
	}
	err = o.changeTemplates(ctx, func(template *offloading.VkOptionsTemplate) {
		if template.Annotations[wire.FormerImageAnnotation] == "" || len(o.Nodes) > 0 {
			return
		}
		if isAdopted(template) {
			template.Spec.ContainerImage = template.Annotations[wire.FormerImageAnnotation]
		}
		template.Spec.ExtraArgs = slices.DeleteFunc(template.Spec.ExtraArgs, func(arg string) bool { return arg == ignoreUnknown })
		delete(template.Annotations, wire.FormerImageAnnotation)
		delete(template.Annotations, wire.AdoptedImageAnnotation)
	})
	if err != nil {
		return err
	}
	for i := range nodes {
		vn := &nodes[i]
		former := vn.Annotations[wire.FormerImageAnnotation]
		if former == "" {
			continue
		}
		o.Progress.Report("%s: putting %s back", vn.Name, former)
		if err := o.putBack(ctx, vn, func() error { return o.awaitImage(ctx, vn, former) }); err != nil {
			return err
		}
		o.changed = append(o.changed, client.ObjectKeyFromObject(vn))
	}
	return nil
}

// putBack restores the previous image of a virtual node, calls happened, and then revokes the granted permissions.
func (o *Options) putBack(ctx context.Context, vn *offloading.VirtualNode, happened func() error) error {
	current := &offloading.VirtualNode{}
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(vn), current); err != nil {
		return fmt.Errorf("getting VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
	}
	former := current.Annotations[wire.FormerImageAnnotation]
	if former == "" {
		return nil
	}
	if err := o.replaceImage(ctx, current, former); err != nil {
		return err
	}
	if err := happened(); err != nil {
		return err
	}
	adopted, err := o.adoptedUIDs(ctx)
	if err != nil {
		return err
	}
	return o.withdrawRights(ctx, current, len(adopted) == 0)
}

// rememberImage records the previous image of a virtual node that was created from an adopted VkOptionsTemplate in an
// annotation. This is done before the VkOptionsTemplate is restored.
func (o *Options) rememberImage(ctx context.Context, vn *offloading.VirtualNode) error {
	if vn.Annotations[wire.FormerImageAnnotation] != "" {
		return nil
	}
	former, err := o.formerImage(ctx, vn)
	if err == nil && former == "" && ignoresUnknown(vn) {
		var template *offloading.VkOptionsTemplate
		if template, err = o.templateOf(ctx, vn); template != nil && isOfUpgrade(vn, template) {
			// The virtual node was created after an upgrade of Liqo, so it already has Liqo's image. Only the argument
			// has to be removed.
			former = imageOf(vn)
		}
	}
	if err != nil || former == "" {
		return err
	}
	before := vn.DeepCopy()
	metav1.SetMetaDataAnnotation(&vn.ObjectMeta, wire.FormerImageAnnotation, former)
	if err := o.Client.Patch(ctx, vn, client.MergeFrom(before), fieldOwner); err != nil {
		return fmt.Errorf("annotating VirtualNode %s, %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

// formerImage returns the image that an adopted virtual node ran before, or "" if the node is not adopted. A virtual
// node that ignores unknown flags but has no annotation was created from an adopted VkOptionsTemplate. In this case its
// former image is the template's former image, because the virtual node's own image may be any image that the template
// has had since it was adopted.
func (o *Options) formerImage(ctx context.Context, vn *offloading.VirtualNode) (string, error) {
	if former := vn.Annotations[wire.FormerImageAnnotation]; former != "" || !ignoresUnknown(vn) {
		return former, nil
	}
	template, err := o.templateOf(ctx, vn)
	switch {
	case err != nil || template == nil || template.Annotations[wire.FormerImageAnnotation] == "" || isOfUpgrade(vn, template):
		return "", err
	case isAdopted(template):
		return template.Annotations[wire.FormerImageAnnotation], nil
	}
	return template.Spec.ContainerImage, nil // an upgrade of Liqo set this image
}

// templateOf returns the VkOptionsTemplate of a virtual node, or nil if it is unknown.
func (o *Options) templateOf(ctx context.Context, vn *offloading.VirtualNode) (found *offloading.VkOptionsTemplate, err error) {
	all := &offloading.VkOptionsTemplateList{}
	if err := o.Client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing VkOptionsTemplates, %w", err)
	}
	ref := vn.Spec.VkOptionsTemplateRef
	for i := range all.Items {
		template := &all.Items[i]
		if ref == nil && template.Namespace != all.Items[0].Namespace {
			return nil, nil //nolint:nilnil // as documented: whoever may create one elsewhere must not choose the image
		}
		if ref != nil && (ref.Name != template.Name || cmp.Or(ref.Namespace, vn.Namespace) != template.Namespace) {
			continue
		}
		if found == nil || template.Name == defaultTemplate {
			found = template
		}
	}
	return found, nil
}

// isOfUpgrade reports whether an upgrade of Liqo changed the image of an adopted VkOptionsTemplate, and the virtual
// node has the image of the upgrade.
func isOfUpgrade(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate) bool {
	return template.Annotations[wire.FormerImageAnnotation] != "" && !isAdopted(template) && imageOf(vn) == template.Spec.ContainerImage
}

// isAdopted reports whether Adopt made the last change of a VkOptionsTemplate's image. An upgrade of Liqo sets another
// image. It may keep the annotations and arguments, or remove them.
func isAdopted(template *offloading.VkOptionsTemplate) bool {
	adopted, known := template.Annotations[wire.AdoptedImageAnnotation]
	return template.Annotations[wire.FormerImageAnnotation] != "" && slices.Contains(template.Spec.ExtraArgs, ignoreUnknown) &&
		(!known || adopted == template.Spec.ContainerImage) // earlier versions did not record the image
}

// adoptedUIDs returns the UIDs of the adopted virtual nodes.
func (o *Options) adoptedUIDs(ctx context.Context) (uids []types.UID, err error) {
	all := &offloading.VirtualNodeList{}
	if err := o.Client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing VirtualNodes, %w", err)
	}
	for i := range all.Items {
		if all.Items[i].Annotations[wire.FormerImageAnnotation] != "" {
			uids = append(uids, all.Items[i].UID)
		}
	}
	return uids, nil
}

// takeBack revokes the permissions of a virtual node that could not be adopted, unless the node had been adopted
// earlier.
func (o *Options) takeBack(ctx context.Context, vn *offloading.VirtualNode) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	adopted, err := o.adoptedUIDs(ctx)
	if err != nil || slices.Contains(adopted, vn.UID) {
		return err
	}
	return o.withdrawRights(ctx, vn, len(adopted) == 0)
}

// takeBackTimeout limits how long it may take to revoke permissions after a failure.
const takeBackTimeout = 30 * time.Second

// selectedNodes returns the selected virtual nodes.
func (o *Options) selectedNodes(ctx context.Context) ([]offloading.VirtualNode, error) {
	all := &offloading.VirtualNodeList{}
	if err := o.Client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing VirtualNodes, %w", err)
	}
	for _, name := range o.Nodes {
		if !slices.ContainsFunc(all.Items, func(vn offloading.VirtualNode) bool { return vn.Name == name }) {
			return nil, fmt.Errorf("there is no virtual node %s (list them with: refractctl get virtualnode)", name)
		}
	}
	meant := slices.DeleteFunc(all.Items, func(vn offloading.VirtualNode) bool { return len(o.Nodes) > 0 && !slices.Contains(o.Nodes, vn.Name) })
	for i := range meant {
		if err := o.checkNamespace(ctx, &meant[i]); err != nil {
			return nil, err
		}
	}
	return meant, nil
}

// checkNamespace returns an error for a VirtualNode outside the tenant namespace of its provider. The ServiceAccount of
// the VirtualNode would get the permissions of a virtual kubelet. A user who may create VirtualNodes in another
// namespace must not be able to obtain these permissions.
func (o *Options) checkNamespace(ctx context.Context, vn *offloading.VirtualNode) error {
	namespace := &corev1.Namespace{}
	if err := o.Client.Get(ctx, client.ObjectKey{Name: vn.Namespace}, namespace); err != nil {
		return fmt.Errorf("getting namespace %s, %w", vn.Namespace, err)
	}
	if namespace.Labels[wire.TenantNamespaceLabel] == "true" && namespace.Labels[wire.RemoteClusterIDLabel] == string(vn.Spec.ClusterID) {
		return nil
	}
	return fmt.Errorf("VirtualNode %s is not in the tenant namespace of cluster %s: delete it, or name the virtual nodes to adopt", client.ObjectKeyFromObject(vn), vn.Spec.ClusterID)
}

// imageOf returns the image of the virtual kubelet in a VirtualNode, or "" if there is none.
func imageOf(vn *offloading.VirtualNode) string {
	if container := containerOf(vn); container != nil {
		return container.Image
	}
	return ""
}

// ignoresUnknown reports whether the virtual kubelet in a VirtualNode has the flag --ignore-unknown-flags. Only Adopt
// sets this flag, on the VirtualNode or on its VkOptionsTemplate.
func ignoresUnknown(vn *offloading.VirtualNode) bool {
	container := containerOf(vn)
	return container != nil && slices.Contains(container.Args, ignoreUnknown)
}

// containerOf returns the container of the virtual kubelet in a VirtualNode, or nil if there is none.
func containerOf(vn *offloading.VirtualNode) *corev1.Container {
	if vn.Spec.Template == nil {
		return nil
	}
	all := vn.Spec.Template.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == containerName }); i >= 0 {
		return &all[i]
	}
	return nil
}

// replaceImage sets the image in a VirtualNode, adds --ignore-unknown-flags, and records the former image in an
// annotation. If image is the recorded one, it instead undoes all of this. Other fields, including unknown ones, stay
// unchanged.
func (o *Options) replaceImage(ctx context.Context, vn *offloading.VirtualNode, image string) error {
	key := client.ObjectKeyFromObject(vn)
	former, err := o.formerImage(ctx, vn)
	if err != nil {
		return err
	}
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.VirtualNodeKind))
	if err := o.Client.Get(ctx, key, current); err != nil {
		return fmt.Errorf("getting VirtualNode %s, %w", key, err)
	}
	changed := current.DeepCopy()
	list, _, err := unstructured.NestedSlice(changed.Object, containers...)
	if err != nil {
		return fmt.Errorf("VirtualNode %s, %s: %w", key, strings.Join(containers, "."), err)
	}
	annotations := changed.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	back := annotations[wire.FormerImageAnnotation] == image
	for i := range list {
		container, ok := list[i].(map[string]any)
		if !ok || container["name"] != containerName {
			continue
		}
		if before, _ := container["image"].(string); annotations[wire.FormerImageAnnotation] == "" {
			annotations[wire.FormerImageAnnotation] = cmp.Or(former, before)
		}
		container["image"] = image
		arguments, _, err := unstructured.NestedStringSlice(container, "args")
		if err != nil {
			return fmt.Errorf("VirtualNode %s, %s[%d].args: %w", key, strings.Join(containers, "."), i, err)
		}
		arguments = slices.DeleteFunc(arguments, func(argument string) bool { return argument == ignoreUnknown })
		if !back {
			arguments = append(arguments, ignoreUnknown)
		}
		if err := unstructured.SetNestedStringSlice(container, arguments, "args"); err != nil {
			return err
		}
	}
	if back {
		delete(annotations, wire.FormerImageAnnotation)
	}
	changed.SetAnnotations(annotations)
	if err := unstructured.SetNestedSlice(changed.Object, list, containers...); err != nil {
		return err
	}
	if err := o.Client.Patch(ctx, changed, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
		return fmt.Errorf("changing VirtualNode %s, %w", key, err)
	}
	return nil
}

// awaitImage waits until the Deployment of a virtual kubelet runs the image and the node is ready.
func (o *Options) awaitImage(ctx context.Context, vn *offloading.VirtualNode, image string) error {
	key := client.ObjectKey{Namespace: vn.Namespace, Name: "vk-" + vn.Name}
	return o.Progress.Await(ctx, "virtual node "+vn.Name, func(ctx context.Context) (string, error) {
		deployment := &appsv1.Deployment{}
		err := o.Client.Get(ctx, key, deployment)
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("Deployment %s does not exist yet", key), nil
		case err != nil:
			return "", fmt.Errorf("getting Deployment %s, %w", key, err)
		case !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Image == image }):
			return fmt.Sprintf("Deployment %s does not have the image yet: waiting for the controller to update it", key), nil
		}
		want := int32(1)
		if deployment.Spec.Replicas != nil {
			want = *deployment.Spec.Replicas
		}
		switch s := &deployment.Status; {
		case s.ObservedGeneration < deployment.Generation || s.UpdatedReplicas < want || s.AvailableReplicas < want:
			return fmt.Sprintf("Deployment %s: %d of %d replicas are up to date and available", key, min(s.UpdatedReplicas, s.AvailableReplicas), want), nil
		case s.Replicas > want:
			return fmt.Sprintf("Deployment %s: an old replica is terminating", key), nil
		}
		node := &corev1.Node{}
		if err := o.Client.Get(ctx, client.ObjectKey{Name: vn.Name}, node); err != nil {
			if apierrors.IsNotFound(err) {
				return "the node is not registered yet", nil
			}
			return "", fmt.Errorf("getting node %s, %w", vn.Name, err)
		}
		if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); ready == nil || ready.Status != corev1.ConditionTrue {
			return "the node is not ready", nil
		}
		if missing, err := o.missingParts(ctx, vn, node, deployment, image); missing != "" || err != nil {
			return missing, err
		}
		o.Progress.Report("%s: ready, with %s", vn.Name, image)
		return "", nil
	})
}

// missingParts returns a message until the Node has the address of a pod with the image. The former pod's lease and
// address are still in effect for some seconds after the pod has ended.
func (o *Options) missingParts(ctx context.Context, vn *offloading.VirtualNode, node *corev1.Node, deployment *appsv1.Deployment, image string) (missing string, err error) {
	if vn.Spec.CreateNode != nil && !*vn.Spec.CreateNode {
		return "", nil // another client maintains this Node
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("reading the selector of Deployment %s, %w", client.ObjectKeyFromObject(deployment), err)
	}
	pods := &corev1.PodList{}
	if err := o.Client.List(ctx, pods, client.InNamespace(vn.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return "", fmt.Errorf("listing the pods of Deployment %s, %w", client.ObjectKeyFromObject(deployment), err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == image }) &&
			slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
				return a.Type == corev1.NodeInternalIP && a.Address == pod.Status.PodIP
			}) {
			return "", nil
		}
	}
	return "the new replica does not serve the node yet: it waits for the lease of the old one", nil
}

// changeTemplates changes all VkOptionsTemplates, from which later virtual nodes are created.
func (o *Options) changeTemplates(ctx context.Context, change func(*offloading.VkOptionsTemplate)) error {
	all := &offloading.VkOptionsTemplateList{}
	if err := o.Client.List(ctx, all); err != nil {
		return fmt.Errorf("listing VkOptionsTemplates, %w", err)
	}
	for i := range all.Items {
		before := all.Items[i].DeepCopy()
		change(&all.Items[i])
		if equality.Semantic.DeepEqual(before, &all.Items[i]) {
			continue
		}
		if err := o.Client.Patch(ctx, &all.Items[i], client.MergeFrom(before), fieldOwner); err != nil {
			return fmt.Errorf("changing VkOptionsTemplate %s, %w", client.ObjectKeyFromObject(before), err)
		}
	}
	return nil
}
