// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// In the mode Legacy an offloaded pod opens this cluster's API server with the long-lived token of its service account: with
// the Secret that somebody made here for it. That crosses by the kind Secret, whose plugin lets it in no other mode, and the
// plugin of pods mounts the copy. Which one it is is looked up when a pod is offloaded, and noted nowhere but in the volumes of
// its ShadowPod, which never change. (Liqo: API server support, Legacy.)

const (
	// accountIndex finds the Secrets with tokens by namespace and service account.
	accountIndex = "serviceAccount"
	// accessVolume begins the name of the volume by which Kubernetes gives a pod its token.
	accessVolume = "kube-api-access-"
	// tokenArrival is how long a Secret may take to cross before a pod that waits for it is told: they are often made together.
	tokenArrival = 2 * time.Second
)

// tokenAccount is the service account that a Secret says it is of.
func tokenAccount(secret *unstructured.Unstructured) string {
	account, _ := raw.Annotations(secret.Object)[wire.TokenServiceAccountLabel].(string)
	return account
}

// indexByAccount keys the Secrets with tokens. They have a type of their own where they are at home and, as copies, label and
// annotation; somebody's Secret that has but the label is none.
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

// tokenIndex is for the informers of Secrets.
func (r *reflector) tokenIndex() cache.Indexers {
	if r.kind.Name != SecretKind || r.m.options.APIServerSupport != SupportLegacy {
		return nil
	}
	return cache.Indexers{accountIndex: indexByAccount}
}

// tokenSecretError: the provider does not have the one Secret of which a pod mounts the token. It is no failure of anything,
// and what heals it is watched.
type tokenSecretError struct {
	account, problem string
	soon             bool // it may be on its way
	unknown          bool // the Secrets have not been read
}

func (e *tokenSecretError) Error() string {
	return fmt.Sprintf("the pod waits for the token of service account %s: %s, %s", e.account, e.problem, withoutRemedy)
}

// podContext is the context of a pod's outgoing chain. A pod that mounts the token of its service account is told the Secret;
// lacking says why there is none.
func (r *reflector) podContext(v *podView) (root map[string]any, lacking *tokenSecretError) {
	root = r.m.context(v.extension, host.Outgoing)
	if r.m.options.APIServerSupport != SupportLegacy || apiServerDeclined(v.local) != "" || !mountsOwnToken(v.local) {
		return root, nil
	}
	root = maps.Clone(root)
	if v.shadow == nil {
		root["serviceAccountSecretName"], lacking = r.legacyToken(v)
	} else if name := mountedToken(v.shadow); name != "" {
		root["serviceAccountSecretName"] = name
	} else {
		root["apiServerSupport"] = SupportDisabled // as it was when the pod was offloaded
	}
	return root, lacking
}

// mountsOwnToken tells pods for which Kubernetes has added the volume.
func mountsOwnToken(pod *unstructured.Unstructured) bool {
	for volume, source := range projections(raw.Nested(pod.Object, "spec", "volumes")) {
		if strings.HasPrefix(volume, accessVolume) && source["serviceAccountToken"] != nil {
			return true
		}
	}
	return false
}

// mountedToken is the Secret that a ShadowPod has in the place of the token, "" for none.
func mountedToken(shadow *unstructured.Unstructured) string {
	for volume, source := range projections(raw.Nested(shadow.Object, "spec", "pod", "volumes")) {
		if name, _ := raw.Nested(source, "secret", "name").(string); name != "" && strings.HasPrefix(volume, accessVolume) {
			return name
		}
	}
	return ""
}

