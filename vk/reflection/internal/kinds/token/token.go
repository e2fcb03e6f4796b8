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
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// tokenRenewalWindow is the time before its renewal in which a token is renewed together with another due token of
	// the same pod. A shorter time would cause more writes.
	tokenRenewalWindow = 30 * time.Second
	// maxTokenJitterDelay limits the delay of a token's renewal, which is a twentieth of its lifetime. It spreads the
	// renewals of tokens of pods that started together.
	maxTokenJitterDelay = 5 * time.Minute
	// minTokenInterval is the minimum time between two renewals, regardless of the clocks of the clusters.
	minTokenInterval = time.Minute
)

// tokenState is the state of a pod's tokens. It must not be used concurrently.
type tokenState struct {
	uid    types.UID
	issued map[string]token // issued tokens that are not on the provider yet
}

// Reconcile implements engine.Handler. It maintains a Secret on the provider with the service account tokens of a pod
// on this node. The plugin for pods makes the volumes of the ShadowPod refer to this Secret. This corresponds to
// TokenAPI in Liqo's ServiceAccount reflection.
//
// Tokens are not objects, so plugins cannot read them. They are never logged.
func (h *Handler) Reconcile(ctx context.Context, w *evaluation.Worker, s *engine.Scope, key queue.Key) error {
	local := h.ObjectOfNode(key)
	remote, going := s.Copy(key.Name)
	if going || remote != nil && remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if local == nil {
		h.dropState(key)
		s.Forget(key)
		return h.Copies.Remove(ctx, w, s.Namespace, remote)
	}
	if remote != nil && ofAnotherPod(remote, local) {
		// The tokens of the present pod are requested when the watch has delivered the deletion of this Secret.
		return h.Copies.Remove(ctx, w, s.Namespace, remote)
	}
	sources := tokenSources(local)
	if len(sources) == 0 || podend.Finished(pods.Phase(raw.Status(local))) {
		return h.Copies.Remove(ctx, w, s.Namespace, remote)
	}
	if why := withoutTokens(h.Options(), local); why != "" {
		return h.takeTokensBack(ctx, w, s, local, remote, why)
	}
	mounts, known := h.mountsTokens(key, local)
	switch {
	case !known, remote == nil && local.GetDeletionTimestamp() != nil:
		return nil
	case !mounts:
		return h.Copies.Remove(ctx, w, s.Namespace, remote)
	}
	return h.keepTokens(ctx, w, s, local, remote, sources)
}

// ofAnotherPod reports whether the Secret belongs to an earlier pod with the same name. A Secret without the annotation
// does not.
func ofAnotherPod(secret, pod *unstructured.Unstructured) bool {
	uid, _ := raw.Annotations(secret.Object)[wire.ServiceAccountPodUIDAnnotation].(string)
	return uid != "" && uid != string(pod.GetUID())
}

// withoutTokens returns why a pod gets no tokens, or "" if it gets them. An invalid annotation is ignored here, because
// the plugin for pods ignores and reports it.
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

// takeTokensBack deletes the tokens of a pod that must not have tokens any more.
func (h *Handler) takeTokensBack(ctx context.Context, w *evaluation.Worker, s *engine.Scope, local, remote *unstructured.Unstructured, why string) error {
	if remote == nil {
		return nil
	}
	if err := h.Copies.Remove(ctx, w, s.Namespace, remote); err != nil {
		return err
	}
	h.Events.Note(local, wire.ReflectionDisabledReason, fmt.Sprintf("removed the service account tokens from cluster %s: %s;"+
		" if the pod was offloaded with them, recreate it, or it cannot start again there", h.Options().RemoteClusterID, why))
	return nil
}

