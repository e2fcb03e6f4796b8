// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/networks"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
)

// GenerationAnnotation is set on a pod that was not created from the first generation of its ShadowPod. It is the
// generation whose spec the pod has. Differences that the provider has caused, for example because its admission
// rewrites images, are kept; the pod's record shows which ones they are (see package asked).
const GenerationAnnotation = wire.ShadowPodGenerationAnnotation

// SpentAnnotation is set on a pod. It lists the ephemeral containers that the ShadowPod had when the pod was created,
// separated by commas. They ran in an earlier pod that was lost, and an ephemeral container never runs twice.
const SpentAnnotation = "controllers.refract.io/spent-ephemeral-containers"

// ownAnnotations are set only by the controller. Their values in the ShadowPod are ignored.
var ownAnnotations = []string{GenerationAnnotation, SpentAnnotation, asked.Annotation, wire.AdmittedAnnotation}

// Actions in the Events of this controller.
const (
	createAction = "CreatePod"
	updateAction = "UpdatePod"
)

// errForeign is returned if a pod with the desired name exists and has another owner.
var errForeign = report.Errorf(report.Foreign, "a pod of this name exists that is not ours")

// create creates the pod of shadow if this cluster allows it. It returns the delay until the next attempt; 0 means that
// it waits for an event.
func (c *Controller) create(ctx context.Context, shadow *unstructured.Unstructured) (time.Duration, error) {
	shadow, err := kind.Whole(ctx, c.uncached, shadow)
	if err != nil || shadow == nil {
		return 0, err
	}
	if refusal, err := c.judge(ctx, shadow); refusal != nil || err != nil {
		return c.refuseForNow(ctx, shadow, createAction, refusal, err)
	}
	if err := c.createAllowed(ctx, shadow); !errors.Is(err, errOverQuota) {
		return 0, err
	}
	return quotaRetryInterval, nil // the pod of another owner may end, or the Quota may change
}

