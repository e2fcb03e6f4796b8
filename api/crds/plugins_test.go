// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// declared returns a ReflectionPlugin that is valid apart from the additional fields of its spec.
func declared(name, more string) string {
	return declaredFrom(name, `{configMap: {name: a, key: b}}`, more)
}

func declaredFrom(name, source, more string) string {
	if !strings.Contains(more, "kinds:") {
		more = "kinds: [Service], " + more
	}
	return fmt.Sprintf(`{apiVersion: plugins.refract.io/v1alpha1, kind: ReflectionPlugin, metadata: {name: %s}, spec: {source: %s, %s}}`, name, source, more)
}

// refusePlugins creates invalid plugins. The API server's error must name the invalid field.
func refusePlugins(t *testing.T, c client.Client) {
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tc := range []struct{ object, says string }{
		{declared(strings.Repeat("a", 41), ""), "metadata.name: the name of a plugin has at most 40"},
		{declared("a.b", ""), "metadata.name: the name of a plugin"},
		{`{apiVersion: plugins.refract.io/v1alpha1, kind: ReflectionPlugin, metadata: {name: a}, spec: {kinds: [Service]}}`, "spec.source: Required"},
		{declaredFrom("a", `{}`, ""), "spec.source: Invalid value"},
		{declaredFrom("a", `{configMap: {name: a, key: b}, oci: {image: a}}`, ""), "set exactly one of oci, http and configMap"},
		{declaredFrom("a", `{configMap: {name: a}}`, ""), "spec.source.configMap.key: Required"},
		{declaredFrom("a", `{oci: {image: ""}}`, ""), "spec.source.oci.image in body should be at least 1"},
		{declaredFrom("a", `{oci: {image: "registry.example.com/plugins/../a:1"}}`, ""), "spec.source.oci.image: Invalid value"},
		{declaredFrom("a", `{oci: {image: "registry.example.com/./plugins/a:1"}}`, ""), "use HOST/PATH:TAG"},
		{declaredFrom("a", `{oci: {image: "registry.example.com//plugins/a:1"}}`, ""), "use HOST/PATH:TAG"},
		{declaredFrom("a", `{oci: {image: "registry.example.com:/plugins/a:1"}}`, ""), "use HOST/PATH:TAG"},
		{declaredFrom("a", `{oci: {image: "registry.example.com:0443/plugins/a:1"}}`, ""), "use HOST/PATH:TAG"},
		{declaredFrom("a", `{oci: {image: "registry.example.com/plugins/a:.."}}`, ""), "use HOST/PATH:TAG"},
		{declaredFrom("a", `{oci: {image: "ｒegistry.example.com/plugins/a:1"}}`, ""), "use HOST/PATH:TAG"},
		{declaredFrom("a", `{oci: {image: a, interval: 5s}}`, ""), "spec.source.oci.interval: Invalid value"},
		{declaredFrom("a", `{oci: {image: a, interval: often}}`, ""), "spec.source.oci.interval"},
		{declaredFrom("a", `{oci: {image: a, pullSecret: {}}}`, ""), "spec.source.oci.pullSecret.name: Required"},
		{declaredFrom("a", `{http: {url: "https://a.example.com/m.wasm"}}`, ""), "spec.source.http.sha256: Required"},
		{declaredFrom("a", `{http: {url: "https://a.example.com/m.wasm", sha256: ABC}}`, ""), "spec.source.http.sha256 in body should match"},
		{declaredFrom("a", `{http: {url: "http://a.example.com/m.wasm", sha256: "`+sum+`"}}`, ""), "spec.source.http.url: Invalid value"},
		{declaredFrom("a", `{http: {url: "m.wasm", sha256: "`+sum+`"}}`, ""), "use an https URL"},
		{declaredFrom("a", `{http: {url: "https://user:secret@a.example.com/m.wasm", sha256: "`+sum+`"}}`, ""), "remove the user name and password"},
		{declared("a", "kinds: []"), "spec.kinds in body should have at least 1"},
		{declared("a", "kinds: [pods]"), "spec.kinds[0] in body should match"},
		{declared("a", `kinds: ["Service.v1.Example"]`), "spec.kinds[0] in body should match"},
		{declared("a", "kinds: [Service, Service]"), "spec.kinds[1]: Duplicate value"},
		{declared("a", `kinds: ["*"], replaces: service`), "kinds: a plugin that replaces a default plugin names its kinds"},
		{declared("a", "priority: 1001"), "spec.priority in body should be less"},
		{declared("a", "writes: [\"\"]"), "spec.writes[0] in body should be at least 1"},
		{declared("a", "capabilities: [network]"), "spec.capabilities[0]: Unsupported value"},
		{declared("a", "config: text"), "spec.config in body must be of type object"},
		{declared("a", "limits: {fuel: 0}"), "spec.limits.fuel in body should be greater"},
		{declared("a", "limits: {memoryPages: 4096}"), "spec.limits.memoryPages in body should be less"},
		{declared("a", "failurePolicy: Skip"), "spec.failurePolicy: Unsupported value"},
		{declared("a", "rollout: {strategy: Now}"), "spec.rollout.strategy: Unsupported value"},
		{declared("a", "rollout: {strategy: Immediate, rehearsal: {maxErrors: 1}}"), "rehearsal is for the strategy Rehearse"},
		{declared("a", "rollout: {probation: 48h}"), "spec.rollout.probation: Invalid value"},
		{declared("a", "rollout: {rehearsal: {maxChangedPercent: 101}}"), "spec.rollout.rehearsal.maxChangedPercent in body should be less"},
		{declared("a", "rollout: {maxFailedPercent: -1}"), "spec.rollout.maxFailedPercent in body should be greater"},
		{declared("a", "revisionHistoryLimit: 0"), "spec.revisionHistoryLimit in body should be greater"},
		{declared("a", "revisionHistoryLimit: 21"), "spec.revisionHistoryLimit in body should be less"},
		{`{apiVersion: plugins.refract.io/v1alpha1, kind: PluginModule, metadata: {name: a}, spec: {sha256: "` + sum + `", parts: 1, part: 1, data: YQ==}}`, "part: the parts are numbered from 0"},
	} {
		err := c.Create(t.Context(), parse(t, tc.object), client.DryRunAll)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want an error with %q", tc.object, err, tc.says)
		}
	}
	for _, image := range []string{
		"a", "a/b", "a/b:1", "localhost:5000/a", "Registry.Example.com:443/a/b.c_d__e---f:v1.0_x-Y", "registry.example.com./a@sha256:" + sum, "[::1]:5000/a:1@sha256:" + sum, "registry:5000/a:1",
	} {
		require.NoError(t, c.Create(t.Context(), parse(t, declaredFrom("a", fmt.Sprintf("{oci: {image: %q}}", image), "")), client.DryRunAll), image)
	}
	// A plugin with only the required fields is valid, and the other fields get their defaults.
	plugin := &pluginsv1alpha1.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "least"}}
	plugin.Spec.Kinds = []string{"*"}
	plugin.Spec.Source.OCI = &pluginsv1alpha1.OCISource{Image: "registry.example.com/plugins/a:1"}
	require.NoError(t, c.Create(t.Context(), plugin))
	require.Equal(t, pluginsv1alpha1.FailPluginPolicy, plugin.Spec.FailurePolicy)
	require.Equal(t, pluginsv1alpha1.RehearseRollout, plugin.Spec.Rollout.Strategy)
	require.Equal(t, "10m0s", plugin.Spec.Rollout.Probation.Duration.String())
	require.EqualValues(t, 5, plugin.Spec.RevisionHistoryLimit)
	require.Zero(t, plugin.Spec.Source.OCI.Interval.Duration)
}
