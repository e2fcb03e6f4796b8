// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// withLegacy returns an option that selects the mode Legacy, with the default plugins.
func withLegacy(t *testing.T) func(*reflection.Options) {
	defaults := reflectiontest.WithDefaultPlugins(t)
	return func(o *reflection.Options) {
		defaults(o)
		o.Kinds, o.APIServerSupport = reflectiontest.Kinds(reflection.PodKind, reflection.SecretKind, reflection.ServiceAccountKind), reflection.SupportLegacy
	}
}

// tokenSecretOf creates a Secret that Kubernetes fills with the token of a service account.
func (l *lab) tokenSecretOf(account, name string) {
	l.Helper()
	l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, annotations: {%s: %s}}, type: kubernetes.io/service-account-token}`,
		name, wire.TokenServiceAccountLabel, account))
}

// mounts returns a check that a ShadowPod mounts the Secret want instead of a projected token.
func mounts(want string) func(*unstructured.Unstructured) error {
	return func(shadow *unstructured.Unstructured) error {
		if got := pod.MountedToken(shadow); got != want {
			return fmt.Errorf("it mounts the Secret %q, want %q", got, want)
		}
		return nil
	}
}

// TestLegacyPodsMountTheSecretOfTheirAccount checks that a pod waits for the Secret of its service account, and is
// offloaded as soon as the Secret was reflected. This cluster's API server accepts the token in the Secret, and no
// other token is requested.
func TestLegacyPodsMountTheSecretOfTheirAccount(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, withLegacy(t), func(o *reflection.Options) {
		o.Clock, o.APIServer = clock, reflection.APIServer{Port: "6443", IPs: []string{"10.70.0.1"}}
	})
	l.Start()
	l.userPod("web", vaultToken)
	l.Event(l.Namespace, "Pod", "web", "Warning FailedReflection x1", "token of service account default", "create a Secret of type kubernetes.io/service-account-token",
		wire.TokenServiceAccountLabel+": default", wire.APIServerSupportAnnotation+": disabled")
	l.Settled()
	before := l.Manager.Evaluated(reflection.PodKind)
	l.Quiet("an hour of waiting", func() { clock.Step(time.Hour) })
	if after := l.Manager.Evaluated(reflection.PodKind); after != before {
		t.Errorf("the pod was looked at %d times though nothing had changed", after-before)
	}

	l.tokenSecretOf("default", "opener")
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", mounts("opener"))
	there := l.Present(l.Remote, "Secret", l.RemoteNS, "opener", reflectiontest.Field("type", "Opaque"), reflectiontest.Field("metadata.labels/"+wire.TokenServiceAccountLabel, "default"))
	text, _, _ := unstructured.NestedString(there.Object, "data", "token")
	token := string(reflectiontest.Must(base64.StdEncoding.DecodeString(text))(t))
	if answer := l.accepted(token); !answer.Authenticated || answer.User.Username != "system:serviceaccount:"+l.Namespace+":default" {
		t.Errorf("the API server says of the token: %+v", answer)
	}
	for volume, source := range access.Projections(raw.Nested(shadow.Object, "spec", "pod", "volumes")) {
		if source["serviceAccountToken"] != nil || volume == "keys" {
			t.Errorf("volume %s still projects %v", volume, source)
		}
	}
	variables, aliases := environment(shadow)
	if variables["KUBERNETES_SERVICE_HOST"] != "kubernetes.default" || variables["KUBERNETES_SERVICE_PORT"] != "6443" || !strings.Contains(aliases, "10.70.0.1") {
		t.Errorf("the environment is %v, the host aliases are %s", variables, aliases)
	}
	l.Settled()
	if n := l.tokenRequests(); n != 0 {
		t.Errorf("%d tokens were requested", n)
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })

	// Pods that are already offloaded must continue without the Secret, and new pods must wait.
	l.Local.Delete(t, "Secret", l.Namespace, "opener")
	l.Absent(l.Remote, "Secret", l.RemoteNS, "opener")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", "{metadata: {labels: {tier: front}}}")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/tier", "front"), mounts("opener"))
	l.userPod("late", vaultToken)
	l.Event(l.Namespace, "Pod", "late", "Warning FailedReflection", "no token Secret exists")
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) != 1 {
		t.Errorf("the pod that runs has the Events %q", events)
	}
}

// TestLegacyWantsOneSecret checks that a service account must have exactly one Secret. If it has several, none is
// chosen. Secrets that only look similar do not count.
func TestLegacyWantsOneSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: foreign, labels: {%[1]s: default}, annotations: {%[1]s: default}}, stringData: {token: x}}`, wire.TokenServiceAccountLabel))
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: alike, labels: {%s: default}}, stringData: {token: x}}`, wire.TokenServiceAccountLabel))
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: noted, annotations: {%s: default}}, stringData: {token: x}}`, wire.TokenServiceAccountLabel))
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "noted", reflectiontest.Field("type", "Opaque"))
	l.Present(l.Remote, "Secret", l.RemoteNS, "alike", reflectiontest.Field("metadata.labels/"+wire.TokenServiceAccountLabel, "default"))
	l.userPod("web", vaultToken)
	l.Event(l.Namespace, "Pod", "web", "Warning FailedReflection", "no token Secret exists")
	for _, mode := range []string{"disabled", "remote"} {
		l.userPod(mode, vaultToken, wire.APIServerSupportAnnotation+": "+mode)
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, mode)
	}
	l.Pod("without")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "without")

	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	l.tokenSecretOf("robot", "one")
	l.tokenSecretOf("robot", "other")
	for _, name := range []string{"one", "other"} {
		l.Present(l.Remote, "Secret", l.RemoteNS, name)
	}
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: robot}, spec: {serviceAccountName: robot, nodeName: %s, containers: [{name: web, image: "web:1"}]}}`, l.Node))
	l.Event(l.Namespace, "Pod", "robot", "Warning FailedReflection", "2 token Secrets for this service account exist on the provider (one, other)", wire.SkipReflectionAnnotation)
	l.Settled()
	for _, name := range []string{"robot", "web"} {
		if l.Remote.Get(t, "ShadowPod", l.RemoteNS, name) != nil {
			t.Errorf("pod %s was offloaded", name)
		}
	}
	l.Local.PatchYAML(t, "Secret", l.Namespace, "other", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: "true"}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "robot", mounts("one"))
	l.Absent(l.Remote, "Secret", l.RemoteNS, "other")

	// A Secret that is excluded from reflection must not count.
	l.Local.PatchYAML(t, "Secret", l.Namespace, "one", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: "true"}}}`)
	l.Absent(l.Remote, "Secret", l.RemoteNS, "one")
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: second}, spec: {serviceAccountName: robot, nodeName: %s, containers: [{name: web, image: "web:1"}]}}`, l.Node))
	l.Event(l.Namespace, "Pod", "second", "Warning FailedReflection", "is not reflected (one, other)", wire.SkipReflectionAnnotation)
	l.Stop()
	l.Options.Workers = map[string]int{reflection.SecretKind: 0}
	l.Start()
	l.userPod("third", vaultToken)
	l.Event(l.Namespace, "Pod", "third", "Warning FailedReflection", "--secret-reflection-workers")
}

// TestLegacyComesAndGoes checks that no credentials for the API server remain on the provider after the mode has
// changed, and that no pod gets a Secret that is about to be deleted.
func TestLegacyComesAndGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	mode := func(support string) {
		t.Helper()
		l.Stop()
		l.Options.APIServerSupport = support
		l.Start()
	}
	l.Options.APIServerSupport = reflection.SupportTokenAPI
	l.Start()
	l.tokenSecretOf("default", "opener")
	l.userPod("first", vaultToken)
	l.Present(l.Remote, "Secret", l.RemoteNS, "first-token")
	l.Settled()
	if l.Remote.Get(t, "Secret", l.RemoteNS, "opener") != nil {
		t.Error("the long-lived token crossed in the mode TokenAPI")
	}
	requests := l.tokenRequests()

	mode(reflection.SupportLegacy)
	l.Present(l.Remote, "Secret", l.RemoteNS, "opener", reflectiontest.Field("type", "Opaque"))
	l.Absent(l.Remote, "Secret", l.RemoteNS, "first-token")
	l.Event(l.Namespace, "Pod", "first", "Normal ReflectionDisabled", "API server mode Legacy")
	l.userPod("second", vaultToken)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "second", mounts("opener"))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "first", "{metadata: {labels: {tier: front}}}")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "first", reflectiontest.Field("metadata.labels/tier", "front"))

	// While no virtual kubelet runs, another Secret replaces the first one, and a pod is created.
	l.Stop()
	l.Local.Delete(t, "Secret", l.Namespace, "opener")
	l.tokenSecretOf("default", "next")
	l.userPod("third", vaultToken)
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "third", mounts("next"))
	l.Absent(l.Remote, "Secret", l.RemoteNS, "opener")
	l.Settled()
	if events := l.Events(l.Namespace, "Pod", "third"); len(events) > 0 {
		t.Errorf("the pod whose Secret came at once has the Events %q", events)
	}
	if n := l.tokenRequests(); n != requests {
		t.Errorf("%d tokens were requested in the mode Legacy", n-requests)
	}

	mode(reflection.SupportTokenAPI)
	l.Absent(l.Remote, "Secret", l.RemoteNS, "next")
	l.userPod("fourth", vaultToken)
	l.Present(l.Remote, "Secret", l.RemoteNS, "fourth-token")
	l.keysAgree("fourth")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "third", "{metadata: {labels: {tier: front}}}")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "third", reflectiontest.Field("metadata.labels/tier", "front"), mounts("next"))

	mode(reflection.SupportLegacy)
	l.Present(l.Remote, "Secret", l.RemoteNS, "next")
	mode(reflection.SupportDisabled)
	l.Absent(l.Remote, "Secret", l.RemoteNS, "next")
	l.userPod("fifth", vaultToken)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "fifth", mounts(""))
	mode(reflection.SupportLegacy)
	l.Local.PatchYAML(t, "Pod", l.Namespace, "fifth", "{metadata: {labels: {tier: front}}}")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "fifth", reflectiontest.Field("metadata.labels/tier", "front"), mounts(""))
	left := reflectiontest.Must(l.Remote.Of("Secret", l.RemoteNS).List(t.Context(), metav1.ListOptions{}))(t)
	if slices.ContainsFunc(left.Items, func(o unstructured.Unstructured) bool { return strings.HasSuffix(o.GetName(), "-token") }) {
		t.Error("tokens of pods are left")
	}
}

// TestLegacySecretsOnTheirWay checks that pods wait while the provider temporarily rejects their Secret, that an
// Event reports this after a moment, and that the pods continue without any action by a user.
func TestLegacySecretsOnTheirWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: Secret, metadata: {name: opener}, stringData: {mine: x}}`)
	l.Start()
	l.tokenSecretOf("default", "opener")
	begin := time.Now()
	l.userPod("web", vaultToken)
	l.Event(l.Namespace, "Pod", "web", "Warning FailedReflection", "is not reflected (opener)", "see its Events")
	if took := time.Since(begin); took < pod.TokenArrivalGrace/2 {
		t.Errorf("the pod was told after %s, before the Secret could have crossed", took)
	}
	l.Remote.Delete(t, "Secret", l.RemoteNS, "opener")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", mounts("opener"))
}

// heldSecrets is a transport that delays all requests for Secrets until release is called.
type heldSecrets struct {
	http.RoundTripper
	released chan struct{}
}

func (l heldSecrets) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/secrets") {
		select {
		case <-l.released:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return l.RoundTripper.RoundTrip(request)
}

// TestLegacyWaitsUntilSecretsAreRead checks that no Event about missing Secrets is written before the Secrets were
// read.
func TestLegacyWaitsUntilSecretsAreRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.tokenSecretOf("default", "opener")
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "opener")
	l.Settled()
	l.Stop()
	released := make(chan struct{})
	l.Options.Remote = rest.CopyConfig(l.Options.Remote)
	l.Options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return heldSecrets{next, released} })
	l.StartUnready()
	l.userPod("web", vaultToken)
	l.Eventually(func() error {
		if l.Manager.Evaluated(reflection.PodKind) == 0 {
			return fmt.Errorf("no pod was looked at")
		}
		return nil
	})
	if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web") != nil {
		t.Error("the pod was offloaded without its Secret")
	}
	close(released)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", mounts("opener"))
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("the pod has the Events %q", events)
	}
}
