// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// withTokens returns an option with the default plugins that lets pods use this cluster's API server.
func withTokens(t *testing.T) func(*reflection.Options) {
	defaults := reflectiontest.WithDefaultPlugins(t)
	return func(o *reflection.Options) {
		defaults(o)
		o.Kinds, o.APIServerSupport = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceAccountKind), reflection.SupportTokenAPI
	}
}

// vaultToken is an additional source of the projected volume "keys". Kubernetes itself adds a source for its own API
// server.
const vaultToken = `{serviceAccountToken: {audience: vault, expirationSeconds: 1200, path: deep/vault}}`

// userPod creates a pod with a service account and a projected volume that has the given additional sources.
func (l *lab) userPod(name, sources string, annotations ...string) *unstructured.Unstructured {
	l.Helper()
	object := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  nodeName: %s
  containers: [{name: web, image: "web:1", volumeMounts: [{name: keys, mountPath: /keys}]}]
  volumes: [{name: keys, projected: {sources: [%s]}}]
  tolerations: [{operator: Exists}]`, name, strings.Join(annotations, ", "), l.Node, sources)
	// The service account must exist before the pod is created, because admission requires it.
	l.Present(l.Local, "ServiceAccount", l.Namespace, "default")
	return l.Local.Create(l.T, l.Namespace, object)
}

// tokenOf returns the token whose key in the Secret of a pod begins with the name of the volume.
func tokenOf(t *testing.T, secret *unstructured.Unstructured, volume string) string {
	t.Helper()
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	for key, text := range data {
		if strings.HasPrefix(key, volume) {
			return string(reflectiontest.Must(base64.StdEncoding.DecodeString(text))(t))
		}
	}
	t.Fatalf("the Secret has no token of volume %s: %v", volume, slices.Sorted(maps.Keys(data)))
	return ""
}

// life returns the lifetime of a token in seconds.
func life(t *testing.T, token string) int64 {
	t.Helper()
	var claims struct{ Iat, Exp int64 }
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatal("that is no token")
	}
	require.NoError(t, json.Unmarshal(reflectiontest.Must(base64.RawURLEncoding.DecodeString(parts[1]))(t), &claims))
	return claims.Exp - claims.Iat
}

// accepted returns the result of a TokenReview by this cluster's API server.
func (l *lab) accepted(token string, audiences ...string) authenticationv1.TokenReviewStatus {
	l.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
	return reflectiontest.Must(l.Local.Core.AuthenticationV1().TokenReviews().Create(l.Context(), review, metav1.CreateOptions{}))(l.T).Status
}

// safeBuffer is a log buffer that is safe for concurrent use.
type safeBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *safeBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// TestTokensOfAPod checks that an offloaded pod finds tokens at the usual paths, and that this cluster's API server
// accepts them as tokens of the pod. The tokens must need only one write, survive a restart, never be disclosed, and
// be deleted together with the pod.
func TestTokensOfAPod(t *testing.T) {
	t.Parallel()
	log, registry := &safeBuffer{}, prometheus.NewRegistry()
	l := newLab(t, withTokens(t), func(o *reflection.Options) {
		o.Registerer = registry
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	l.Start()
	l.Pod("without")
	pod := l.userPod("web", vaultToken)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", func(shadow *unstructured.Unstructured) error {
		if !access.MountsSecret(raw.Nested(shadow.Object, "spec", "pod", "volumes"), "web-token") {
			return fmt.Errorf("no volume refers to the Secret")
		}
		return nil
	})
	secret := l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", reflectiontest.Field("type", "Opaque"),
		reflectiontest.Field("metadata.labels/"+wire.ServiceAccountNameLabel, "default"), reflectiontest.Field("metadata.labels/"+wire.NodeNameLabel, l.Node),
		reflectiontest.Field("metadata.labels/"+wire.OriginLabel, "rome"), reflectiontest.Field("metadata.labels/"+wire.DestinationLabel, l.ID),
		reflectiontest.Field("metadata.annotations/"+wire.ServiceAccountPodNameAnnotation, "web"), reflectiontest.Field("metadata.annotations/"+wire.ServiceAccountPodUIDAnnotation, string(pod.GetUID())))
	l.keysAgree("web")

	own, vault := tokenOf(t, secret, "kube-api-access-"), tokenOf(t, secret, "keys-")
	answer := l.accepted(own)
	if !answer.Authenticated || answer.User.Username != "system:serviceaccount:"+l.Namespace+":default" {
		t.Errorf("the API server says of the token: %+v", answer)
	}
	if uid := answer.User.Extra["authentication.kubernetes.io/pod-uid"]; !slices.Equal(uid, []string{string(pod.GetUID())}) {
		t.Errorf("the token is bound to pod %v, want %s", uid, pod.GetUID())
	}
	if answer := l.accepted(vault, "vault"); !answer.Authenticated || life(t, vault) != 1200 {
		t.Errorf("the API server says of the token for another audience, which lives for %d s: %+v", life(t, vault), answer)
	}
	if l.accepted(vault).Authenticated {
		t.Error("the token for another audience opens the API server")
	}
	expires := reflectiontest.Must(time.Parse(time.RFC3339, raw.Annotations(secret.Object)[wire.ServiceAccountExpirationAnnotation].(string)))(t)
	if left := time.Until(expires); left > 1200*time.Second || left < 1100*time.Second {
		t.Errorf("the first token expires in %s, want 20 min", left)
	}

	l.Settled()
	if writes := l.Remote.Writes(t); len(writes) != 3 || l.Remote.Get(t, "Secret", l.RemoteNS, "without-token") != nil {
		t.Errorf("the writes to the provider are %q, want two ShadowPods and the Secret of the one with tokens", writes)
	}
	counted := gathered(t, registry)
	where := " " + l.ID + " " + l.Namespace + " " + l.Node + " ServiceAccount"
	if counted["liqo_virtual_kubelet_reflection_item_counter"+where] < 1 || counted["liqo_virtual_kubelet_reflection_error_counter"+where] > 0 {
		t.Errorf("success is counted as something else: %v", counted)
	}
	if requests := l.tokenRequests(); requests != 2 {
		t.Errorf("%d tokens were requested, want 2", requests)
	}
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("a pod without trouble has the Events %q", events)
	}
	l.Quiet("another look", func() { l.Manager.EnqueueAll(reflection.ServiceAccountKind) })
	l.Stop()
	// The restarted manager gets no registerer, because the metrics are already registered.
	l.Options.Registerer = nil
	l.Quiet("a restart", func() { l.Start() })

	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {tier: front}}}`)
	l.Local.Delete(t, "Pod", l.Namespace, "web")
	l.Absent(l.Remote, "Secret", l.RemoteNS, "web-token")
	if told := log.text(); strings.Contains(told, own) || strings.Contains(told, vault) || !strings.Contains(told, "Namespace is reflected") {
		t.Error("the log has a token, or nothing")
	}
}

