// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// tokenTogether: when one token of a pod is due, those due this soon are renewed with it. Less would cost writes.
	tokenTogether = 30 * time.Second
	// tokenJitterMost bounds how long after its time a token is renewed, which is a twentieth of its life: tokens of pods
	// that started together should not all be renewed at once.
	tokenJitterMost = 5 * time.Minute
	// tokenPause is the least time between two renewals, whatever the clocks of the clusters say.
	tokenPause = time.Minute
)

// tokenState is what is remembered about the tokens of a pod. One worker at a time has it.
type tokenState struct {
	uid    types.UID
	issued map[string]token // and not on the provider yet
}

// mounting says of a pod whether what is offloaded of it mounts its tokens.
type mounting struct {
	uid    types.UID
	mounts bool
}

// reconcileTokens keeps the service-account tokens of a pod of this node in a Secret of the provider. The pod's plugin
// makes the volumes of the ShadowPod refer to it. (Liqo: ServiceAccount reflection, TokenAPI.)
//
// Nothing of this cluster crosses here, so no plugin sees the tokens, and nothing ever logs them.
func (r *reflector) reconcileTokens(ctx context.Context, w *worker, key Key) error {
	t := r.m.extension(key.Namespace)
	if t == nil {
		r.states.Delete(key)
		r.mounting.Delete(key)
		return nil
	}
	c := t.of(r.kind.Name)
	if c == nil || !c.ready.Load() {
		return nil
	}
	local := informer.Get(r.pods, key.Namespace, key.Name)
	remote, going := r.remoteObject(c, t, key.Name)
	if going || remote != nil && remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if local == nil {
		r.forgetTokens(c, key)
		return r.remove(ctx, w, t, c, remote)
	}
	if remote != nil && ofAnotherPod(remote, local) {
		return r.remove(ctx, w, t, c, remote) // and on when it is gone
	}
	sources := tokenSources(local)
	if len(sources) == 0 || pods.Finished(pods.Phase(raw.Status(local))) {
		return r.remove(ctx, w, t, c, remote)
	}
	if why := r.m.options.withoutTokens(local); why != "" {
		return r.takeTokensBack(ctx, w, t, c, local, remote, why)
	}
	mounts, known := r.mountsTokens(t, key, local)
	switch {
	case !known, remote == nil && local.GetDeletionTimestamp() != nil:
		return nil
	case !mounts:
		return r.remove(ctx, w, t, c, remote)
	}
	return r.keepTokens(ctx, w, t, c, local, remote, sources)
}

// ofAnotherPod tells the Secret of an earlier pod of the same name. One that does not say whose it is is no such.
func ofAnotherPod(secret, pod *unstructured.Unstructured) bool {
	uid, _ := raw.Annotations(secret.Object)[wire.ServiceAccountPodUIDAnnotation].(string)
	return uid != "" && uid != string(pod.GetUID())
}

// withoutTokens tells why a pod gets none, "" when it does. What makes no sense in the annotation is told by the pod's
// plugin, and counts as absent here as there.
func (o *Options) withoutTokens(pod *unstructured.Unstructured) string {
	if why := apiServerDeclined(pod); why != "" {
		return why
	}
	switch o.APIServerSupport {
	case SupportTokenAPI:
		return ""
	case SupportLegacy:
		return "the virtual kubelet runs in the API server mode " + SupportLegacy
	}
	return "the virtual kubelet runs without --enable-apiserver-support"
}

// apiServerDeclined tells by which annotation a pod wants none of this cluster's API server.
func apiServerDeclined(pod *unstructured.Unstructured) string {
	switch mode := raw.Annotations(pod.Object)[wire.APIServerSupportAnnotation]; mode {
	case wire.APIServerSupportDisabled, wire.APIServerSupportRemote:
		return fmt.Sprintf("annotation %s is %s", wire.APIServerSupportAnnotation, mode)
	}
	return ""
}

// takeTokensBack deletes the tokens of a pod that is to have none any more.
func (r *reflector) takeTokensBack(ctx context.Context, w *worker, t *extension, c *copies, local, remote *unstructured.Unstructured, why string) error {
	if remote == nil {
		return nil
	}
	if err := r.remove(ctx, w, t, c, remote); err != nil {
		return err
	}
	r.m.events.Note(r.kind.Name, local, wire.ReflectionDisabledReason, fmt.Sprintf("the service-account tokens were taken back from cluster %s: %s;"+
		" if the pod was offloaded with them, recreate it, or it cannot start again there", r.m.options.RemoteClusterID, why))
	return nil
}

// keepTokens makes the Secret hold, for every source, a token with more than a fifth of its life before it.
func (r *reflector) keepTokens(ctx context.Context, w *worker, t *extension, c *copies, local, remote *unstructured.Unstructured, sources []tokenSource) error {
	key := raw.Key(local)
	if err := r.checkTokenNames(key); err != nil {
		return err
	}
	state := r.tokenStateOf(key, local.GetUID())
	held := heldTokens(remote, sources, state.issued)
	denied := r.renewTokens(ctx, local, sources, held, state)
	if len(held) < len(sources) {
		return denied // a pod cannot start with some of its tokens
	}
	w.doc.Reset(tokenSecret(local, held))
	if err := r.converge(ctx, w, t, c, local, remote); err != nil {
		return inTheWay(err)
	}
	r.states.Delete(key)
	if denied != nil {
		return denied
	}
	r.m.events.OK(r.kind.Name, local.GetUID())
	return &retryLater{r.untilRenewal(held)}
}

// renewTokens requests the tokens that are missing or due, into held. What is denied stays as it was.
func (r *reflector) renewTokens(ctx context.Context, local *unstructured.Unstructured, sources []tokenSource, held map[string]token, state *tokenState) error {
	now := r.m.options.Clock.Now()
	if !anyDue(sources, held, now) {
		return nil
	}
	if err := r.m.breaker.Allow(); err != nil {
		return err // nobody could take them
	}
	var denied error
	for _, source := range sources {
		if !due(source, held, now.Add(tokenTogether)) {
			continue
		}
		issued, err := r.requestToken(ctx, local, source)
		if err != nil {
			denied = err
			continue
		}
		held[source.key], state.issued[source.key] = issued, issued
	}
	return denied
}

func due(source tokenSource, held map[string]token, now time.Time) bool {
	known, ok := held[source.key]
	return !ok || !now.Before(known.renewal())
}

func anyDue(sources []tokenSource, held map[string]token, now time.Time) bool {
	for _, source := range sources {
		if due(source, held, now) {
			return true
		}
	}
	return false
}

// untilRenewal is how long all tokens are good, and a little more, different for each pod.
func (r *reflector) untilRenewal(held map[string]token) time.Duration {
	var first token
	for _, candidate := range held {
		if first.value == "" || candidate.renewal().Before(first.renewal()) {
			first = candidate
		}
	}
	wait := first.renewal().Sub(r.m.options.Clock.Now())
	if jitter := min(first.life/20, tokenJitterMost); jitter > 0 {
		wait += rand.N(jitter) //nolint:gosec // it only spreads load
	}
	return max(wait, tokenPause)
}

func (r *reflector) tokenStateOf(key Key, uid types.UID) *tokenState {
	if known, ok := r.states.Load(key); ok {
		if state, ok := known.(*tokenState); ok && state.uid == uid {
			return state
		}
	}
	state := &tokenState{uid: uid, issued: map[string]token{}}
	r.states.Store(key, state)
	return state
}

func (r *reflector) forgetTokens(c *copies, key Key) {
	c.memory.Forget(key)
	r.states.Delete(key)
	r.mounting.Delete(key)
}
