// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

var (
	podKind    = corev1.SchemeGroupVersion.WithKind("Pod")
	secretKind = corev1.SchemeGroupVersion.WithKind("Secret")
)

const secretName = "web" + wire.TokenSecretSuffix

// mounts are the volumes of a pod with a token that is valid for an hour.
const mounts = `[{name: kube-api-access-x, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3600}}]}}]`

// lab evaluates the tokens of the pod web.
type lab struct {
	*kindtest.Pair
	t     *testing.T
	h     *Handler
	scope *engine.Scope
}

func newLab(t *testing.T, mode string) *lab {
	t.Helper()
	l := &lab{Pair: kindtest.New(t, func(o *engine.Options) { o.APIServerSupport = mode }, pod.Kind(), Kind()), t: t}
	l.scope = l.Prepare(pod.Name, Name)
	l.scope = l.Manager.Scope(Name, kindtest.Namespace)
	l.h = l.Manager.Handler(Name).(*Handler)
	l.Here.Put(t, kindtest.Object(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: shop}}`))
	return l
}

// local stores the pod with additional metadata fields. It records that the pod's chain has run, and that the volumes
// of the offloaded pod refer to the Secret.
func (l *lab) local(metadata, status string) *unstructured.Unstructured {
	l.t.Helper()
	object := kindtest.Object(l.t, `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop`+metadata+`},
  spec: {nodeName: milan, serviceAccountName: robot, containers: [{name: web, image: "web:1"}],
  volumes: `+mounts+`}, status: {phase: `+status+`}}`)
	l.Here.Put(l.t, object)
	l.sync()
	l.mounts(secretName)
	return object
}

// mounts records that the offloaded pod mounts the given Secret.
func (l *lab) mounts(secret string) {
	source := map[string]any{"secret": map[string]any{"name": secret}}
	volume := map[string]any{"name": "kube-api-access-x", "projected": map[string]any{"sources": []any{source}}}
	l.h.Mounts(kindtest.Key("web"), l.Here.Get(podKind, kindtest.Namespace, "web").GetUID(), []any{volume})
}

func (l *lab) sync() {
	l.t.Helper()
	pods, secrets := l.scope.Caches()
	l.Sync(l.Here, pods, podKind, kindtest.Namespace, "web")
	l.Sync(l.Provider, secrets, secretKind, kindtest.RemoteNamespace, secretName)
}

func (l *lab) reconcile() error {
	l.t.Helper()
	err := l.Reconcile(Name, "web")
	l.sync()
	return err
}

func (l *lab) secret() *unstructured.Unstructured {
	return l.Provider.Get(secretKind, kindtest.RemoteNamespace, secretName)
}

// countRequests counts the requests for tokens.
func (l *lab) countRequests() *int {
	requests := new(int)
	l.Here.OnRequest(func(r apistub.Request) *apistub.Failure {
		if r.Subresource == "token" {
			*requests++
		}
		return nil
	})
	return requests
}

// requireRenewal checks that the tokens are on the provider, and that they will be renewed at the right time.
func (l *lab) requireRenewal(err error) {
	l.t.Helper()
	var later *failure.RetryAfter
	require.ErrorAs(l.t, err, &later)
	assert.InDelta(l.t, 49.5*60, later.After.Seconds(), 2*60, "four fifths of the lifetime, and a jitter")
	require.NotNil(l.t, l.secret())
	require.Len(l.t, raw.Map(l.secret().Object["data"]), 1)
}

// TestLifeOfATokenSecret checks that the Secret of a pod is created, is not written while it is up to date, is renewed
// in time, and is deleted when the pod has finished.
func TestLifeOfATokenSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t, engine.SupportTokenAPI)
	l.local("", "Running")
	assert.Equal(t, []string{"web"}, l.Queued(Name))
	requests := l.countRequests()
	l.requireRenewal(l.reconcile())
	assert.Equal(t, 1, *requests)
	assert.Equal(t, "robot", l.secret().GetLabels()[wire.ServiceAccountNameLabel])
	l.Provider.TakeSent()
	l.requireRenewal(l.reconcile())
	assert.Equal(t, 1, *requests)
	assert.Empty(t, l.Provider.TakeSent(), "a Secret that is up to date is not written")
	l.Clock.Step(49 * time.Minute)
	var later *failure.RetryAfter
	require.ErrorAs(t, l.reconcile(), &later)
	assert.Equal(t, 2, *requests, "a token that is due is renewed")
	l.local("", "Succeeded")
	require.NoError(t, l.reconcile())
	assert.Nil(t, l.secret(), "a finished pod has no tokens")
}

// TestStatesWithoutTokens checks for which states of a pod there is no Secret, and which Event reports this.
func TestStatesWithoutTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode   string
		change func(l *lab)
		event  string
	}{
		"the pod is gone": {engine.SupportTokenAPI, func(l *lab) { l.Here.Remove(podKind, kindtest.Namespace, "web") }, ""},
		"another pod of the name": {engine.SupportTokenAPI, func(l *lab) {
			l.Here.Remove(podKind, kindtest.Namespace,
				"web")
			l.sync()
			l.local("", "Running")
		}, ""},
		"the pod opts out": {engine.SupportTokenAPI, func(l *lab) {
			l.local(`, annotations: {`+wire.APIServerSupportAnnotation+`: `+wire.APIServerSupportDisabled+`}`, "Running")
		}, wire.APIServerSupportAnnotation},
		"the offloaded pod has none":  {engine.SupportTokenAPI, func(l *lab) { l.mounts("another") }, ""},
		"the mode does not have them": {engine.SupportLegacy, func(*lab) {}, "API server mode Legacy"},
		"no support":                  {engine.SupportDisabled, func(*lab) {}, "--enable-apiserver-support"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, c.mode)
			l.local("", "Running")
			object := kindtest.Object(t, `{apiVersion: v1, kind: Secret, metadata: {name: `+secretName+`, namespace: shop-rome}}`)
			object.SetLabels(l.h.Ownership())
			object.SetAnnotations(map[string]string{wire.ServiceAccountPodUIDAnnotation: string(l.Here.Get(podKind,
				kindtest.Namespace, "web").GetUID())})
			l.Provider.Put(t, object)
			c.change(l)
			l.sync()
			require.NoError(t, l.reconcile())
			assert.Nil(t, l.secret())
			if c.event != "" {
				l.Events.Await(t, wire.ReflectionDisabledReason, c.event)
			}
		})
	}
}

// TestTokensWait checks that no token is requested while it is unknown whether the offloaded pod mounts it.
func TestTokensWait(t *testing.T) {
	t.Parallel()
	l := newLab(t, engine.SupportTokenAPI)
	l.local("", "Running")
	l.h.dropState(kindtest.Key("web"))
	require.NoError(t, l.reconcile())
	assert.Nil(t, l.secret())
	l.mounts(secretName)
	l.requireRenewal(l.reconcile())
	require.NoError(t, l.h.NotOffloaded(t.Context(), l.Worker, kindtest.Key("web")))
	_, known := l.h.mounting.Load(kindtest.Key("web"))
	assert.False(t, known, "nothing is remembered of a pod whose namespace is not offloaded")
}

// TestErrorsOfTokens checks the class of each error, and whether the message contains the remedy.
func TestErrorsOfTokens(t *testing.T) {
	t.Parallel()
	onToken := func(failure *apistub.Failure) func(*lab) {
		return func(l *lab) {
			l.Here.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Subresource == "token" {
					return failure
				}
				return nil
			})
		}
	}
	onCreate := func(failure *apistub.Failure) func(*lab) {
		return func(l *lab) { l.Provider.Once("create", failure) }
	}
	for name, c := range map[string]struct {
		change func(l *lab)
		class  failure.Class
		text   string
	}{
		"no service account": {func(l *lab) {
			l.Here.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Subresource == "token" {
					return apistub.Refuse(notFound("serviceaccounts", "robot"))
				}
				return nil
			})
		}, failure.Refused, "create it"},
		"the pod is gone": {func(l *lab) {
			l.Here.OnRequest(func(r apistub.Request) *apistub.Failure {
				if r.Subresource == "token" {
					return apistub.Refuse(notFound("pods", "web"))
				}
				return nil
			})
		}, failure.Conflict, ""},
		"a conflict": {onToken(apistub.Conflict), failure.Conflict, ""},
		"no permission": {onToken(apistub.Forbidden), failure.Refused,
			"allow the virtual kubelet to create serviceaccounts/token in namespace shop"},
		"a policy of this cluster": {onToken(apistub.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "robot",
			errors.New("ValidatingAdmissionPolicy 'no-tokens' with binding 'no-tokens' denied request: no")))), failure.Denied, "change the policy, or the token volumes of the pod"},
		"an invalid request":   {onToken(apistub.Invalid), failure.Refused, "correct the token volumes of the pod"},
		"this cluster is away": {onToken(apistub.Unavailable), failure.Unreachable, ""},
		"this cluster is busy": {onToken(apistub.Overloaded), failure.Throttled, ""},
		"the provider refuses": {onCreate(apistub.Forbidden), failure.Refused, ""},
		"the provider is away": {onCreate(apistub.Lost), failure.Unreachable, ""},
		"the provider is busy": {onCreate(apistub.Overloaded), failure.Throttled, ""},
		"the name is taken": {func(l *lab) {
			l.Provider.Put(t, kindtest.Object(t, `{apiVersion: v1, kind: Secret, metadata: {name: `+secretName+`,
  namespace: shop-rome}}`))
		}, failure.Foreign, "exclude the other Secret from reflection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, engine.SupportTokenAPI)
			l.local("", "Running")
			c.change(l)
			err := l.Reconcile(Name, "web")
			kindtest.RequireClass(t, c.class, evaluation.Out, err)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// TestATokenThatWasIssuedIsKept checks that an issued token that could not be stored is not requested again.
func TestATokenThatWasIssuedIsKept(t *testing.T) {
	t.Parallel()
	l := newLab(t, engine.SupportTokenAPI)
	l.local("", "Running")
	requests := l.countRequests()
	l.Provider.Once("create", apistub.Overloaded)
	require.Error(t, l.reconcile())
	l.requireRenewal(l.reconcile())
	assert.Equal(t, 1, *requests)
}

// TestChangesThatMatterToTokens checks that a change of a pod causes a reconciliation only if it affects the pod's
// tokens, or if it is a resync.
func TestChangesThatMatterToTokens(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	pod := func(version, uid, phase, annotations string) *unstructured.Unstructured {
		return kindtest.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, resourceVersion: "`+version+`",
  uid: `+uid+annotations+`}, status: {phase: `+phase+`}}`)
	}
	before := pod("1", "u", "Pending", "")
	for name, c := range map[string]struct {
		after   *unstructured.Unstructured
		matters bool
	}{
		"a status":    {pod("2", "u", "Running", ""), false},
		"a resync":    {pod("1", "u", "Pending", ""), true},
		"another pod": {pod("2", "v", "Pending", ""), true},
		"the end":     {pod("2", "u", "Failed", ""), true},
		"opting out": {pod("2", "u", "Pending", `,
  annotations: {`+wire.APIServerSupportAnnotation+`: `+wire.APIServerSupportDisabled+`}`), true},
	} {
		assert.Equal(t, c.matters, h.ObjectMatters(before, c.after), name)
	}
	assert.True(t, h.ObjectMatters(nil, before))
}

