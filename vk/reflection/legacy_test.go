// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// withLegacy runs the lab with the plugins that are shipped, in the mode Legacy.
func withLegacy(t *testing.T) func(*Options) {
	defaults := withDefaultPlugins(t)
	return func(o *Options) {
		defaults(o)
		o.Kinds, o.APIServerSupport = kinds(PodKind, SecretKind, ServiceAccountKind), SupportLegacy
	}
}

// tokenSecretOf makes a Secret for the token of a service account, which Kubernetes fills.
func (l *lab) tokenSecretOf(account, name string) {
	l.Helper()
	l.local.create(l.T, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, annotations: {%s: %s}}, type: kubernetes.io/service-account-token}`,
		name, wire.TokenServiceAccountLabel, account))
}

// mounts checks which Secret a ShadowPod has in the place of its token.
func mounts(want string) func(*unstructured.Unstructured) error {
	return func(shadow *unstructured.Unstructured) error {
		if got := pod.MountedToken(shadow); got != want {
			return fmt.Errorf("it mounts the Secret %q, want %q", got, want)
		}
		return nil
	}
}

// A pod waits for the Secret of its service account, and is offloaded the moment that is on the provider: with a token that
// this cluster's API server accepts, none of which was requested.
func TestLegacyPodsMountTheSecretOfTheirAccount(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, withLegacy(t), func(o *Options) {
		o.Clock, o.APIServer = clock, APIServer{Port: "6443", IPs: []string{"10.70.0.1"}}
	})
	l.start()
	l.userPod("web", vaultToken)
	l.event(l.namespace, "Pod", "web", "Warning FailedReflection x1", "token of service account default", "create a Secret of type kubernetes.io/service-account-token",
		wire.TokenServiceAccountLabel+": default", wire.APIServerSupportAnnotation+": disabled")
	l.settled()
	before := l.manager.Evaluated(PodKind)
	l.quiet("an hour of waiting", func() { clock.Step(time.Hour) })
	if after := l.manager.Evaluated(PodKind); after != before {
		t.Errorf("the pod was looked at %d times though nothing had changed", after-before)
	}

	l.tokenSecretOf("default", "opener")
	shadow := l.present(l.remote, "ShadowPod", l.remoteNS, "web", mounts("opener"))
	there := l.present(l.remote, "Secret", l.remoteNS, "opener", field("type", "Opaque"), field("metadata.labels/"+wire.TokenServiceAccountLabel, "default"))
	text, _, _ := unstructured.NestedString(there.Object, "data", "token")
	token := string(must(base64.StdEncoding.DecodeString(text))(t))
	if answer := l.accepted(token); !answer.Authenticated || answer.User.Username != "system:serviceaccount:"+l.namespace+":default" {
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
	l.settled()
	if n := l.tokenRequests(); n != 0 {
		t.Errorf("%d tokens were requested", n)
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })

	// What was offloaded goes on without the Secret; what was not waits.
	l.local.delete(t, "Secret", l.namespace, "opener")
	l.absent(l.remote, "Secret", l.remoteNS, "opener")
	l.local.patchYAML(t, "Pod", l.namespace, "web", "{metadata: {labels: {tier: front}}}")
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/tier", "front"), mounts("opener"))
	l.userPod("late", vaultToken)
	l.event(l.namespace, "Pod", "late", "Warning FailedReflection", "none was made")
	if events := l.events(l.namespace, "Pod", "web"); len(events) != 1 {
		t.Errorf("the pod that runs has the Events %q", events)
	}
}

// One Secret is wanted: of several none is chosen, and those that only look alike do not count.
func TestLegacyWantsOneSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: foreign, labels: {%[1]s: default}, annotations: {%[1]s: default}}, stringData: {token: x}}`, wire.TokenServiceAccountLabel))
	l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: alike, labels: {%s: default}}, stringData: {token: x}}`, wire.TokenServiceAccountLabel))
	l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: noted, annotations: {%s: default}}, stringData: {token: x}}`, wire.TokenServiceAccountLabel))
	l.start()
	l.present(l.remote, "Secret", l.remoteNS, "noted", field("type", "Opaque"))
	l.present(l.remote, "Secret", l.remoteNS, "alike", field("metadata.labels/"+wire.TokenServiceAccountLabel, "default"))
	l.userPod("web", vaultToken)
	l.event(l.namespace, "Pod", "web", "Warning FailedReflection", "none was made")
	for _, mode := range []string{"disabled", "remote"} {
		l.userPod(mode, vaultToken, wire.APIServerSupportAnnotation+": "+mode)
		l.present(l.remote, "ShadowPod", l.remoteNS, mode)
	}
	l.pod("without")
	l.present(l.remote, "ShadowPod", l.remoteNS, "without")

	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	l.tokenSecretOf("robot", "one")
	l.tokenSecretOf("robot", "other")
	for _, name := range []string{"one", "other"} {
		l.present(l.remote, "Secret", l.remoteNS, name)
	}
	l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: robot}, spec: {serviceAccountName: robot, nodeName: %s, containers: [{name: web, image: "web:1"}]}}`, l.node))
	l.event(l.namespace, "Pod", "robot", "Warning FailedReflection", "2 Secrets of it (one, other)", wire.SkipReflectionAnnotation)
	l.settled()
	for _, name := range []string{"robot", "web"} {
		if l.remote.get(t, "ShadowPod", l.remoteNS, name) != nil {
			t.Errorf("pod %s was offloaded", name)
		}
	}
	l.local.patchYAML(t, "Secret", l.namespace, "other", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: "true"}}}`)
	l.present(l.remote, "ShadowPod", l.remoteNS, "robot", mounts("one"))
	l.absent(l.remote, "Secret", l.remoteNS, "other")

	// A Secret that is kept at home is none for the pods either.
	l.local.patchYAML(t, "Secret", l.namespace, "one", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: "true"}}}`)
	l.absent(l.remote, "Secret", l.remoteNS, "one")
	l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: second}, spec: {serviceAccountName: robot, nodeName: %s, containers: [{name: web, image: "web:1"}]}}`, l.node))
	l.event(l.namespace, "Pod", "second", "Warning FailedReflection", "has not crossed (one, other)", wire.SkipReflectionAnnotation)
	l.stop()
	l.options.Workers = map[string]int{SecretKind: 0}
	l.start()
	l.userPod("third", vaultToken)
	l.event(l.namespace, "Pod", "third", "Warning FailedReflection", "--secret-reflection-workers")
}

