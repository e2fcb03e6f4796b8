// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// tokenTogether is how long before their renewal other tokens of a pod are renewed along with a due one. A shorter
	// time would cause more writes.
	tokenTogether = 30 * time.Second
	// tokenJitterMost limits the delay of a token's renewal, which is a twentieth of its lifetime. It spreads the
	// renewals of tokens of pods that started together.
	tokenJitterMost = 5 * time.Minute
	// tokenPause is the minimum time between two renewals, regardless of the clocks of the clusters.
	tokenPause = time.Minute
)

// tokenState is the state of a pod's tokens. One worker at a time uses it.
type tokenState struct {
	uid    types.UID
	issued map[string]token // issued tokens that are not on the provider yet
}

// Reconcile implements engine.Handler. It keeps the service-account tokens of a pod of this node in a Secret of the
// provider. The pod's plugin makes the volumes of the ShadowPod refer to the Secret. (Liqo: ServiceAccount reflection,
// TokenAPI.)
//
// Tokens are not objects, so plugins do not see them, and they are never logged.
func (h *Handler) Reconcile(ctx context.Context, w *engine.Worker, s *engine.Scope, key engine.Key) error {
	local := h.ObjectOfNode(key)
	remote, going := s.Copy(key.Name)
	if going || remote != nil && remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if local == nil {
		h.dropState(key)
		s.Forget(key)
		return h.Remove(ctx, w, s, remote)
	}
	if remote != nil && ofAnotherPod(remote, local) {
		return h.Remove(ctx, w, s, remote) // continues when the Secret is gone
	}
	sources := tokenSources(local)
	if len(sources) == 0 || podend.Finished(pods.Phase(raw.Status(local))) {
		return h.Remove(ctx, w, s, remote)
	}
	if why := withoutTokens(h.Options(), local); why != "" {
		return h.takeTokensBack(ctx, w, s, local, remote, why)
	}
	mounts, known := h.mountsTokens(key, local)
	switch {
	case !known, remote == nil && local.GetDeletionTimestamp() != nil:
		return nil
	case !mounts:
		return h.Remove(ctx, w, s, remote)
	}
	return h.keepTokens(ctx, w, s, local, remote, sources)
}

// ofAnotherPod reports whether the Secret belongs to an earlier pod of the same name. A Secret without the annotation
// does not.
func ofAnotherPod(secret, pod *unstructured.Unstructured) bool {
	uid, _ := raw.Annotations(secret.Object)[wire.ServiceAccountPodUIDAnnotation].(string)
	return uid != "" && uid != string(pod.GetUID())
}

// withoutTokens returns the reason why a pod gets no tokens, or "" if it gets them. An invalid annotation is reported
// by the pod's plugin, and both treat it as absent.
func withoutTokens(o *engine.Options, pod *unstructured.Unstructured) string {
	if why := access.Declined(pod); why != "" {
		return why
	}
	switch o.APIServerSupport {
	case engine.SupportTokenAPI:
		return ""
	case engine.SupportLegacy:
		return "the virtual kubelet runs in the API server mode " + engine.SupportLegacy
	}
	return "the virtual kubelet runs without --enable-apiserver-support"
}

// takeTokensBack deletes the tokens of a pod that must no longer have any.
func (h *Handler) takeTokensBack(ctx context.Context, w *engine.Worker, s *engine.Scope, local, remote *unstructured.Unstructured, why string) error {
	if remote == nil {
		return nil
	}
	if err := h.Remove(ctx, w, s, remote); err != nil {
		return err
	}
	h.Note(local, wire.ReflectionDisabledReason, fmt.Sprintf("removed the service account tokens from cluster %s: %s;"+
		" if the pod was offloaded with them, recreate it, or it cannot start again there", h.Options().RemoteClusterID, why))
	return nil
}

