// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

func configuration(t *testing.T) func(*Options) {
	defaults := withDefaultPlugins(t)
	return func(o *Options) {
		defaults(o)
		o.Kinds = kinds(ConfigMapKind, SecretKind)
	}
}

// One write per object at its creation and per change, none at a restart; what goes here goes there.
func TestConfigMapsAndSecretsCross(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {app: shop}}, data: {mode: fast}, binaryData: {key: AAEC}}`)
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: password}, type: kubernetes.io/basic-auth, stringData: {username: a, password: b}}`)
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: fixed}, immutable: true, stringData: {a: b}}`)
	l.start()
	l.present(l.remote, "ConfigMap", l.remoteNS, "settings", field("data.mode", "fast"), field("binaryData.key", "AAEC"), field("metadata.labels/app", "shop"))
	l.present(l.remote, "Secret", l.remoteNS, "password", field("type", "kubernetes.io/basic-auth"), field("data.username", "YQ=="))
	l.present(l.remote, "Secret", l.remoteNS, "fixed", field("immutable", "true"))
	l.settled()
	if made := l.remote.writes(t); len(made) != 4 { // the root CA is one of them
		t.Errorf("three objects and the root CA took the writes %q", made)
	}
	l.local.patchYAML(t, "ConfigMap", l.namespace, "settings", `{data: {mode: slow}, binaryData: null}`)
	l.present(l.remote, "ConfigMap", l.remoteNS, "settings", field("data.mode", "slow"), field("binaryData", ""))
	l.settled()
	if made := l.remote.writes(t); len(made) != 5 {
		t.Errorf("one change took the writes %q", made[4:])
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.local.delete(t, "Secret", l.namespace, "password")
	l.absent(l.remote, "Secret", l.remoteNS, "password")
}

// The consumer's root CA crosses under another name whatever the policy, unless its own annotation says otherwise.
func TestRootCACrosses(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t), func(o *Options) {
		o.Policies = map[string]Policy{ConfigMapKind: AllowList, SecretKind: AllowList}
	})
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {a: b}}`)
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: allowed, annotations: {liqo.io/allow-reflection: ""}}, data: {a: b}}`)
	l.start()
	own := l.present(l.local, "ConfigMap", l.namespace, wire.RootCAConfigMap)
	l.present(l.remote, "ConfigMap", l.remoteNS, wire.RemoteRootCAConfigMap("rome"), field("data.ca.crt", ""))
	there := l.remote.get(t, "ConfigMap", l.remoteNS, wire.RemoteRootCAConfigMap("rome"))
	if got, want := there.Object["data"].(map[string]any)["ca.crt"], own.Object["data"].(map[string]any)["ca.crt"]; got != want {
		t.Errorf("the root CA there is %.40q, want %.40q", got, want)
	}
	l.present(l.remote, "ConfigMap", l.remoteNS, "allowed")
	l.settled()
	if l.remote.get(t, "ConfigMap", l.remoteNS, "other") != nil {
		t.Error("a ConfigMap crossed that was not allowed to")
	}
	if provider := l.remote.get(t, "ConfigMap", l.remoteNS, wire.RootCAConfigMap); provider != nil && raw.Labels(provider.Object)[wire.OriginLabel] != nil {
		t.Error("the provider's own root CA was taken over")
	}
	l.local.patchYAML(t, "ConfigMap", l.namespace, wire.RootCAConfigMap, `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.absent(l.remote, "ConfigMap", l.remoteNS, wire.RemoteRootCAConfigMap("rome"))
}

// A service-account token stays at home, and a copy of one that was made when it was no token goes.
func TestServiceAccountTokensStay(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	must(l.local.core.CoreV1().ServiceAccounts(l.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))(t)
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: token}, type: Opaque, stringData: {a: b}}`)
	l.start()
	l.present(l.remote, "Secret", l.remoteNS, "token")
	l.local.delete(t, "Secret", l.namespace, "token")
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: token, annotations: {kubernetes.io/service-account.name: robot}}, type: kubernetes.io/service-account-token}`)
	l.absent(l.remote, "Secret", l.remoteNS, "token")
	l.present(l.local, "Secret", l.namespace, "token", func(o *unstructured.Unstructured) error {
		if data, _ := o.Object["data"].(map[string]any); data["token"] == nil {
			return errors.New("there is no token in it yet")
		}
		return nil
	})
	l.settled()
	if l.remote.get(t, "Secret", l.remoteNS, "token") != nil {
		t.Error("the token leaked")
	}
}

// Objects that are deleted and made again at home between two looks cannot always be updated: the copy is made again, too.
func TestImmutableConfigurationIsMadeAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	immutable := func(value string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {value: %q}}`, value)
	}
	l.local.create(t, l.namespace, immutable("one"))
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: typed}, type: Opaque, stringData: {a: b}}`)
	l.start()
	l.present(l.remote, "ConfigMap", l.remoteNS, "fixed", field("data.value", "one"))
	l.present(l.remote, "Secret", l.remoteNS, "typed")
	l.settled()
	l.stop()
	l.local.delete(t, "ConfigMap", l.namespace, "fixed")
	l.local.create(t, l.namespace, immutable("two"))
	l.local.delete(t, "Secret", l.namespace, "typed")
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: typed}, type: example.com/other, stringData: {a: b}}`)
	l.start()
	l.present(l.remote, "ConfigMap", l.remoteNS, "fixed", field("data.value", "two"))
	l.present(l.remote, "Secret", l.remoteNS, "typed", field("type", "example.com/other"))
}

// An object that is recreated with content that the provider refuses for another reason keeps its copy, and says why.
func TestRefusedObjectKeepsItsCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.Kinds = kinds(ServiceKind) })
	l.local.create(t, l.namespace, service("web", ""))
	l.start()
	copied := l.present(l.remote, "Service", l.remoteNS, "web")
	l.settled()
	l.stop()
	l.local.delete(t, "Service", l.namespace, "web")
	l.local.create(t, l.namespace, service("web", ""))
	// A plugin makes it something that no API server takes.
	l.chains.swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if err := doc.SetString("spec.sessionAffinity", "Sometimes"); err != nil {
			return nil, err
		}
		return mutateService(doc, env)
	})
	l.start()
	l.event(l.namespace, "Service", "web", "Warning", "FailedReflection", "sessionAffinity")
	if there := l.remote.get(t, "Service", l.remoteNS, "web"); there == nil || there.GetUID() != copied.GetUID() {
		t.Error("the copy that worked is gone")
	}
}
