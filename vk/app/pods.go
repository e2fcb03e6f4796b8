// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/vk/reflection"
)

// podSource provides the kubelet API with the pods in the caches of the reflection.
type podSource struct{ manager *reflection.Manager }

func (s podSource) Pods() []*corev1.Pod {
	return typedAll(reflection.Pods(s.manager), log.Log.WithName("pods"))
}

// typedAll converts the objects to pods. Invalid pods are logged and omitted, so that one invalid pod does not hide
// all others.
func typedAll(objects []*unstructured.Unstructured, log logr.Logger) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		pod, err := typedPod(object)
		if err != nil {
			log.Error(err, "A pod is left out of /pods and /stats/summary", "namespace", object.GetNamespace(), "pod", object.GetName())
			continue
		}
		pods = append(pods, pod)
	}
	return pods
}

func (s podSource) Pod(namespace, name string) (*corev1.Pod, bool) {
	object := reflection.Pod(s.manager, namespace, name)
	if object == nil {
		return nil, false
	}
	pod, err := typedPod(object)
	return pod, err == nil
}

func typedPod(object *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return nil, fmt.Errorf("reading pod %s/%s, %w", object.GetNamespace(), object.GetName(), err)
	}
	return pod, nil
}

// namespaceMapper provides the kubelet API with the remote namespace of each offloaded namespace.
type namespaceMapper struct{ manager *reflection.Manager }

func (m namespaceMapper) Remote(local string) (string, bool) { return m.manager.RemoteNamespace(local) }