// createAllowed creates the pod of shadow, which this cluster allows.
func (c *Controller) createAllowed(ctx context.Context, shadow *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	pod, err := c.forge(ctx, shadow)
	if err != nil {
		if !errors.Is(err, networks.ErrNotYet) {
			c.report.Warn(shadow, reasonOf(err), createAction, err.Error())
		}
		if errors.Is(err, errNoOrigin) || errors.Is(err, errNoSpec) {
			return nil // the refusal was reported on the ShadowPod, whose next change triggers another attempt
		}
		return err
	}
	if err := c.checkFields(ctx, shadow, pod); err != nil {
		return err
	}
	if err := c.reserveCreation(ctx, shadow, pod); err != nil {
		return err
	}
	sent, _ := pod.Object["spec"].(map[string]any)
	err = c.client.Create(ctx, pod, client.FieldOwner(wire.ShadowPodFieldManager))
	switch {
	case err == nil:
		c.settleCreation(pod)
		err := c.created(shadow, pod)
		c.reportDropped(ctx, shadow, sent, pod)
		return errors.Join(c.admitted(ctx, shadow), err)
	case apierrors.IsAlreadyExists(err):
		return c.meet(ctx, shadow)
	}
	if isDecided(err) {
		c.releaseQuota(key)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	failure := fmt.Errorf("creating pod %s, %w", key, err)
	if apierrors.IsInvalid(err) {
		// A LimitRange, a webhook or a disabled feature of this cluster may be the cause, and may change. The refusal
		// is counted before it is reported, so that a change in response to the Event triggers a retry of the pod.
		failure = report.Later(failure, c.invalid.Next(key, generationOf(shadow)))
	}
	if !apierrors.IsForbidden(err) || c.persists(shadow) {
		c.report.Warn(shadow, wire.FailedCreatePodReason, createAction, "creating the pod: "+err.Error())
	}
	return failure
}

// settleCreation settles the Quota reservation with the sizes that the pod has after its creation.
func (c *Controller) settleCreation(created *unstructured.Unstructured) {
	pod := &corev1.Pod{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, pod) == nil {
		c.settleQuota(pod)
	}
}

// persistent is the number of attempts before a forbidden pod is reported. With a lower number, every pod that arrives
// in a new namespace before its service account would be reported. Kubernetes creates the service account a moment
// later. Eight attempts take about one second.
const persistent = 8

// persists counts the forbidden attempts for shadow, and reports whether the limit is reached.
func (c *Controller) persists(shadow *unstructured.Unstructured) bool {
	key := client.ObjectKeyFromObject(shadow)
	attempts, _ := c.forbidden.Get(key)
	c.forbidden.Set(key, attempts+1)
	return attempts+1 >= persistent
}

// created handles a created pod. Only recreated pods are reported: the first creation is expected, and an Event about
// it would be an additional write.
func (c *Controller) created(shadow, pod *unstructured.Unstructured) error {
	c.noteRan(shadow)
	c.brake.Created(shadow)
	c.report.Clear(client.ObjectKeyFromObject(shadow))
	c.forbidden.Drop(client.ObjectKeyFromObject(shadow))
	c.invalid.Drop(client.ObjectKeyFromObject(shadow))
	if phase := recordedPhase(shadow); phase != "" && phase != corev1.PodUnknown {
		c.report.Tell(shadow, pod, wire.CreatedPodReason, createAction, "The pod was missing and has been recreated")
	}
	return nil
}

// meet handles a pod that exists but is not in the cache. The cache only holds pods with the label of this
// controller.
func (c *Controller) meet(ctx context.Context, shadow *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	pod := &corev1.Pod{}
	if err := c.uncached.Get(ctx, key, pod); err != nil {
		return fmt.Errorf("getting pod %s, which exists already, %w", key, err)
	}
	if !metav1.IsControlledBy(pod, shadow) {
		if c.options.Quotas != nil {
			c.holdReservation(key, pod)
		}
		return c.yield(ctx, shadow, pod)
	}
	c.settleQuota(pod)
	if _, err := c.follow(ctx, shadow, pod); err != nil || pod.DeletionTimestamp == nil {
		return err
	}
	// The pod is not in the cache, so no watch event reports its end.
	return fmt.Errorf("waiting for pod %s, which is being deleted", key)
}

// yield leaves the pod of another owner unchanged, and returns an error so that the creation is retried.
func (c *Controller) yield(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) error {
	key := client.ObjectKeyFromObject(shadow)
	if isPredecessor(pod, shadow) {
		if err := c.endPredecessor(ctx, pod); err != nil {
			return err
		}
		return fmt.Errorf("waiting for pod %s of the previous ShadowPod to be deleted, %w", key, errForeign)
	}
	c.report.Warn(shadow, wire.FailedCreatePodReason, createAction,
		fmt.Sprintf("a pod %s exists that does not belong to this ShadowPod (%s); it was left unchanged: delete it, or offload under another name", key, describeOwner(pod)))
	return fmt.Errorf("creating pod %s, %w", key, errForeign)
}

// isPredecessor reports whether the pod belongs to an earlier ShadowPod with the same name.
func isPredecessor(pod *corev1.Pod, shadow *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == offloading.ShadowPodKind && owner.Name == shadow.GetName() && owner.UID != shadow.GetUID()
}

func describeOwner(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return fmt.Sprintf("it is controlled by %s %s", owner.Kind, owner.Name)
	}
	return "it has no controller"
}

func reasonOf(err error) string {
	if errors.Is(err, errNoOrigin) {
		return shadows.MissingOriginReason
	}
	return wire.FailedCreatePodReason
}

// Errors that make a ShadowPod unusable until it is changed.
var (
	errNoOrigin = fmt.Errorf("label %s is missing, so the cluster of this pod is unknown: set it to the consumer's cluster id", wire.OriginLabel)
	errNoSpec   = errors.New("spec.pod is missing or not an object: it must be a pod's spec")
)

// forge returns the pod that shadow describes. Its spec is the stored spec of the ShadowPod. The spec is not
// converted to a Go type, because fields could be lost.
func (c *Controller) forge(ctx context.Context, shadow *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	origin := shadow.GetLabels()[wire.OriginLabel]
	if origin == "" {
		return nil, errNoOrigin
	}
	spec, ok := podSpec(shadow)
	if !ok {
		return nil, errNoSpec
	}
	spec, err := c.mapAPIServer(ctx, origin, spec)
	if err != nil {
		return nil, err
	}
	spec, err = c.useHomeNames(ctx, shadow.GetNamespace(), spec)
	if err != nil {
		return nil, err
	}
	spec = maps.Clone(spec)
	withoutToken(spec)
	spent := ephemeralNames(spec)
	delete(spec, ephemeralContainers)
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
	pod.SetNamespace(shadow.GetNamespace())
	pod.SetName(shadow.GetName())
	pod.SetLabels(podLabels(shadow))
	pod.SetAnnotations(podAnnotations(shadow, spent))
	pod.SetFinalizers(finalizers(spec))
	pod.SetOwnerReferences(kind.Owner(shadow))
	return pod, nil
}