// keepTokens ensures that the Secret has, for every source, a token with more than a fifth of its lifetime left.
func (h *Handler) keepTokens(ctx context.Context, w *engine.Worker, s *engine.Scope, local, remote *unstructured.Unstructured, sources []tokenSource) error {
	key := raw.Key(local)
	if err := h.checkTokenNames(key); err != nil {
		return err
	}
	state := h.tokenStateOf(key, local.GetUID())
	held := heldTokens(remote, sources, state.issued)
	current := h.isCurrent(w, s, local, remote, sources, held)
	if !current && remote != nil {
		whole, err := h.WholeCopy(ctx, s, remote) // the tokens that are not renewed are written again
		if err != nil {
			return err
		}
		held = heldTokens(whole, sources, state.issued)
	}
	denied := h.renewTokens(ctx, local, sources, held, state)
	if len(held) < len(sources) {
		return denied // a pod cannot start with some of its tokens
	}
	if !current {
		w.Doc.Reset(tokenSecret(local, held))
		if err := h.Converge(ctx, w, s, local, remote); err != nil {
			return inTheWay(err)
		}
	}
	h.states.Delete(key)
	if denied != nil {
		return denied
	}
	h.OK(local.GetUID())
	return &engine.RetryAfter{After: h.untilRenewal(held)}
}

// isCurrent reports whether a Secret has exactly the required tokens, and none of them is due. It works without the
// content of the Secret.
func (h *Handler) isCurrent(w *engine.Worker, s *engine.Scope, local, remote *unstructured.Unstructured, sources []tokenSource, held map[string]token) bool {
	sums, trimmed := keptSums(remote)
	if !trimmed || len(sums) != len(sources) || anyDue(sources, held, h.Clock().Now()) {
		return false
	}
	for _, source := range sources {
		if held[source.key].sum != sums[source.key] {
			return false
		}
	}
	w.Doc.Reset(tokenSecret(local, held))
	x, err := h.Desired(w, s, local)
	return err == nil && x.SameMetadata(remote)
}

// renewTokens requests the missing and due tokens, and adds them to held. Denied tokens stay unchanged.
func (h *Handler) renewTokens(ctx context.Context, local *unstructured.Unstructured, sources []tokenSource, held map[string]token, state *tokenState) error {
	now := h.Clock().Now()
	if !anyDue(sources, held, now) {
		return nil
	}
	if err := h.Reachable(); err != nil {
		return err // the tokens could not be stored
	}
	var denied error
	for _, source := range sources {
		if !isDue(source, held, now.Add(tokenTogether)) {
			continue
		}
		issued, err := h.requestToken(ctx, local, source)
		if err != nil {
			denied = err
			continue
		}
		held[source.key], state.issued[source.key] = issued, issued
	}
	return denied
}

func isDue(source tokenSource, held map[string]token, now time.Time) bool {
	known, ok := held[source.key]
	return !ok || !now.Before(known.renewalTime())
}

func anyDue(sources []tokenSource, held map[string]token, now time.Time) bool {
	for _, source := range sources {
		if isDue(source, held, now) {
			return true
		}
	}
	return false
}

// untilRenewal returns the time until the first token must be renewed, plus a jitter that depends on the pod.
func (h *Handler) untilRenewal(held map[string]token) time.Duration {
	var first token
	for _, candidate := range held {
		if first.expires.IsZero() || candidate.renewalTime().Before(first.renewalTime()) {
			first = candidate
		}
	}
	wait := first.renewalTime().Sub(h.Clock().Now())
	if jitter := min(first.life/20, tokenJitterMost); jitter > 0 {
		wait += rand.N(jitter) //nolint:gosec // it only spreads load
	}
	return max(wait, tokenPause)
}

func (h *Handler) tokenStateOf(key engine.Key, uid types.UID) *tokenState {
	if known, ok := h.states.Load(key); ok {
		if state, ok := known.(*tokenState); ok && state.uid == uid {
			return state
		}
	}
	state := &tokenState{uid: uid, issued: map[string]token{}}
	h.states.Store(key, state)
	return state
}

func (h *Handler) dropState(key engine.Key) {
	h.states.Delete(key)
	h.mounting.Delete(key)
}

// NotOffloaded implements engine.Handler.
func (h *Handler) NotOffloaded(_ context.Context, _ *engine.Worker, key engine.Key) error {
	h.dropState(key)
	return nil
}
