// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/token"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestTokensSwitchedOff checks that no tokens are requested if support for the API server is disabled. Existing
// Secrets with tokens must be deleted, and Secrets of other clients must stay.
func TestTokensSwitchedOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.Start()
	l.userPod("web", vaultToken)
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token")
	l.Settled()
	l.Stop()
	labels := l.Owned() + ", offloading.liqo.io/nodename: other, offloading.liqo.io/service-account-name: default"
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: Secret, metadata: {name: user-token}, stringData: {a: b}}`)
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: other-token, labels: {%s}}, stringData: {a: b}}`, labels))
	l.Options.APIServerSupport = reflection.SupportDisabled
	before := l.tokenRequests()
	l.Start()
	l.Absent(l.Remote, "Secret", l.RemoteNS, "web-token")
	l.Event(l.Namespace, "Pod", "web", "Normal ReflectionDisabled", "--enable-apiserver-support")
	l.userPod("bare", vaultToken)
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "bare")
	l.Settled()
	if access.MountsSecret(raw.Nested(shadow.Object, "spec", "pod", "volumes"), "bare-token") || l.Remote.Get(t, "Secret", l.RemoteNS, "bare-token") != nil {
		t.Error("a pod has a token, or waits for one")
	}
	if n := l.tokenRequests(); n != before {
		t.Errorf("%d tokens were requested", n-before)
	}
	for _, name := range []string{"user-token", "other-token"} {
		if l.Remote.Get(t, "Secret", l.RemoteNS, name) == nil {
			t.Errorf("Secret %s, which has another owner, is gone", name)
		}
	}

	// When support is enabled again, pods that were offloaded without tokens must still not use tokens.
	l.Stop()
	l.Options.APIServerSupport = reflection.SupportTokenAPI
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token")
	l.Settled()
	if l.Remote.Get(t, "Secret", l.RemoteNS, "bare-token") != nil {
		t.Error("the provider has tokens of a pod that does not mount them")
	}
}

// TestAnnotationsDecideAboutTokens checks that an annotation of a pod determines whether the pod gets tokens, even if
// the annotation changes later. For a pod that a plugin skips, no tokens may exist on the provider.
func TestAnnotationsDecideAboutTokens(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	registry := l.Options.Registry
	l.Options.Registry = skips{registry, "stays"}
	l.Start()
	for _, mode := range []string{"disabled", "remote"} {
		l.userPod(mode, vaultToken, wire.APIServerSupportAnnotation+": "+mode)
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, mode)
	}
	l.userPod("stays", vaultToken)
	l.Present(l.Local, "Pod", l.Namespace, "stays", reflectiontest.Field("status.reason", wire.OffloadingBackOffReason))
	l.userPod("odd", vaultToken, wire.APIServerSupportAnnotation+": Disabled")
	l.Present(l.Remote, "Secret", l.RemoteNS, "odd-token")
	l.Event(l.Namespace, "Pod", "odd", "PluginWarning", wire.APIServerSupportAnnotation)
	l.Settled()
	for _, name := range []string{"disabled", "remote", "stays"} {
		if l.Remote.Get(t, "Secret", l.RemoteNS, name+"-token") != nil {
			t.Errorf("the tokens of pod %s are on the provider", name)
		}
	}
	if n := l.tokenRequests(); n != 2 {
		t.Errorf("%d tokens were requested, want those of one pod", n)
	}
	l.Local.PatchYAML(t, "Pod", l.Namespace, "odd", "{metadata: {annotations: {"+wire.APIServerSupportAnnotation+": disabled}}}")
	l.Absent(l.Remote, "Secret", l.RemoteNS, "odd-token")
	l.Event(l.Namespace, "Pod", "odd", "Normal ReflectionDisabled", "removed the service account tokens", "annotation "+wire.APIServerSupportAnnotation+" is disabled")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "odd", "{metadata: {annotations: {"+wire.APIServerSupportAnnotation+": null}}}")
	l.Present(l.Remote, "Secret", l.RemoteNS, "odd-token")
	l.keysAgree("odd")

	// A pod that has ended needs no tokens, so its Secret must be deleted.
	l.Local.PatchYAML(t, "Pod", l.Namespace, "odd", "{status: {phase: Succeeded}}", "status")
	l.Absent(l.Remote, "Secret", l.RemoteNS, "odd-token")
}

// skips is a chain that skips one pod.
type skips struct {
	reflection.Chains
	name string
}

func (s skips) Run(ctx context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error) {
	if name, _ := doc.Root().View().Field("metadata").Field("name").Value().(string); kind == reflection.PodKind && name == s.name {
		return &host.Outcome{Skipped: true, Skipper: "test", SkipReason: "it stays"}, nil
	}
	return s.Chains.Run(ctx, kind, hook, doc, env)
}