// keysAgree checks that the Secret has exactly those keys to which the ShadowPod refers.
func (l *lab) keysAgree(name string) {
	l.Helper()
	var refers []string
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, name)
	volumes, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "pod", "volumes")
	for _, volume := range volumes {
		sources, _ := raw.Nested(raw.Map(volume), "projected", "sources").([]any)
		for _, source := range sources {
			items, _ := raw.Nested(raw.Map(source), "secret", "items").([]any)
			for _, item := range items {
				refers = append(refers, raw.Map(item)["key"].(string))
			}
		}
	}
	slices.Sort(refers)
	data, _, _ := unstructured.NestedStringMap(l.Present(l.Remote, "Secret", l.RemoteNS, name+"-token").Object, "data")
	if has := slices.Sorted(maps.Keys(data)); !slices.Equal(refers, has) || len(has) == 0 {
		l.Errorf("the ShadowPod refers to the keys %q, the Secret has %q", refers, has)
	}
}

func (l *lab) tokenRequests() (n int) {
	l.Helper()
	for _, write := range l.Local.Writes(l.T) {
		if strings.HasPrefix(write, "create serviceaccounts/token") {
			n++
		}
	}
	return n
}

// TestTokensAreRenewed checks that a token is renewed, with one write, only when less than a fifth of its lifetime is
// left.
func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	registry := prometheus.NewRegistry()
	l := newLab(t, withTokens(t), func(o *reflection.Options) { o.Clock, o.Registerer = clock, registry })
	l.Start()
	l.userPod("web", "{serviceAccountToken: {audience: short, expirationSeconds: 600, path: t}}")
	first := l.Present(l.Remote, "Secret", l.RemoteNS, "web-token")
	l.Settled()
	// All times are relative to the time of the API server, so the duration of the test does not matter.
	issued := first.GetCreationTimestamp().Time
	l.Quiet("most of the life of a token", func() { clock.SetTime(issued.Add(470 * time.Second)) })
	before := len(l.Remote.Writes(t))
	clock.SetTime(issued.Add(520 * time.Second)) // the renewal is due after 480 s plus the jitter
	second := l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", func(o *unstructured.Unstructured) error {
		if o.GetResourceVersion() == first.GetResourceVersion() {
			return fmt.Errorf("it was not written")
		}
		return nil
	})
	l.Settled()
	if writes := l.Remote.Writes(t)[before:]; len(writes) != 1 || second.GetUID() != first.GetUID() {
		t.Errorf("renewing took the writes %q", writes)
	}
	if tokenOf(t, first, "keys-") == tokenOf(t, second, "keys-") || tokenOf(t, first, "kube-api-access-") != tokenOf(t, second, "kube-api-access-") {
		t.Error("not the one token that was due was renewed")
	}
	if !l.accepted(tokenOf(t, second, "keys-"), "short").Authenticated {
		t.Error("the new token is not accepted")
	}
	// The time until a renewal is due must not count as waiting time of a change.
	var crossed *dto.Histogram
	for _, family := range reflectiontest.Must(registry.Gather())(t) {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "refract_crossing_seconds" && strings.Contains(metric.String(), `"ServiceAccount"`) {
				crossed = metric.GetHistogram()
			}
		}
	}
	require.NotNil(t, crossed, "no token has crossed")
	assert.EqualValues(t, 2, crossed.GetSampleCount())
	assert.Less(t, crossed.GetSampleSum(), 60.0)
}

// TestAnotherPodGetsOtherTokens checks that a new pod of the same name that is created while no virtual kubelet runs
// gets its own tokens in its own Secret.
func TestAnotherPodGetsOtherTokens(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.Start()
	l.userPod("web-0", vaultToken)
	first := l.Present(l.Remote, "Secret", l.RemoteNS, "web-0-token")
	l.Settled()
	l.Stop()
	none := int64(0)
	require.NoError(t, l.Local.Of("Pod", l.Namespace).Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: &none}))
	again := l.userPod("web-0", vaultToken)
	l.Start()
	second := l.Present(l.Remote, "Secret", l.RemoteNS, "web-0-token", reflectiontest.Field("metadata.annotations/"+wire.ServiceAccountPodUIDAnnotation, string(again.GetUID())))
	if first.GetUID() == second.GetUID() {
		t.Error("the Secret is that of the first pod")
	}
	if !l.accepted(tokenOf(t, second, "keys-"), "vault").Authenticated || l.accepted(tokenOf(t, first, "keys-"), "vault").Authenticated {
		t.Error("the tokens of the second pod should be accepted, those of the first not any more")
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}
