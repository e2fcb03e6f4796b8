// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// accessVolume is the prefix of the volume that Kubernetes adds to a pod for its token.
	accessVolume = "kube-api-access-"
	// TokenArrivalGrace is how long the reflection of a Secret may take before an Event reports that a pod waits for
	// it. The grace is needed because a pod and its Secret are often created together.
	TokenArrivalGrace = 2 * time.Second
)

// AccountTokens finds the provider's Secret with the long-lived token of a service account, for the mode Legacy. A
// returned error may be an ArrivingError.
type AccountTokens interface {
	AccountToken(namespace, account string) (secret string, err error)
}

// ArrivingError is returned if a Secret is missing that may arrive in a moment, or if the Secrets are not known yet.
type ArrivingError interface {
	error
	Soon() bool
	Unknown() bool
}

// RequestedTokens receives the volumes of a pod before the pod is offloaded, so that the tokens of the pod exist in
// time.
type RequestedTokens interface {
	Mounts(key queue.Key, uid types.UID, volumes any)
}

// AccountTokenChanged enqueues the pods of a service account that are not offloaded yet. An empty account selects the
// pods of all service accounts.
func (h *Handler) AccountTokenChanged(namespace, account string) {
	s := h.Scope(namespace)
	if s == nil {
		return
	}
	for _, pod := range s.Objects() {
		if (account == "" || access.ServiceAccount(pod) == account) && s.CachedCopy(pod.GetName()) == nil {
			s.Enqueue(raw.Key(pod))
		}
	}
}

// Shadow returns the cached ShadowPod of a pod. reflected is false if pods are not reflected in the namespace.
func (h *Handler) Shadow(namespace, name string) (shadow *unstructured.Unstructured, reflected bool) {
	s := h.Scope(namespace)
	if s == nil {
		return nil, false
	}
	return s.CachedCopy(name), true
}

// FollowShadows makes another scope of the namespace wait until the ShadowPods are known, and calls f with the name
// of each ShadowPod that is deleted.
func (h *Handler) FollowShadows(other *engine.Scope, f func(name string)) {
	s := h.Scope(other.Local)
	if s == nil {
		return
	}
	other.OnCopy(s, func(_, shadow *unstructured.Unstructured, deleted bool) {
		if deleted {
			f(shadow.GetName())
		}
	})
}

// tellTokens passes the volumes that will be offloaded to the handler of tokens. volumes may be nil.
func (h *Handler) tellTokens(v *podView, volumes any) {
	if tokens, ok := engine.Peer[RequestedTokens](h.Env); ok {
		tokens.Mounts(v.key, v.local.GetUID(), volumes)
	}
}

// context returns the context of a pod's outgoing chain. If the pod mounts the token of its service account, the
// context names the Secret. If there is no Secret, lacking is the reason why it is missing.
func (h *Handler) context(v *podView) (root map[string]any, lacking error) {
	root = v.scope.Context(host.Outgoing)
	if h.Options().APIServerSupport != engine.SupportLegacy || access.Declined(v.local) != "" || !mountsOwnToken(v.local) {
		return root, nil
	}
	root = maps.Clone(root)
	if v.shadow == nil {
		var secret string
		if secret, lacking = h.accountToken(v); lacking == nil {
			root["serviceAccountSecretName"] = secret
		}
	} else if name := MountedToken(v.shadow); name != "" {
		root["serviceAccountSecretName"] = name
	} else {
		// The pod was offloaded without a token, and its volumes cannot change later.
		root["apiServerSupport"] = engine.SupportDisabled
	}
	return root, lacking
}

// accountToken returns the name of the provider's Secret with the token of the pod's service account.
func (h *Handler) accountToken(v *podView) (secret string, lacking error) {
	secrets, ok := engine.Peer[AccountTokens](h.Env)
	if !ok {
		return "", &unreflectedError{access.ServiceAccount(v.local)}
	}
	return secrets.AccountToken(v.key.Namespace, access.ServiceAccount(v.local))
}

// mountsOwnToken reports whether Kubernetes has added the volume with its token to a pod.
func mountsOwnToken(pod *unstructured.Unstructured) bool {
	for volume, source := range access.Projections(raw.Nested(pod.Object, "spec", "volumes")) {
		if strings.HasPrefix(volume, accessVolume) && source["serviceAccountToken"] != nil {
			return true
		}
	}
	return false
}

// MountedToken returns the name of the Secret that a ShadowPod mounts instead of the token, or "" if it mounts none.
func MountedToken(shadow *unstructured.Unstructured) string {
	for volume, secret := range access.Secrets(raw.Map(raw.Nested(shadow.Object, "spec", "pod"))) {
		if strings.HasPrefix(volume, accessVolume) {
			return secret
		}
	}
	return ""
}

// blame returns the error to report if a chain has returned err. If the chain failed because it ran without the pod's
// Secret, this is the reason why there is no Secret, or nil while the Secret may still arrive.
func (h *Handler) blame(v *podView, err, lacking error) error {
	var failed *host.PluginFailedError
	var on ArrivingError
	switch {
	case lacking == nil || !errors.As(err, &failed):
		return err
	case !errors.As(lacking, &on):
		return lacking
	case on.Unknown():
		// The pod is enqueued again when the Secrets have been read.
		return nil
	case on.Soon() && v.state.lacking.IsZero():
		v.state.lacking = h.Clock().Now()
		return &failure.RetryAfter{After: TokenArrivalGrace}
	case on.Soon() && h.Clock().Since(v.state.lacking) < TokenArrivalGrace:
		return nil
	}
	return lacking
}
