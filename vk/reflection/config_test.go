// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

func configuration(t *testing.T) func(*reflection.Options) {
	defaults := reflectiontest.WithDefaultPlugins(t)
	return func(o *reflection.Options) {
		defaults(o)
		o.Kinds = reflectiontest.Kinds(reflection.ConfigMapKind, reflection.SecretKind)
	}
}

// TestConfigMapsAndSecretsCross checks that an object causes one write when it is created, one write for every
// change, and no write at a restart. The copy must be deleted together with the object.
func TestConfigMapsAndSecretsCross(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {app: shop}}, data: {mode: fast}, binaryData: {key: AAEC}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: password}, type: kubernetes.io/basic-auth, stringData: {username: a, password: b}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: fixed}, immutable: true, stringData: {a: b}}`)
	l.Start()
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings", reflectiontest.Field("data.mode", "fast"), reflectiontest.Field("binaryData.key", "AAEC"), reflectiontest.Field("metadata.labels/app", "shop"))
	l.Present(l.Remote, "Secret", l.RemoteNS, "password", reflectiontest.Field("type", "kubernetes.io/basic-auth"), reflectiontest.Field("data.username", "YQ=="))
	l.Present(l.Remote, "Secret", l.RemoteNS, "fixed", reflectiontest.Field("immutable", "true"))
	l.Settled()
	if made := l.Remote.Writes(t); len(made) != 4 { // one of the four writes is for the ConfigMap with the root CA
		t.Errorf("three objects and the root CA took the writes %q", made)
	}
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "settings", `{data: {mode: slow}, binaryData: null}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings", reflectiontest.Field("data.mode", "slow"), reflectiontest.Field("binaryData", ""))
	l.Settled()
	if made := l.Remote.Writes(t); len(made) != 5 {
		t.Errorf("one change took the writes %q", made[4:])
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.Delete(t, "Secret", l.Namespace, "password")
	l.Absent(l.Remote, "Secret", l.RemoteNS, "password")
}

// TestRootCACrosses checks that the consumer's root CA is reflected under another name regardless of the policy,
// unless an annotation of its ConfigMap excludes it.
func TestRootCACrosses(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t), func(o *reflection.Options) {
		o.Policies = map[string]reflection.Policy{reflection.ConfigMapKind: reflection.AllowList, reflection.SecretKind: reflection.AllowList}
	})
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {a: b}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: allowed, annotations: {liqo.io/allow-reflection: ""}}, data: {a: b}}`)
	l.Start()
	own := l.Present(l.Local, "ConfigMap", l.Namespace, wire.RootCAConfigMap)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, wire.RemoteRootCAConfigMap("rome"), reflectiontest.Field("data.ca.crt", ""))
	there := l.Remote.Get(t, "ConfigMap", l.RemoteNS, wire.RemoteRootCAConfigMap("rome"))
	if got, want := there.Object["data"].(map[string]any)["ca.crt"], own.Object["data"].(map[string]any)["ca.crt"]; got != want {
		t.Errorf("the root CA there is %.40q, want %.40q", got, want)
	}
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "allowed")
	l.Settled()
	if l.Remote.Get(t, "ConfigMap", l.RemoteNS, "other") != nil {
		t.Error("a ConfigMap crossed that was not allowed to")
	}
	if provider := l.Remote.Get(t, "ConfigMap", l.RemoteNS, wire.RootCAConfigMap); provider != nil && raw.Labels(provider.Object)[wire.OriginLabel] != nil {
		t.Error("the provider's own root CA was taken over")
	}
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, wire.RootCAConfigMap, `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.Absent(l.Remote, "ConfigMap", l.RemoteNS, wire.RemoteRootCAConfigMap("rome"))
}

// TestServiceAccountTokensStay checks that a service account token is not reflected, and that a copy is deleted when
// its object becomes such a token.
func TestServiceAccountTokensStay(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	reflectiontest.Must(l.Local.Core.CoreV1().ServiceAccounts(l.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))(t)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: token}, type: Opaque, stringData: {a: b}}`)
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "token")
	l.Local.Delete(t, "Secret", l.Namespace, "token")
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: token, annotations: {kubernetes.io/service-account.name: robot}}, type: kubernetes.io/service-account-token}`)
	l.Absent(l.Remote, "Secret", l.RemoteNS, "token")
	l.Present(l.Local, "Secret", l.Namespace, "token", func(o *unstructured.Unstructured) error {
		if data, _ := o.Object["data"].(map[string]any); data["token"] == nil {
			return errors.New("there is no token in it yet")
		}
		return nil
	})
	l.Settled()
	if l.Remote.Get(t, "Secret", l.RemoteNS, "token") != nil {
		t.Error("the token leaked")
	}
}