// TestTokensMeetAUsersSecret checks that a user's Secret with the name of the Secret for tokens is not changed. The
// pod must get an Event, and must get its tokens when the user's Secret is deleted. A user's Secret that is created
// later must not overwrite the tokens either.
func TestTokensMeetAUsersSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.SecretKind, reflection.ServiceAccountKind)
	})
	l.Start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: web-token}, stringData: {mine: secret}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token")
	l.userPod("web", vaultToken)
	l.Event(l.Namespace, "Pod", "web", "Warning FailedSATokensReflection x1", "Secret "+l.RemoteNS+"/web-token already exists", wire.SkipReflectionAnnotation, wire.APIServerSupportAnnotation)
	l.Settled()
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", reflectiontest.Field("data.mine", base64.StdEncoding.EncodeToString([]byte("secret"))), reflectiontest.Field("metadata.labels/"+wire.ServiceAccountNameLabel, ""))
	l.Local.PatchYAML(t, "Secret", l.Namespace, "web-token", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: ""}}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", reflectiontest.Field("metadata.labels/"+wire.ServiceAccountNameLabel, "default"), reflectiontest.Field("data.mine", ""))
	l.keysAgree("web")
	if n := l.tokenRequests(); n != 2 {
		t.Errorf("%d tokens were requested, want 2: those that could not be written were still good", n)
	}

	l.Local.PatchYAML(t, "Secret", l.Namespace, "web-token", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: null}}}`)
	l.Event(l.Namespace, "Secret", "web-token", "Warning FailedReflection", "for another object of this cluster")
	l.keysAgree("web")
}

// TestTokensAreDenied checks that a denied request for tokens is retried, and that an Event on the pod reports the
// cause.
func TestTokensAreDenied(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.Start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {serviceAccountName: robot, nodeName: %s, containers: [{name: web, image: "web:1"}]}}`, l.Node)
	l.Stop()
	l.Local.Create(t, l.Namespace, pod)
	l.Local.Delete(t, "ServiceAccount", l.Namespace, "robot")
	l.Start()
	l.Event(l.Namespace, "Pod", "web", "Warning FailedSATokensReflection x1", "requesting a token of service account robot", "create it, or")
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", reflectiontest.Field("metadata.labels/"+wire.ServiceAccountNameLabel, "robot"))
	l.keysAgree("web")

	// Only the permission to request tokens is removed. All other permissions of the role stay.
	bindings := l.Local.Core.RbacV1().RoleBindings(l.Namespace)
	all := reflectiontest.Must(bindings.List(t.Context(), metav1.ListOptions{}))(t)
	for _, binding := range all.Items {
		require.NoError(t, bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
	}
	l.Eventually(func() error { // The authorizer takes a moment to read the change.
		name := fmt.Sprintf("late-%d", len(reflectiontest.Must(l.Local.Core.CoreV1().Pods(l.Namespace).List(t.Context(), metav1.ListOptions{}))(t).Items))
		l.userPod(name, vaultToken)
		l.Settled()
		if l.Remote.Get(t, "Secret", l.RemoteNS, name+"-token") != nil {
			return fmt.Errorf("pod %s has its tokens", name)
		}
		l.Event(l.Namespace, "Pod", name, "Warning FailedSATokensReflection", "forbidden", "allow the virtual kubelet to create serviceaccounts/token in namespace "+l.Namespace)
		return nil
	})
	l.Grant()
	for _, item := range reflectiontest.Must(l.Local.Core.CoreV1().Pods(l.Namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		l.Present(l.Remote, "Secret", l.RemoteNS, item.Name+"-token")
	}
}

// TestTokensAreRepaired checks that tokens that are missing from the Secret, or differ from those that were written,
// are replaced, and that tokens that Liqo has written are kept.
func TestTokensAreRepaired(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.Start()
	l.userPod("web", vaultToken)
	secret := l.Present(l.Remote, "Secret", l.RemoteNS, "web-token")
	l.Settled()
	for key := range secret.Object["data"].(map[string]any) {
		for _, change := range []string{"null", "Z2FyYmFnZQ=="} {
			l.Remote.PatchYAML(t, "Secret", l.RemoteNS, "web-token", fmt.Sprintf("{data: {%s: %s}}", key, change))
			l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", func(o *unstructured.Unstructured) error {
				if text, _, _ := unstructured.NestedString(o.Object, "data", key); len(text) < 100 {
					return fmt.Errorf("%s is %q", key, text)
				}
				return nil
			})
			l.keysAgree("web")
		}
	}
	l.Settled()
	requests, before := l.tokenRequests(), l.Remote.Get(t, "Secret", l.RemoteNS, "web-token")
	l.Stop()
	l.Remote.PatchYAML(t, "Secret", l.RemoteNS, "web-token", "{metadata: {annotations: {"+token.TokensAnnotation+": null, "+copies.AppliedHashAnnotation+": null}}}")
	l.Start()
	after := l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", func(o *unstructured.Unstructured) error {
		if raw.Annotations(o.Object)[token.TokensAnnotation] == nil {
			return fmt.Errorf("it is not ours yet")
		}
		return nil
	})
	for _, volume := range []string{"keys-", "kube-api-access-"} {
		if tokenOf(t, before, volume) != tokenOf(t, after, volume) {
			t.Errorf("the token of %s was replaced", volume)
		}
	}
	if n := l.tokenRequests(); n != requests {
		t.Errorf("%d tokens were requested though all are good", n-requests)
	}
}

// TestTokensOfALongName checks that a pod whose name is too long to name the Secret for its tokens gets an Event with
// the remedy.
func TestTokensOfALongName(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.Start()
	name := strings.Repeat("long-", 49) + "name"
	l.userPod(name, vaultToken)
	l.Event(l.Namespace, "Pod", name, "Warning", "too long for its tokens", "shorten it", wire.APIServerSupportAnnotation)
	l.Settled()
	if n := l.tokenRequests(); n > 0 {
		t.Errorf("%d tokens were requested", n)
	}
}