// Between one mode and the next nothing that opens the API server stays behind, and no pod gets a Secret that is about to go.
func TestLegacyComesAndGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	mode := func(support string) {
		t.Helper()
		l.stop()
		l.options.APIServerSupport = support
		l.start()
	}
	l.options.APIServerSupport = SupportTokenAPI
	l.start()
	l.tokenSecretOf("default", "opener")
	l.userPod("first", vaultToken)
	l.present(l.remote, "Secret", l.remoteNS, "first-token")
	l.settled()
	if l.remote.get(t, "Secret", l.remoteNS, "opener") != nil {
		t.Error("the long-lived token crossed in the mode TokenAPI")
	}
	requests := l.tokenRequests()

	mode(SupportLegacy)
	l.present(l.remote, "Secret", l.remoteNS, "opener", field("type", "Opaque"))
	l.absent(l.remote, "Secret", l.remoteNS, "first-token")
	l.event(l.namespace, "Pod", "first", "Normal ReflectionDisabled", "API server mode Legacy")
	l.userPod("second", vaultToken)
	l.present(l.remote, "ShadowPod", l.remoteNS, "second", mounts("opener"))
	l.local.patchYAML(t, "Pod", l.namespace, "first", "{metadata: {labels: {tier: front}}}")
	l.present(l.remote, "ShadowPod", l.remoteNS, "first", field("metadata.labels/tier", "front"))

	// While nobody looks another Secret takes the place of the first, and a pod comes.
	l.stop()
	l.local.delete(t, "Secret", l.namespace, "opener")
	l.tokenSecretOf("default", "next")
	l.userPod("third", vaultToken)
	l.start()
	l.present(l.remote, "ShadowPod", l.remoteNS, "third", mounts("next"))
	l.absent(l.remote, "Secret", l.remoteNS, "opener")
	l.settled()
	if events := l.events(l.namespace, "Pod", "third"); len(events) > 0 {
		t.Errorf("the pod whose Secret came at once has the Events %q", events)
	}
	if n := l.tokenRequests(); n != requests {
		t.Errorf("%d tokens were requested in the mode Legacy", n-requests)
	}

	mode(SupportTokenAPI)
	l.absent(l.remote, "Secret", l.remoteNS, "next")
	l.userPod("fourth", vaultToken)
	l.present(l.remote, "Secret", l.remoteNS, "fourth-token")
	l.keysAgree("fourth")
	l.local.patchYAML(t, "Pod", l.namespace, "third", "{metadata: {labels: {tier: front}}}")
	l.present(l.remote, "ShadowPod", l.remoteNS, "third", field("metadata.labels/tier", "front"), mounts("next"))

	mode(SupportLegacy)
	l.present(l.remote, "Secret", l.remoteNS, "next")
	mode(SupportDisabled)
	l.absent(l.remote, "Secret", l.remoteNS, "next")
	l.userPod("fifth", vaultToken)
	l.present(l.remote, "ShadowPod", l.remoteNS, "fifth", mounts(""))
	mode(SupportLegacy)
	l.local.patchYAML(t, "Pod", l.namespace, "fifth", "{metadata: {labels: {tier: front}}}")
	l.present(l.remote, "ShadowPod", l.remoteNS, "fifth", field("metadata.labels/tier", "front"), mounts(""))
	left := must(l.remote.of("Secret", l.remoteNS).List(t.Context(), metav1.ListOptions{}))(t)
	if slices.ContainsFunc(left.Items, func(o unstructured.Unstructured) bool { return strings.HasSuffix(o.GetName(), "-token") }) {
		t.Error("tokens of pods are left")
	}
}