// TestImmutableConfigurationIsMadeAgain checks that an immutable copy is recreated if its object was deleted and
// recreated with other content between two evaluations.
func TestImmutableConfigurationIsMadeAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	immutable := func(value string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {value: %q}}`, value)
	}
	l.Local.Create(t, l.Namespace, immutable("one"))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: typed}, type: Opaque, stringData: {a: b}}`)
	l.Start()
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "fixed", reflectiontest.Field("data.value", "one"))
	l.Present(l.Remote, "Secret", l.RemoteNS, "typed")
	l.Settled()
	l.Stop()
	l.Local.Delete(t, "ConfigMap", l.Namespace, "fixed")
	l.Local.Create(t, l.Namespace, immutable("two"))
	l.Local.Delete(t, "Secret", l.Namespace, "typed")
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: typed}, type: example.com/other, stringData: {a: b}}`)
	l.Start()
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "fixed", reflectiontest.Field("data.value", "two"))
	l.Present(l.Remote, "Secret", l.RemoteNS, "typed", reflectiontest.Field("type", "example.com/other"))
}

// TestRefusedObjectKeepsItsCopy checks that the copy is kept, and an Event contains the reason, if an object is
// recreated with content that the provider rejects for a reason other than immutability.
func TestRefusedObjectKeepsItsCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.Kinds = reflectiontest.Kinds(reflection.ServiceKind) })
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Start()
	copied := l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Settled()
	l.Stop()
	l.Local.Delete(t, "Service", l.Namespace, "web")
	l.Local.Create(t, l.Namespace, service("web", ""))
	// The plugin makes the object invalid for every API server.
	l.Chains.Swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if err := doc.SetString("spec.sessionAffinity", "Sometimes"); err != nil {
			return nil, err
		}
		return reflectiontest.MutateService(doc, env)
	})
	l.Start()
	l.Event(l.Namespace, "Service", "web", "Warning", "FailedReflection", "sessionAffinity")
	if there := l.Remote.Get(t, "Service", l.RemoteNS, "web"); there == nil || there.GetUID() != copied.GetUID() {
		t.Error("the copy that worked is gone")
	}
}

// TestContentOfSecretsIsNotKept checks that the content of Secrets, and of copies that are compared by a hash, is not
// cached, and that changes on either side are still reconciled.
func TestContentOfSecretsIsNotKept(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {mode: fast}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}, data: {mode: fast}}`)
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "keys", reflectiontest.Field("data.mode", "ZmFzdA=="))
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "plain", reflectiontest.Field("data.mode", "fast"))
	l.Settled()
	secrets, plain := l.Manager.Scope(reflection.SecretKind, l.Namespace), l.Manager.Scope(reflection.ConfigMapKind, l.Namespace)
	for what, object := range map[string]*unstructured.Unstructured{
		"the Secret": secrets.Object(secrets.Key("keys")), "its copy": secrets.CachedCopy("keys"), "the copy of the ConfigMap": plain.CachedCopy("plain"),
	} {
		if object == nil || object.Object["data"] != nil {
			t.Errorf("%s is kept as %v", what, object)
		}
	}
	l.Quiet("comparing them", func() {
		l.Manager.EnqueueAll(reflection.SecretKind)
		l.Manager.EnqueueAll(reflection.ConfigMapKind)
	})
	l.Remote.PatchYAML(t, "Secret", l.RemoteNS, "keys", `{data: {mode: c2xvdw==}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "keys", reflectiontest.Field("data.mode", "ZmFzdA=="))
	l.Local.PatchYAML(t, "Secret", l.Namespace, "keys", `{data: {mode: c2xvdw==}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "keys", reflectiontest.Field("data.mode", "c2xvdw=="))

	// A key that another client has added on the provider must stay, and must not cause repeated writes.
	l.Remote.PatchYAML(t, "ConfigMap", l.RemoteNS, "plain", `{data: {theirs: kept}}`)
	l.Settled()
	l.Quiet("comparing what somebody has added to", func() { l.Manager.EnqueueAll(reflection.ConfigMapKind) })
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "plain", reflectiontest.Field("data.mode", "fast"), reflectiontest.Field("data.theirs", "kept"))
}

