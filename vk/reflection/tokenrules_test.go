// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/token"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Without support for the API server no token is requested. Those that were there go; what others made stays.
func TestTokensSwitchedOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.start()
	l.userPod("web", vaultToken)
	l.present(l.remote, "Secret", l.remoteNS, "web-token")
	l.settled()
	l.stop()
	labels := l.owned() + ", offloading.liqo.io/nodename: other, offloading.liqo.io/service-account-name: default"
	l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: Secret, metadata: {name: user-token}, stringData: {a: b}}`)
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: other-token, labels: {%s}}, stringData: {a: b}}`, labels))
	l.options.APIServerSupport = SupportDisabled
	before := l.tokenRequests()
	l.start()
	l.absent(l.remote, "Secret", l.remoteNS, "web-token")
	l.event(l.namespace, "Pod", "web", "Normal ReflectionDisabled", "--enable-apiserver-support")
	l.userPod("bare", vaultToken)
	shadow := l.present(l.remote, "ShadowPod", l.remoteNS, "bare")
	l.settled()
	if access.MountsSecret(raw.Nested(shadow.Object, "spec", "pod", "volumes"), "bare-token") || l.remote.get(t, "Secret", l.remoteNS, "bare-token") != nil {
		t.Error("a pod has a token, or waits for one")
	}
	if n := l.tokenRequests(); n != before {
		t.Errorf("%d tokens were requested", n-before)
	}
	for _, name := range []string{"user-token", "other-token"} {
		if l.remote.get(t, "Secret", l.remoteNS, name) == nil {
			t.Errorf("Secret %s, which is somebody else's, is gone", name)
		}
	}

	// Switched on again: pods that were offloaded without tokens have no use for them.
	l.stop()
	l.options.APIServerSupport = SupportTokenAPI
	l.start()
	l.present(l.remote, "Secret", l.remoteNS, "web-token")
	l.settled()
	if l.remote.get(t, "Secret", l.remoteNS, "bare-token") != nil {
		t.Error("the provider has tokens of a pod that does not mount them")
	}
}

// The annotation of a pod decides for it, also later; a plugin that keeps it at home keeps its tokens there.
func TestAnnotationsDecideAboutTokens(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	registry := l.options.Registry
	l.options.Registry = skips{registry, "stays"}
	l.start()
	for _, mode := range []string{"disabled", "remote"} {
		l.userPod(mode, vaultToken, wire.APIServerSupportAnnotation+": "+mode)
		l.present(l.remote, "ShadowPod", l.remoteNS, mode)
	}
	l.userPod("stays", vaultToken)
	l.present(l.local, "Pod", l.namespace, "stays", field("status.reason", wire.OffloadingBackOffReason))
	l.userPod("odd", vaultToken, wire.APIServerSupportAnnotation+": Disabled")
	l.present(l.remote, "Secret", l.remoteNS, "odd-token")
	l.event(l.namespace, "Pod", "odd", "PluginWarning", wire.APIServerSupportAnnotation)
	l.settled()
	for _, name := range []string{"disabled", "remote", "stays"} {
		if l.remote.get(t, "Secret", l.remoteNS, name+"-token") != nil {
			t.Errorf("the tokens of pod %s are on the provider", name)
		}
	}
	if n := l.tokenRequests(); n != 2 {
		t.Errorf("%d tokens were requested, want those of one pod", n)
	}
	l.local.patchYAML(t, "Pod", l.namespace, "odd", "{metadata: {annotations: {"+wire.APIServerSupportAnnotation+": disabled}}}")
	l.absent(l.remote, "Secret", l.remoteNS, "odd-token")
	l.event(l.namespace, "Pod", "odd", "Normal ReflectionDisabled", "taken back", "annotation "+wire.APIServerSupportAnnotation+" is disabled")
	l.local.patchYAML(t, "Pod", l.namespace, "odd", "{metadata: {annotations: {"+wire.APIServerSupportAnnotation+": null}}}")
	l.present(l.remote, "Secret", l.remoteNS, "odd-token")
	l.keysAgree("odd")

	// A pod that is over needs no tokens any more.
	l.local.patchYAML(t, "Pod", l.namespace, "odd", "{status: {phase: Succeeded}}", "status")
	l.absent(l.remote, "Secret", l.remoteNS, "odd-token")
}

// skips keeps one pod at home.
type skips struct {
	Chains
	name string
}

func (s skips) Run(ctx context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error) {
	if name, _ := doc.Root().View().Field("metadata").Field("name").Value().(string); kind == PodKind && name == s.name {
		return &host.Outcome{Skipped: true, Skipper: "test", SkipReason: "it stays"}, nil
	}
	return s.Chains.Run(ctx, kind, hook, doc, env)
}