// A Secret that the provider refuses for a while delays its pods, and says so after a moment; they need no push.
func TestLegacySecretsOnTheirWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: Secret, metadata: {name: opener}, stringData: {mine: x}}`)
	l.start()
	l.tokenSecretOf("default", "opener")
	begin := time.Now()
	l.userPod("web", vaultToken)
	l.event(l.namespace, "Pod", "web", "Warning FailedReflection", "has not crossed (opener)", "Events say why")
	if took := time.Since(begin); took < pod.TokenArrival/2 {
		t.Errorf("the pod was told after %s, before the Secret could have crossed", took)
	}
	l.remote.delete(t, "Secret", l.remoteNS, "opener")
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", mounts("opener"))
}

// heldSecrets holds back what concerns Secrets until it is released.
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

// Nothing is said of Secrets that have not been read.
func TestLegacyWaitsUntilSecretsAreRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.tokenSecretOf("default", "opener")
	l.start()
	l.present(l.remote, "Secret", l.remoteNS, "opener")
	l.settled()
	l.stop()
	released := make(chan struct{})
	l.options.Remote = rest.CopyConfig(l.options.Remote)
	l.options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return heldSecrets{next, released} })
	l.startUnready()
	l.userPod("web", vaultToken)
	l.eventually(func() error {
		if l.manager.Evaluated(PodKind) == 0 {
			return fmt.Errorf("no pod was looked at")
		}
		return nil
	})
	if l.remote.get(t, "ShadowPod", l.remoteNS, "web") != nil {
		t.Error("the pod was offloaded without its Secret")
	}
	close(released)
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", mounts("opener"))
	if events := l.events(l.namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("the pod has the Events %q", events)
	}
}
