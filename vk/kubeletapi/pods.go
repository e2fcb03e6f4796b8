// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// PodSource returns the local pods that are bound to this node. Implementations are caches: they do not block and are
// safe for concurrent use. Callers must not modify the results.
type PodSource interface {
	// Pods lists all pods that are bound to this node. Pods that cannot be decoded are omitted.
	Pods() []*corev1.Pod
	// Pod returns a pod, and reports whether the pod exists and is bound to this node.
	Pod(namespace, name string) (*corev1.Pod, bool)
}

// NamespaceMapper returns the remote namespace of a local namespace.
type NamespaceMapper interface {
	// Remote returns the remote namespace, and reports whether the local namespace is currently offloaded.
	Remote(local string) (string, bool)
}

// servePods responds to /pods with all pods bound to the node.
func (s *Server) servePods(w http.ResponseWriter, r *http.Request) {
	s.writePods(w, r, func(*corev1.Pod) bool { return true })
}

// serveRunningPods responds to /runningpods/ with the running pods.
func (s *Server) serveRunningPods(w http.ResponseWriter, r *http.Request) {
	s.writePods(w, r, isRunning)
}

func (s *Server) writePods(w http.ResponseWriter, r *http.Request, keep func(*corev1.Pod) bool) {
	pods := s.config.Pods.Pods()
	list := corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Items:    make([]corev1.Pod, 0, len(pods)),
	}
	for _, pod := range pods {
		if keep(pod) {
			list.Items = append(list.Items, *pod)
		}
	}
	writeJSON(w, r, &list)
}

func writeJSON(w http.ResponseWriter, r *http.Request, answer any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.FromContext(r.Context()).V(1).Info("The client closed the connection before the response was complete", "path", r.URL.Path, "err", err)
	}
}