// legacyToken names the provider's Secret with the token of the pod's service account, when it is the only one.
func (r *reflector) legacyToken(v *podView) (string, *tokenSecretError) {
	lacking := &tokenSecretError{account: serviceAccountOf(v.local)}
	secrets, c := r.m.reflector(SecretKind), v.extension.of(SecretKind)
	switch {
	case secrets == nil:
		lacking.problem = "Secrets are not reflected; run the virtual kubelet with --secret-reflection-workers of 1 or more"
		return "", lacking
	case c == nil || !c.ready.Load():
		lacking.unknown = true
		return "", lacking
	}
	made := informer.ByIndex(c.local, accountIndex, v.extension.local+"/"+lacking.account)
	var crossed []*unstructured.Unstructured
	for _, secret := range informer.ByIndex(c.informer, accountIndex, v.extension.remote+"/"+lacking.account) {
		if secret.GetDeletionTimestamp() == nil && slices.ContainsFunc(made, func(o *unstructured.Unstructured) bool { return secrets.stays(c, o, secret) }) {
			crossed = append(crossed, secret)
		}
	}
	if len(crossed) == 1 && raw.Nested(crossed[0].Object, "data", corev1.ServiceAccountTokenKey) != nil {
		return crossed[0].GetName(), nil
	}
	lacking.describe(made, crossed)
	return "", lacking
}

// stays tells the copy of a Secret that is still to cross: others are about to be deleted.
func (r *reflector) stays(c *copies, object, copied *unstructured.Unstructured) bool {
	if r.remoteName(object.GetName()) != copied.GetName() {
		return false
	}
	decided, err := r.decide(c, object)
	return err != nil || decided.Cross
}

// describe says what is wrong, and what to do.
func (e *tokenSecretError) describe(made, crossed []*unstructured.Unstructured) {
	switch {
	case len(made) == 0:
		e.problem = fmt.Sprintf("none was made; create a Secret of type %s with annotation %s: %s in the namespace of the pod",
			corev1.SecretTypeServiceAccountToken, wire.TokenServiceAccountLabel, e.account)
	case len(crossed) == 0:
		e.problem = fmt.Sprintf("the Secret made for it has not crossed (%s); its Events say why, its annotations %s and %s decide",
			named(made), wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation)
		e.soon = true
	case len(crossed) == 1:
		e.problem = fmt.Sprintf("Secret %s has none yet; Kubernetes fills it when the service account is there", named(crossed))
		e.soon = true
	default:
		e.problem = fmt.Sprintf("the provider has %d Secrets of it (%s); keep all but one from that cluster by annotation %s: \"true\"",
			len(crossed), named(crossed), wire.SkipReflectionAnnotation)
	}
}

// named lists two names at most: the remedy comes after them.
func named(secrets []*unstructured.Unstructured) string {
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

// blame replaces the failure of a chain that was told of no Secret by what is the matter with that.
func (r *reflector) blame(v *podView, err error, lacking *tokenSecretError) error {
	var failed *host.PluginFailedError
	switch {
	case lacking == nil || !errors.As(err, &failed):
		return err
	case lacking.unknown:
		return nil // and on when the Secrets are read
	case lacking.soon && v.state.lacking.IsZero():
		v.state.lacking = r.m.options.Clock.Now()
		return &retryLater{tokenArrival}
	case lacking.soon && r.m.options.Clock.Since(v.state.lacking) < tokenArrival:
		return nil
	}
	return lacking
}

// watchTokenSecrets has the pods of a service account looked at again when its Secrets change, on either side.
func (m *Manager) watchTokenSecrets(r *reflector, t *extension, c *copies) error {
	if r.kind.Name != SecretKind || m.options.APIServerSupport != SupportLegacy {
		return nil
	}
	changed := func(before, secret *unstructured.Unstructured, _ bool) {
		account := tokenAccount(secret)
		if account == "" && before != nil {
			account = tokenAccount(before)
		}
		if account != "" && c.ready.Load() {
			m.lookAtWaiting(t, account)
		}
	}
	return errors.Join(c.hear(c.local, changed), c.hear(c.informer, changed))
}

// lookAtWaiting looks at the pods that are not offloaded yet, of one service account or, "", of all.
func (m *Manager) lookAtWaiting(t *extension, account string) {
	r, c := m.reflector(PodKind), t.of(PodKind)
	if r == nil || c == nil {
		return
	}
	for _, pod := range informer.ByIndex(r.pods, cache.NamespaceIndex, t.local) {
		if (account == "" || serviceAccountOf(pod) == account) && informer.Get(c.informer, t.remote, r.remoteName(pod.GetName())) == nil {
			r.enqueue(t, c, raw.Key(pod))
		}
	}
}
