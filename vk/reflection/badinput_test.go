// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"
	"testing"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// What the provider has no room for is told with the field and the remedy, and crosses when there is.
func TestQuotaOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {count/secrets: "0"}}}`)
	l.present(l.remote, "ResourceQuota", l.remoteNS, "none", field("status.hard/count/secrets", "0"))
	l.start()
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {a: b}}`)
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}`)
	l.event(l.namespace, "Secret", "password", "Warning", "FailedReflection", "exceeded quota", "count/secrets", "raise its quota", l.id)
	l.present(l.remote, "ConfigMap", l.remoteNS, "settings")
	l.remote.patchYAML(t, "ResourceQuota", l.remoteNS, "none", `{spec: {hard: {count/secrets: "5"}}}`)
	l.present(l.remote, "Secret", l.remoteNS, "password")
}

// What is too large there is told, and crosses when it is smaller: for annotations, of which reflection adds some, and for the
// store, which has no room for what a plugin has made of a pod.
func TestObjectsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.Kinds = kinds(PodKind, ConfigMapKind) })
	ballast := map[string]int{"heavy": 7 << 18, "heavier": 5 << 19} // the store refuses them in two ways
	l.chains.swap(PodKind, host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		if slim, _ := doc.At("metadata.annotations.slim"); slim.Exists() {
			return &host.Outcome{}, nil
		}
		name, _ := doc.View().Field("metadata").Field("name").Text()
		return &host.Outcome{}, doc.SetString("spec.ballast", strings.Repeat("x", ballast[name]))
	})
	l.start()
	const most = 256 << 10 // bytes of annotations
	note := strings.Repeat("x", most-len("note"))
	l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: wordy, annotations: {note: %s}}}`, note))
	for name := range ballast {
		l.pod(name)
	}
	l.event(l.namespace, "ConfigMap", "wordy", "Warning", "FailedReflection", "metadata.annotations", "Too long", "make the object smaller")
	l.local.patchYAML(t, "ConfigMap", l.namespace, "wordy", `{metadata: {annotations: {note: short}}}`)
	l.present(l.remote, "ConfigMap", l.remoteNS, "wordy", field("metadata.annotations/note", "short"))
	for name := range ballast {
		l.event(l.namespace, "Pod", name, "Warning", "FailedReflection", "shadowpods "+l.remoteNS+"/"+name, "large", "make the object smaller")
		l.local.patchYAML(t, "Pod", l.namespace, name, `{metadata: {annotations: {slim: "yes"}}}`)
		l.present(l.remote, "ShadowPod", l.remoteNS, name, field("spec.pod.ballast", ""))
	}
}

// A namespace that is being deleted there takes nothing in: users are told when that lasts, and objects cross when theirs is
// extended again.
func TestTerminatingRemoteNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	other := l.anotherNamespace()
	l.start()
	l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}`)
	l.remote.delete(t, "Namespace", "", l.remoteNS)
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {a: b}}`)
	l.event(l.namespace, "ConfigMap", "late", "Warning", "FailedReflection", l.remoteNS, "is being terminated", "offload this one again")
	l.mapNamespaces(map[string]string{l.namespace: other})
	l.present(l.remote, "ConfigMap", other, "late")
	l.remote.patchYAML(t, "ConfigMap", l.remoteNS, "held", `{metadata: {finalizers: null}}`)
}

// An annotation whose name is in the wrong case says nothing; that is told, so that nobody relies on it.
func TestAnnotationsInTheWrongCase(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t), func(o *Options) { o.Kinds = kinds(ConfigMapKind, SecretKind, PodKind) })
	l.start()
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: password, annotations: {liqo.io/Skip-Reflection: "true"}}, stringData: {a: b}}`)
	l.event(l.namespace, "Secret", "password", "Warning", "InvalidObject", "liqo.io/Skip-Reflection has no effect", "its name is liqo.io/skip-reflection")
	l.present(l.remote, "Secret", l.remoteNS, "password")
	l.local.patchYAML(t, "Secret", l.namespace, "password", `{metadata: {annotations: {liqo.io/Skip-Reflection: null, liqo.io/skip-reflection: "TRUE"}}}`)
	l.absent(l.remote, "Secret", l.remoteNS, "password")
	l.userPod("web", "", "liqo.io/anti-affinity-Preset: soft")
	l.event(l.namespace, "Pod", "web", "Warning", "InvalidObject", "its name is liqo.io/anti-affinity-preset")
	l.present(l.remote, "ShadowPod", l.remoteNS, "web")
	l.settled()
	if told := l.events(l.namespace, "Pod", "web"); len(told) != 1 {
		t.Errorf("one mistake made the Events %q", told)
	}
}
