// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

var secretKind = corev1.SchemeGroupVersion.WithKind(Name)

// token returns a Secret with the token of the service account robot, in this cluster or on the provider.
func token(t *testing.T, namespace, name, data string) *unstructured.Unstructured {
	t.Helper()
	text := `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: ` + name + `,
  namespace: ` + namespace + `, uid: ` + namespace + name + `, resourceVersion: "1",
  annotations: {` + wire.TokenServiceAccountLabel + `: robot}, labels: {` + wire.TokenServiceAccountLabel + `: robot}},
  data: ` + data + `}`
	return kindtest.Object(t, text)
}

// TestTheTokenOfAServiceAccount checks for which Secrets a pod gets the token of its service account, and which message
// the Event contains otherwise.
func TestTheTokenOfAServiceAccount(t *testing.T) {
	t.Parallel()
	const filled = `{token: eA==}`
	here, there := kindtest.Namespace, kindtest.RemoteNamespace
	for name, c := range map[string]struct {
		objects [][3]string // namespace, name, data
		skip    bool        // the first Secret is excluded from reflection by an annotation
		want    string
		problem string
		soon    bool
	}{
		"one":         {[][3]string{{here, "a", filled}, {there, "a", filled}}, false, "a", "", false},
		"none":        {nil, false, "", "create a Secret of type kubernetes.io/service-account-token", false},
		"not crossed": {[][3]string{{here, "a", filled}}, false, "", "its token Secret is not reflected (a)", true},
		"excluded by now": {[][3]string{{here, "a", filled}, {there, "a", filled}}, true, "",
			"its token Secret is not reflected (a)", true},
		"of another name": {[][3]string{{here, "a", filled}, {there, "b", filled}}, false, "",
			"its token Secret is not reflected (a)", true},
		"not filled yet": {[][3]string{{here, "a", "{}"}, {there, "a", "{}"}}, false, "", "Secret a contains no token yet", true},
		"two": {[][3]string{{here, "a", filled}, {there, "a", filled}, {here, "b", filled}, {there, "b",
			filled}}, false, "", "2 token Secrets for this service account exist on the provider (a, b)", false},
		"three, shortened": {[][3]string{{here, "a", filled}, {here, "b", filled}, {here, "c", filled}}, false, "", "(a, b, …)", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.New(t, func(o *engine.Options) { o.APIServerSupport = engine.SupportLegacy }, Kind(), pod.Kind())
			s := p.Prepare(Name, pod.Name)
			objects, copied := s.Caches()
			for i, o := range c.objects {
				secret := token(t, o[0], o[1], o[2])
				if i == 0 && c.skip {
					annotations := secret.GetAnnotations()
					annotations[wire.SkipReflectionAnnotation] = "true"
					secret.SetAnnotations(annotations)
				}
				if o[0] == here {
					require.NoError(t, objects.Put(secret))
				} else {
					require.NoError(t, copied.Put(secret))
				}
			}
			found, err := p.Manager.Handler(Name).(*Handler).AccountToken(here, "robot")
			assert.Equal(t, c.want, found)
			if c.want != "" {
				require.NoError(t, err)
				return
			}
			var missing *MissingTokenError
			require.True(t, errors.As(err, &missing))
			require.ErrorContains(t, err, c.problem)
			assert.Equal(t, c.soon, missing.Soon())
			assert.False(t, missing.Unknown())
			class, reason := missing.Classify()
			assert.Equal(t, failure.Input, class)
			assert.Equal(t, wire.FailedReflectionReason, reason)
		})
	}
}

// TestUnknownSecrets checks that the error is Unknown while the Secrets have not been read, so that pods wait without
// an Event.
func TestUnknownSecrets(t *testing.T) {
	t.Parallel()
	p := kindtest.New(t, nil, Kind())
	p.Prepare(Name)
	_, err := p.Manager.Handler(Name).(*Handler).AccountToken("elsewhere", "robot")
	var missing *MissingTokenError
	require.ErrorAs(t, err, &missing)
	assert.True(t, missing.Unknown())
}

// TestSecretsCross checks that a Secret is reflected with its data, and that the data is not cached. A Secret with the
// tokens of a pod must not be treated as a copy of this kind.
func TestSecretsCross(t *testing.T) {
	t.Parallel()
	p := kindtest.New(t, nil, Kind())
	s := p.Prepare(Name)
	p.Here.Put(t, kindtest.Object(t, `{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: key,
  namespace: shop}, data: {key: c2VjcmV0}}`))
	objects, copied := s.Caches()
	p.Sync(p.Here, objects, secretKind, kindtest.Namespace, "key")
	assert.Nil(t, s.Object(kindtest.Key("key")).Object["data"], "no data is cached")
	require.NoError(t, p.Reconcile(Name, "key"))
	made := p.Provider.Get(secretKind, kindtest.RemoteNamespace, "key")
	data, _, _ := unstructured.NestedString(made.Object, "data", "key")
	assert.Equal(t, "c2VjcmV0", data)
	p.Sync(p.Provider, copied, secretKind, kindtest.RemoteNamespace, "key")
	writes := p.Provider.Writes()
	require.NoError(t, p.Reconcile(Name, "key"))
	assert.Equal(t, writes, p.Provider.Writes())
	assert.Contains(t, p.Manager.Env(Name).Copies.Selector(), "!"+wire.ServiceAccountNameLabel)
}

// TestChangesOfTokensReconcilePods checks that the pods of a service account are enqueued when its Secrets change,
// but only in the mode Legacy.
func TestChangesOfTokensReconcilePods(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{engine.SupportLegacy: {"web"}, engine.SupportTokenAPI: nil} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := kindtest.New(t, func(o *engine.Options) { o.APIServerSupport = mode }, Kind(), pod.Kind())
			s := p.Prepare(Name, pod.Name)
			pods, _ := p.Manager.Scope(pod.Name, kindtest.Namespace).Caches()
			for name, account := range map[string]string{"web": "robot", "other": "default"} {
				require.NoError(t, pods.Put(kindtest.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`,
  namespace: shop, uid: `+name+`, resourceVersion: "1"}, spec: {serviceAccountName: `+account+`}}`)))
			}
			p.Queued(pod.Name)
			objects, _ := s.Caches()
			require.NoError(t, objects.Put(token(t, kindtest.Namespace, "a", "{}")))
			assert.Equal(t, want, p.Queued(pod.Name))
			p.Manager.Handler(Name).Synced(s, &engine.Kind{Name: Name})
			if mode == engine.SupportLegacy {
				assert.Equal(t, []string{"other", "web"}, p.Queued(pod.Name), "all service accounts")
			} else {
				assert.Empty(t, p.Queued(pod.Name))
			}
		})
	}
}