// keepTokens ensures that the Secret contains a token for each source, with more than a fifth of its lifetime left.
func (h *Handler) keepTokens(ctx context.Context, w *evaluation.Worker, s *engine.Scope, local, remote *unstructured.Unstructured, sources []tokenSource) error {
	key := raw.Key(local)
	if err := h.checkTokenNames(key); err != nil {
		return err
	}
	state := h.tokenStateOf(key, local.GetUID())
	held := heldTokens(remote, sources, state.issued)
	current := h.isCurrent(w, s, local, remote, sources, held)
	if !current && remote != nil {
		// The tokens that are not renewed are written again, so the whole Secret is needed.
		whole, err := h.Copies.WholeCopy(ctx, s.Namespace, remote)
		if err != nil {
			return err
		}
		held = heldTokens(whole, sources, state.issued)
	}
	denied := h.renewTokens(ctx, local, sources, held, state)
	if len(held) < len(sources) {
		// Nothing is written, because a pod cannot start with only some of its tokens.
		return denied
	}
	if !current {
		w.Doc.Reset(tokenSecret(local, held))
		if err := h.Copies.Converge(ctx, w, s.Namespace, local, remote); err != nil {
			return inTheWay(err)
		}
	}
	h.states.Delete(key)
	if denied != nil {
		return denied
	}
	h.Events.OK(local.GetUID())
	return &failure.RetryAfter{After: h.untilRenewal(held)}
}

// isCurrent reports whether a Secret contains exactly the required tokens, and none of them is due for renewal. It does
// not need the tokens themselves, which are not cached.
func (h *Handler) isCurrent(w *evaluation.Worker, s *engine.Scope, local, remote *unstructured.Unstructured, sources []tokenSource, held map[string]token) bool {
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
	x, err := h.Copies.Desired(w, s.Namespace, local)
	return err == nil && x.SameMetadata(remote)
}

// renewTokens requests the tokens that are missing or due, and adds them to held. A token whose renewal is denied is
// kept.
func (h *Handler) renewTokens(ctx context.Context, local *unstructured.Unstructured, sources []tokenSource, held map[string]token, state *tokenState) error {
	now := h.Clock().Now()
	if !anyDue(sources, held, now) {
		return nil
	}
	if err := h.Clients.Reachable(); err != nil {
		// The Secret cannot be written at the moment, so new tokens could not be stored.
		return err
	}
	var denied error
	for _, source := range sources {
		if !isDue(source, held, now.Add(tokenRenewalWindow)) {
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

// isDue reports whether the token for a source is missing or must be renewed.
func isDue(source tokenSource, held map[string]token, now time.Time) bool {
	known, ok := held[source.key]
	return !ok || !now.Before(known.renewalTime())
}

// anyDue reports whether the token for any of the sources is due.
func anyDue(sources []tokenSource, held map[string]token, now time.Time) bool {
	for _, source := range sources {
		if isDue(source, held, now) {
			return true
		}
	}
	return false
}

// untilRenewal returns the time until the first token must be renewed, plus a random jitter.
func (h *Handler) untilRenewal(held map[string]token) time.Duration {
	var first token
	for _, candidate := range held {
		if first.expires.IsZero() || candidate.renewalTime().Before(first.renewalTime()) {
			first = candidate
		}
	}
	wait := first.renewalTime().Sub(h.Clock().Now())
	if jitter := min(first.life/20, maxTokenJitterDelay); jitter > 0 {
		wait += rand.N(jitter) //nolint:gosec // it only spreads load
	}
	return max(wait, minTokenInterval)
}

// tokenStateOf returns the state of a pod's tokens. A new pod with the same name starts with an empty state.
func (h *Handler) tokenStateOf(key queue.Key, uid types.UID) *tokenState {
	if known, ok := h.states.Load(key); ok {
		if state, ok := known.(*tokenState); ok && state.uid == uid {
			return state
		}
	}
	state := &tokenState{uid: uid, issued: map[string]token{}}
	h.states.Store(key, state)
	return state
}

// dropState removes the state of a pod's tokens.
func (h *Handler) dropState(key queue.Key) {
	h.states.Delete(key)
	h.mounting.Delete(key)
}

// NotOffloaded implements engine.Handler. It drops the state of the pod's tokens.
func (h *Handler) NotOffloaded(_ context.Context, _ *evaluation.Worker, key queue.Key) error {
	h.dropState(key)
	return nil
}