// A Secret of the user's in the place of the tokens is left alone; the pod is told, and gets its tokens when it is gone. Nor
// are tokens overwritten by a Secret that comes later.
func TestTokensMeetAUsersSecret(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *Options) { o.Kinds = kinds(PodKind, SecretKind, ServiceAccountKind) })
	l.start()
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: web-token}, stringData: {mine: secret}}`)
	l.present(l.remote, "Secret", l.remoteNS, "web-token")
	l.userPod("web", vaultToken)
	l.event(l.namespace, "Pod", "web", "Warning FailedSATokensReflection x1", "secrets "+l.remoteNS+"/web-token exists", wire.SkipReflectionAnnotation, wire.APIServerSupportAnnotation)
	l.settled()
	l.present(l.remote, "Secret", l.remoteNS, "web-token", field("data.mine", base64.StdEncoding.EncodeToString([]byte("secret"))), field("metadata.labels/"+wire.ServiceAccountNameLabel, ""))
	l.local.patchYAML(t, "Secret", l.namespace, "web-token", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: ""}}}`)
	l.present(l.remote, "Secret", l.remoteNS, "web-token", field("metadata.labels/"+wire.ServiceAccountNameLabel, "default"), field("data.mine", ""))
	l.keysAgree("web")
	if n := l.tokenRequests(); n != 2 {
		t.Errorf("%d tokens were requested, want 2: those that could not be written were still good", n)
	}

	l.local.patchYAML(t, "Secret", l.namespace, "web-token", "{metadata: {annotations: {"+wire.SkipReflectionAnnotation+`: null}}}`)
	l.event(l.namespace, "Secret", "web-token", "Warning FailedReflection", "was not made by this virtual node")
	l.keysAgree("web")
}

// Tokens that are denied are asked for again, and the pod is told what is missing.
func TestTokensAreDenied(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.start()
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {serviceAccountName: robot, nodeName: %s, containers: [{name: web, image: "web:1"}]}}`, l.node)
	l.stop()
	l.local.create(t, l.namespace, pod)
	l.local.delete(t, "ServiceAccount", l.namespace, "robot")
	l.start()
	l.event(l.namespace, "Pod", "web", "Warning FailedSATokensReflection x1", "requesting a token of service account robot", "create it, or")
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}`)
	l.present(l.remote, "Secret", l.remoteNS, "web-token", field("metadata.labels/"+wire.ServiceAccountNameLabel, "robot"))
	l.keysAgree("web")

	// Without the permission; everything else that the role allows goes on.
	bindings := l.local.core.RbacV1().RoleBindings(l.namespace)
	all := must(bindings.List(t.Context(), metav1.ListOptions{}))(t)
	for _, binding := range all.Items {
		if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.eventually(func() error { // until the authorizer has heard of it
		name := fmt.Sprintf("late-%d", len(must(l.local.core.CoreV1().Pods(l.namespace).List(t.Context(), metav1.ListOptions{}))(t).Items))
		l.userPod(name, vaultToken)
		l.settled()
		if l.remote.get(t, "Secret", l.remoteNS, name+"-token") != nil {
			return fmt.Errorf("pod %s has its tokens", name)
		}
		l.event(l.namespace, "Pod", name, "Warning FailedSATokensReflection", "forbidden", "let the virtual kubelet create serviceaccounts/token in namespace "+l.namespace)
		return nil
	})
	l.grant()
	for _, item := range must(l.local.core.CoreV1().Pods(l.namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		l.present(l.remote, "Secret", l.remoteNS, item.Name+"-token")
	}
}

// What is missing from the Secret, or is not what was written, is made good; what Liqo wrote is gone on with.
func TestTokensAreRepaired(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.start()
	l.userPod("web", vaultToken)
	secret := l.present(l.remote, "Secret", l.remoteNS, "web-token")
	l.settled()
	for key := range secret.Object["data"].(map[string]any) {
		for _, change := range []string{"null", "Z2FyYmFnZQ=="} {
			l.remote.patchYAML(t, "Secret", l.remoteNS, "web-token", fmt.Sprintf("{data: {%s: %s}}", key, change))
			l.present(l.remote, "Secret", l.remoteNS, "web-token", func(o *unstructured.Unstructured) error {
				if text, _, _ := unstructured.NestedString(o.Object, "data", key); len(text) < 100 {
					return fmt.Errorf("%s is %q", key, text)
				}
				return nil
			})
			l.keysAgree("web")
		}
	}
	l.settled()
	requests, before := l.tokenRequests(), l.remote.get(t, "Secret", l.remoteNS, "web-token")
	l.stop()
	l.remote.patchYAML(t, "Secret", l.remoteNS, "web-token", "{metadata: {annotations: {"+token.TokensAnnotation+": null, "+engine.AppliedHashAnnotation+": null}}}")
	l.start()
	after := l.present(l.remote, "Secret", l.remoteNS, "web-token", func(o *unstructured.Unstructured) error {
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

// Pods whose name is too long for their tokens are told so, and what to do.
func TestTokensOfALongName(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t))
	l.start()
	name := strings.Repeat("long-", 49) + "name"
	l.userPod(name, vaultToken)
	l.event(l.namespace, "Pod", name, "Warning", "too long for its tokens", "shorten it", wire.APIServerSupportAnnotation)
	l.settled()
	if n := l.tokenRequests(); n > 0 {
		t.Errorf("%d tokens were requested", n)
	}
}