// TestSecretThatWasExcludedMeanwhile checks that a Secret is read from the API server before it is mutated. If the
// version on the API server has the annotation that excludes the Secret, the Secret is not reflected, although the
// watch has not delivered this version yet.
func TestSecretThatWasExcludedMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: crosses}, stringData: {mode: fast}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: stays, annotations: {liqo.io/skip-reflection: "true"}}, stringData: {mode: fast}}`)
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "crosses")
	l.Settled()
	scope := l.Manager.Scope(reflection.SecretKind, l.Namespace)
	earlier := scope.Object(scope.Key("stays")).DeepCopy()
	earlier.SetAnnotations(nil)
	earlier.SetResourceVersion("1")
	evaluated := l.Manager.Evaluated(reflection.SecretKind)
	require.NoError(t, scope.Put(earlier, scope.CachedCopy("crosses")))
	l.Eventually(func() error {
		if l.Manager.Evaluated(reflection.SecretKind) == evaluated {
			return errors.New("the earlier state was not evaluated yet")
		}
		return nil
	})
	l.Settled()
	if l.Remote.Get(t, "Secret", l.RemoteNS, "stays") != nil {
		t.Error("the Secret crossed although it says that it must not")
	}
}

// TestConfigMapNamedAsTheCopyOfTheRootCA checks that a user's ConfigMap with the name of the root CA's copy is not
// reflected and gets an Event, whether or not the root CA is reflected. Writes for one of the two ConfigMaps must
// never undo writes for the other.
func TestConfigMapNamedAsTheCopyOfTheRootCA(t *testing.T) {
	t.Parallel()
	for name, crosses := range map[string]bool{"with the root CA": true, "without the root CA": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, configuration(t))
			reserved := wire.RemoteRootCAConfigMap("rome")
			if !crosses {
				l.Present(l.Local, "ConfigMap", l.Namespace, wire.RootCAConfigMap)
				l.Local.PatchYAML(t, "ConfigMap", l.Namespace, wire.RootCAConfigMap, `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
			}
			l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {whose: the user's}}`, reserved))
			l.Start()
			l.Event(l.Namespace, "ConfigMap", reserved, "Warning", "FailedReflection", "ConfigMap kube-root-ca.crt", "recreate it with another name")
			l.Settled()
			check := func() {
				l.Helper()
				there := l.Remote.Get(t, "ConfigMap", l.RemoteNS, reserved)
				if (there != nil) != crosses {
					l.Errorf("the copy of the root CA is there: %t, want %t", there != nil, crosses)
				}
				if there != nil && reflectiontest.Field("data.whose", "")(there) != nil {
					l.Error("the copy of the root CA has the content of the user's ConfigMap")
				}
			}
			check()
			l.Quiet("another look", func() { l.Manager.EnqueueAll(reflection.ConfigMapKind) })
			l.Quiet("the end of the user's", func() { l.Local.Delete(t, "ConfigMap", l.Namespace, reserved) })
			check()
		})
	}
}

// TestSecretMarkedAsTokensIsNotWritten checks that a Secret that looks like a Secret with pod tokens is not written
// to the provider. If it were written, the virtual kubelet would delete it as an obsolete Secret with tokens, and write
// it again.
func TestSecretMarkedAsTokensIsNotWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	crosses := func(document.Node, *host.Env) (*host.Outcome, error) { return &host.Outcome{}, nil }
	// The default plugins are not used, because the Secret plugin would skip the Secret.
	l.Options.Registry = l.Chains
	l.Chains.Swap(reflection.SecretKind, host.Outgoing, crosses)
	l.Chains.Swap(reflection.ConfigMapKind, host.Outgoing, crosses)
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: marked, labels: {%s: robot}}, stringData: {mode: fast}}`, wire.ServiceAccountNameLabel))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: plain}, stringData: {mode: fast}}`)
	l.Start()
	l.Present(l.Remote, "Secret", l.RemoteNS, "plain")
	l.Event(l.Namespace, "Secret", "marked", "Warning", "InvalidObject", "remove the label")
	if l.Remote.Get(t, "Secret", l.RemoteNS, "marked") != nil {
		t.Error("the Secret was written")
	}
}
