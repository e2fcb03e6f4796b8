// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package claim reflects PersistentVolumeClaims of the virtual storage class. The provider provisions a volume, and a
// PersistentVolume in this cluster represents it.
package claim

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
)

// Name is the name of the kind.
const Name = "PersistentVolumeClaim"

var (
	volumesResource        = corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	storageClassesResource = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
)

// Kind returns the kind of claims.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, Source: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Policy: engine.Always, Workers: 3,
		// The owner of the status is not recorded in an annotation, because the volume of the claim already identifies
		// the owner.
		Copy: copies.Spec{FixedSpec: true}, Status: objects.Status{Back: true, Subresource: true}, Follows: engine.Follows{Nodes: true},
		// Every virtual kubelet needs the claims of its pods (see KeptClass).
		Needed:  func(*engine.Options) bool { return true },
		Handler: newHandler,
	}
}

// Handler implements engine.Handler. It reconciles claims.
type Handler = handler

type handler struct {
	engine.Base
	volumes *volumes
}

func newHandler(env *engine.Env) (engine.Handler, error) {
	h := &handler{Base: engine.Base{Env: env}}
	h.watchVolumes()
	return h, nil
}
