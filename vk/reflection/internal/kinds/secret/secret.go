// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package secret reflects Secrets, and finds the copies that contain service account tokens.
//
// In the mode Legacy, an offloaded pod uses this cluster's API server with the long-lived token of its service account,
// from a Secret that a user created for it. In this mode, the Secret is reflected like any other Secret. In all other
// modes, the Secret plugin skips it. The pod plugin mounts the copy. The copy is looked up when a pod is offloaded. Its
// name is recorded only in the volumes of the ShadowPod, which never change. This corresponds to the mode Legacy of
// Liqo's API server support.
package secret

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Name is the name of the kind.
const Name = "Secret"

// accountIndex is the index of Secrets with tokens by namespace and service account.
const accountIndex = "serviceAccount"

// Kind returns the kind of Secrets.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, Source: corev1.SchemeGroupVersion.WithResource("secrets"), Policy: engine.DenyList, Workers: 3, Tracked: true, Chain: engine.Chain{Confidential: true},
		// Copies with this label are excluded: they contain the tokens of pods, and belong to another kind.
		Copy:    copies.Spec{Except: "!" + wire.ServiceAccountNameLabel},
		Needed:  func(o *engine.Options) bool { return o.APIServerSupport == engine.SupportLegacy },
		Cache:   engine.Cache{Copies: keepAccount, Objects: keepAccount, Indexers: cache.Indexers{accountIndex: indexByAccount}},
		Handler: func(env *engine.Env) (engine.Handler, error) { return &Handler{Base: engine.Base{Env: env}}, nil },
	}
}

// keepAccount returns the part of a Secret that is cached in addition to its metadata: its type and, if it has a token,
// an empty data entry for the token. Secret data is not cached.
func keepAccount(content map[string]any) map[string]any {
	kept := map[string]any{"type": content["type"]}
	if raw.Map(content["data"])[corev1.ServiceAccountTokenKey] != nil {
		kept["data"] = map[string]any{corev1.ServiceAccountTokenKey: ""}
	}
	return kept
}

// Handler implements engine.Handler. It also finds the Secrets with tokens.
type Handler struct{ engine.Base }

// Waiters enqueues the pods that wait for the token of a service account. The handler of pods implements it.
type Waiters interface {
	// AccountTokenChanged enqueues the pods of a service account that are not offloaded yet. An empty account means all
	// service accounts.
	AccountTokenChanged(namespace, account string)
}

// notifyPods enqueues the pods of a service account that wait for its token.
func (h *Handler) notifyPods(namespace, account string) {
	if pods, ok := engine.Peer[Waiters](h.Env); ok {
		pods.AccountTokenChanged(namespace, account)
	}
}

// Extend implements engine.Handler. It enqueues the pods of a service account when its Secrets change in either
// cluster.
func (h *Handler) Extend(s *engine.Scope) {
	if h.Options().APIServerSupport != engine.SupportLegacy {
		return
	}
	changed := func(before, secret *unstructured.Unstructured, _ bool) {
		account := tokenAccount(secret)
		if account == "" && before != nil {
			account = tokenAccount(before)
		}
		if account != "" && s.Ready() {
			h.notifyPods(s.Local, account)
		}
	}
	s.OnObject(changed)
	s.OnCopy(s, changed)
}

// Synced implements engine.Handler. It enqueues the pods that wait until the Secrets have been read.
func (h *Handler) Synced(s *engine.Scope, kind *engine.Kind) {
	if kind.Name == Name && h.Options().APIServerSupport == engine.SupportLegacy {
		h.notifyPods(s.Local, "")
	}
}

// tokenAccount returns the service account in the annotation of a Secret.
func tokenAccount(secret *unstructured.Unstructured) string {
	account, _ := raw.Annotations(secret.Object)[wire.TokenServiceAccountLabel].(string)
	return account
}

