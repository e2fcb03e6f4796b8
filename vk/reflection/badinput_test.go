// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// TestQuotaOfTheProvider checks that an object that exceeds the provider's quota is reported, with the field and the
// remedy, and is reflected as soon as the quota allows it.
func TestQuotaOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {count/secrets: "0"}}}`)
	l.Present(l.Remote, "ResourceQuota", l.RemoteNS, "none", reflectiontest.Field("status.hard/count/secrets", "0"))
	l.Start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {a: b}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}`)
	l.Event(l.Namespace, "Secret", "password", "Warning", "FailedReflection", "exceeded quota", "count/secrets", "raise the quota", l.ID)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings")
	l.Remote.PatchYAML(t, "ResourceQuota", l.RemoteNS, "none", `{spec: {hard: {count/secrets: "5"}}}`)
	l.Present(l.Remote, "Secret", l.RemoteNS, "password")
}

// TestObjectsThatAreTooLarge checks that an object that is too large for the provider is reported, and is reflected
// when it has become smaller. Two limits are tested: the limit on the size of annotations, because reflection adds
// annotations, and the limit of the storage, with a pod that a plugin has enlarged.
func TestObjectsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ConfigMapKind)
	})
	// The storage rejects the two objects in different ways.
	ballast := map[string]int{"heavy": 7 << 18, "heavier": 5 << 19}
	l.Chains.Swap(reflection.PodKind, host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		if slim, _ := doc.At("metadata.annotations.slim"); slim.Exists() {
			return &host.Outcome{}, nil
		}
		name, _ := doc.View().Field("metadata").Field("name").Text()
		return &host.Outcome{}, doc.SetString("spec.ballast", strings.Repeat("x", ballast[name]))
	})
	l.Start()
	const most = 256 << 10 // maximum size of all annotations, in bytes
	note := strings.Repeat("x", most-len("note"))
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: wordy, annotations: {note: %s}}}`, note))
	for name := range ballast {
		l.Pod(name)
	}
	l.Event(l.Namespace, "ConfigMap", "wordy", "Warning", "FailedReflection", "metadata.annotations", "Too long", "make the object smaller")
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "wordy", `{metadata: {annotations: {note: short}}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "wordy", reflectiontest.Field("metadata.annotations/note", "short"))
	for name := range ballast {
		l.Event(l.Namespace, "Pod", name, "Warning", "FailedReflection", "ShadowPod "+l.RemoteNS+"/"+name, "large", "make the object smaller")
		l.Local.PatchYAML(t, "Pod", l.Namespace, name, `{metadata: {annotations: {slim: "yes"}}}`)
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, name, reflectiontest.Field("spec.pod.ballast", ""))
	}
}

// TestTerminatingRemoteNamespace checks that users are notified if a remote namespace stays terminating, and that
// objects are reflected when their namespace is offloaded again.
func TestTerminatingRemoteNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	other := l.AnotherNamespace()
	// The permissions are also granted by a role of the test, because the RoleBinding in the remote namespace may
	// already be deleted when the local change arrives.
	l.Allow("", "configmaps")
	l.Start()
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}`)
	l.Remote.Delete(t, "Namespace", "", l.RemoteNS)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {a: b}}`)
	l.Event(l.Namespace, "ConfigMap", "late", "Warning", "FailedReflection", l.RemoteNS, "is being terminated", "offload the namespace again")
	l.MapNamespaces(map[string]string{l.Namespace: other})
	l.Present(l.Remote, "ConfigMap", other, "late")
	l.Remote.PatchYAML(t, "ConfigMap", l.RemoteNS, "held", `{metadata: {finalizers: null}}`)
}

// TestAnnotationsInTheWrongCase checks that an annotation whose name has the wrong case has no effect and causes a
// warning.
func TestAnnotationsInTheWrongCase(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.ConfigMapKind, reflection.SecretKind, reflection.PodKind)
	})
	l.Start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: password, annotations: {liqo.io/Skip-Reflection: "true"}}, stringData: {a: b}}`)
	l.Event(l.Namespace, "Secret", "password", "Warning", "InvalidObject", "unknown annotation liqo.io/Skip-Reflection", "did you mean liqo.io/skip-reflection?")
	l.Present(l.Remote, "Secret", l.RemoteNS, "password")
	l.Local.PatchYAML(t, "Secret", l.Namespace, "password", `{metadata: {annotations: {liqo.io/Skip-Reflection: null, liqo.io/skip-reflection: "TRUE"}}}`)
	l.Absent(l.Remote, "Secret", l.RemoteNS, "password")
	l.userPod("web", "", "liqo.io/anti-affinity-Preset: soft")
	l.Event(l.Namespace, "Pod", "web", "Warning", "InvalidObject", "did you mean liqo.io/anti-affinity-preset?")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Settled()
	if told := l.Events(l.Namespace, "Pod", "web"); len(told) != 1 {
		t.Errorf("one mistake made the Events %q", told)
	}
}