// withoutToken disables the API server's default of mounting a token of this cluster into pods, unless the consumer
// has requested a token. With such a token, the pods of a consumer would be clients of this cluster's API server.
func withoutToken(spec map[string]any) {
	const field = "automountServiceAccountToken"
	if spec[field] == nil {
		spec[field] = false
	}
}

func podSpec(shadow *unstructured.Unstructured) (map[string]any, bool) {
	spec, ok := shadow.Object["spec"].(map[string]any)
	if !ok {
		return nil, false
	}
	pod, ok := spec["pod"].(map[string]any)
	return pod, ok
}

func podLabels(shadow *unstructured.Unstructured) map[string]string {
	labels := shadow.GetLabels() // GetLabels returns a copy.
	if labels == nil {
		labels = map[string]string{}
	}
	labels[wire.ManagedByLabel] = wire.ManagedByShadowPod
	return labels
}

// podAnnotations returns the annotations of a new pod.
func podAnnotations(shadow *unstructured.Unstructured, spent []string) map[string]string {
	annotations := requestedAnnotations(shadow)
	if annotations == nil {
		annotations = map[string]string{}
	}
	spec, _ := podSpec(shadow)
	record := asked.Record{Metadata: asked.MetadataValues(podLabels(shadow), annotations), Content: contentValues(spec)}
	if text := record.Text(); text != "" {
		annotations[asked.Annotation] = text
	}
	if shadow.GetGeneration() > 1 {
		annotations[GenerationAnnotation] = generationOf(shadow)
	}
	if len(spent) > 0 {
		annotations[SpentAnnotation] = strings.Join(spent, ",")
	}
	return annotations
}

// requestedAnnotations returns a copy of the annotations of shadow, without the annotations that the controller writes
// itself.
func requestedAnnotations(shadow *unstructured.Unstructured) map[string]string {
	annotations := shadow.GetAnnotations() // GetAnnotations returns a copy.
	for _, ours := range ownAnnotations {
		delete(annotations, ours)
	}
	return annotations
}

// mapAPIServer returns a copy of spec with the host aliases of the consumer's API server set to the address that this
// cluster has to use. An address that the consumer has set by value is already valid in this cluster, and stays
// unchanged. See isSetByValue.
func (c *Controller) mapAPIServer(ctx context.Context, origin string, spec map[string]any) (map[string]any, error) {
	aliases, ok := spec["hostAliases"].([]any)
	if !ok || c.options.APIServerMapper == nil {
		return spec, nil
	}
	mapped := make([]any, len(aliases))
	for i, alias := range aliases {
		entry, ok := alias.(map[string]any)
		if !ok || !namesAPIServer(entry) {
			mapped[i] = alias
			continue
		}
		ip, _ := entry["ip"].(string)
		if isSetByValue(spec, ip) {
			mapped[i] = alias
			continue
		}
		here, err := c.options.APIServerMapper.MapAPIServer(ctx, origin, ip)
		if err != nil {
			return nil, fmt.Errorf("mapping host alias %s of the API server of %s, %w", ip, origin, err)
		}
		entry = maps.Clone(entry)
		entry["ip"] = here
		mapped[i] = entry
	}
	spec = maps.Clone(spec)
	spec["hostAliases"] = mapped
	return spec, nil
}

// isSetByValue reports whether a container's environment contains the address of the API server. If the network has
// reported the address, the environment contains a host name instead.
func isSetByValue(spec map[string]any, ip string) bool {
	for _, field := range []string{"containers", "initContainers"} {
		for _, container := range containersOf(spec, field) {
			env, _ := container["env"].([]any)
			for _, item := range env {
				if variable, _ := item.(map[string]any); variable["name"] == "KUBERNETES_SERVICE_HOST" && variable["value"] == ip {
					return true
				}
			}
		}
	}
	return false
}

func namesAPIServer(alias map[string]any) bool {
	names, _ := alias["hostnames"].([]any)
	for _, name := range names {
		if text, ok := name.(string); ok && strings.Contains(text, "kubernetes.default") {
			return true
		}
	}
	return false
}
