// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package token stores the service account tokens of offloaded pods in Secrets on the provider. Tokens are not objects
// of this cluster. They are requested for each pod, and renewed before they expire.
package token

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// Name is the name of the kind.
const Name = "ServiceAccount"

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

// Kind returns the kind of service account tokens.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, Source: podsResource, Policy: engine.Always, Workers: 3, PerNode: true, FailureReason: wire.FailedTokensReason,
		Copy: copies.Spec{
			GVR: corev1.SchemeGroupVersion.WithResource("secrets"), GVK: corev1.SchemeGroupVersion.WithKind("Secret"), Mode: copies.Replace,
			Suffix: wire.TokenSecretSuffix, Except: wire.ServiceAccountNameLabel,
		},
		Chain: engine.Chain{None: true}, Cache: engine.Cache{Copies: tokenSums},
		Handler: func(env *engine.Env) (engine.Handler, error) { return &Handler{Base: engine.Base{Env: env}}, nil },
	}
}

// Handler implements engine.Handler. It requests the tokens of pods.
type Handler struct {
	engine.Base
	states   sync.Map // *tokenState by queue.Key
	mounting sync.Map // mounting by queue.Key
}