// TestTheSecretGoesWithTheShadowPod checks that tokens are reconciled when the ShadowPod is deleted, and that a pod has
// tokens only if the volumes of its ShadowPod refer to them.
func TestTheSecretGoesWithTheShadowPod(t *testing.T) {
	t.Parallel()
	l := newLab(t, engine.SupportTokenAPI)
	created := l.local("", "Running")
	_, shadows := l.Manager.Scope(pod.Name, kindtest.Namespace).Caches()
	shadow := kindtest.Object(t, `{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, metadata: {name: web,
  namespace: shop-rome, uid: s, resourceVersion: "9"}, spec: {pod: {volumes: []}}}`)
	shadow.SetAnnotations(map[string]string{copies.OriginUIDAnnotation: string(l.Here.Get(podKind, kindtest.Namespace, "web").GetUID())})
	require.NoError(t, shadows.Put(shadow.DeepCopy()))
	require.NoError(t, l.reconcile())
	assert.Nil(t, l.secret(), "the ShadowPod mounts no tokens")
	l.Queued(Name)
	require.NoError(t, shadows.Drop(shadow))
	assert.Equal(t, []string{"web"}, l.Queued(Name))
	assert.NotNil(t, created)
	l.requireRenewal(l.reconcile())
}

func notFound(resource, name string) *apierrors.StatusError {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}