// indexByAccount returns the namespace and the service account of a Secret with a token, and no key for other Secrets.
// An annotation contains the account. In addition, a Secret of this cluster must have the type of service account
// tokens, and a copy on the provider must have a label with the same account.
func indexByAccount(object any) ([]string, error) {
	secret, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	account := tokenAccount(secret)
	if account == "" || secret.Object["type"] != string(corev1.SecretTypeServiceAccountToken) && raw.Labels(secret.Object)[wire.TokenServiceAccountLabel] != account {
		return nil, nil
	}
	return []string{secret.GetNamespace() + "/" + account}, nil
}

// MissingTokenError means that the provider does not have exactly one Secret with the token that a pod mounts. It is
// not a failure: the pod waits, and is enqueued again when the Secrets change.
type MissingTokenError struct {
	account, problem string
	soon             bool // the Secret may arrive soon
	unknown          bool // the Secrets have not been read yet
}

func (e *MissingTokenError) Error() string {
	return fmt.Sprintf("the pod waits for the token of service account %s: %s, %s", e.account, e.problem, access.WithoutRemedy)
}

// Soon reports whether the Secret may arrive in a moment, so that an Event is not needed yet.
func (e *MissingTokenError) Soon() bool { return e.soon }

// Unknown reports whether the Secrets have not been read yet.
func (e *MissingTokenError) Unknown() bool { return e.unknown }

// Classify implements failure.Classified.
func (e *MissingTokenError) Classify() (failure.Class, string) {
	return failure.Input, wire.FailedReflectionReason
}

// AccountToken returns the name of the provider's Secret that contains the token of a service account. If there is not
// exactly one such Secret, it returns an error that says why.
func (h *Handler) AccountToken(namespace, account string) (string, error) {
	lacking := &MissingTokenError{account: account}
	s := h.Scope(namespace)
	if s == nil || !s.Ready() {
		lacking.unknown = true
		return "", lacking
	}
	made := s.ObjectsBy(accountIndex, s.Local+"/"+account)
	var crossed []*unstructured.Unstructured
	for _, secret := range s.CopiesBy(accountIndex, s.Remote+"/"+account) {
		if secret.GetDeletionTimestamp() == nil && slices.ContainsFunc(made, func(o *unstructured.Unstructured) bool { return h.mayStay(s, o, secret) }) {
			crossed = append(crossed, secret)
		}
	}
	if len(crossed) == 1 && raw.Nested(crossed[0].Object, "data", corev1.ServiceAccountTokenKey) != nil {
		return crossed[0].GetName(), nil
	}
	lacking.describeProblem(made, crossed)
	return "", lacking
}

// mayStay reports whether the copy of a Secret will remain, because the Secret is still reflected. Other copies will be
// deleted soon.
func (h *Handler) mayStay(s *engine.Scope, object, copied *unstructured.Unstructured) bool {
	return h.Copies.RemoteName(object.GetName()) == copied.GetName() && s.MayCross(object)
}

// describeProblem sets the problem and its remedy.
func (e *MissingTokenError) describeProblem(made, crossed []*unstructured.Unstructured) {
	switch {
	case len(made) == 0:
		e.problem = fmt.Sprintf("no token Secret exists; create a Secret of type %s with annotation %s: %s in the namespace of the pod",
			corev1.SecretTypeServiceAccountToken, wire.TokenServiceAccountLabel, e.account)
	case len(crossed) == 0:
		e.problem = fmt.Sprintf("its token Secret is not reflected (%s); see its Events and annotations %s, %s",
			secretNames(made), wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation)
		e.soon = true
	case len(crossed) == 1:
		e.problem = fmt.Sprintf("Secret %s contains no token yet; it is populated once the service account exists", secretNames(crossed))
		e.soon = true
	default:
		e.problem = fmt.Sprintf("%d token Secrets for this service account exist on the provider (%s); exclude all but one with annotation %s: \"true\"",
			len(crossed), secretNames(crossed), wire.SkipReflectionAnnotation)
	}
}

// secretNames returns the names of at most two Secrets, so that the remedy, which follows in the message, is not cut
// off.
func secretNames(secrets []*unstructured.Unstructured) string {
	names := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		names = append(names, secret.GetName())
	}
	slices.Sort(names)
	if len(names) > 2 {
		return strings.Join(names[:2], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
