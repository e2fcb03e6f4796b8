// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/eventrecorder"
	"github.com/refract-project/refract/vk/app/options"
)

// reporter reports problems with the provider, the node and plugins as Events on the VirtualNode. It never blocks.
type reporter struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	about       *corev1.ObjectReference
}

func newReporter(o *options.Options, client kubernetes.Interface) *reporter {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	return &reporter{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "virtual-kubelet", Host: o.PodName}),
		about: &corev1.ObjectReference{
			APIVersion: offloadingv1beta1.GroupVersion.String(), Kind: offloadingv1beta1.VirtualNodeKind,
			Namespace: o.TenantNamespace, Name: o.VirtualNode,
		},
	}
}

// reportWarning reports a problem that a user or administrator must solve.
func (r *reporter) reportWarning(reason, message string) {
	r.publishEvent(corev1.EventTypeWarning, reason, message)
}

// reportNormal reports a change that needs no action, for example that a plugin is in use.
func (r *reporter) reportNormal(reason, message string) {
	r.publishEvent(corev1.EventTypeNormal, reason, message)
}

func (r *reporter) publishEvent(eventType, reason, message string) {
	r.recorder.Event(r.about, eventType, reason, eventrecorder.Shorten(message))
}

func (r *reporter) closeBroadcaster() { r.broadcaster.Shutdown() }
