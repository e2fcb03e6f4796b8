// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	commands "github.com/refract-project/refract/cmd/refractctl/cli/install"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// TestInstallTakesValuesAsHelmDoes checks that values come from files and flags, with the same precedence as in helm.
func TestInstallTakesValuesAsHelmDoes(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	first := file("first.yaml", "discovery: {config: {clusterID: turin}}\ncontrollerManager: {replicas: 3, image: {version: first}}\n")
	second := file("second.yaml", "discovery: {config: {clusterID: rome}}\ncontrollerManager: {image: {version: second}}\n")
	install := []string{
		"install", "--dry-run", "--registry=registry.example.com/refract", "-f", first, "-f", second,
		"--set=controllerManager.image.version=0.5", "--set-string=controllerManager.pod.annotations.revision=7",
		`--set-json=common.nodeSelector={"role":"infra"}`, "--set-file=controllerManager.pod.annotations.note=" + file("note", "text of a file"),
	}
	out, _, err := refractctl(t, onCluster(append(install, "-o", "json")...)...)
	require.NoError(t, err)
	result := printedResult(t, out)
	assert.Equal(t, &invocation.ResultRelease{Name: commands.DefaultRelease, Namespace: commands.DefaultNamespace, Revision: 1}, result.Release)
	assert.Contains(t, result.Steps, "installing release refract in namespace liqo")
	for _, want := range []string{"--cluster-id=rome", "replicas: 3", "controller-manager:0.5", `revision: "7"`, "role: infra", "note: text of a file"} {
		assert.Contains(t, result.Manifest, want)
	}
	manifest, _, err := refractctl(t, onCluster(install...)...)
	require.NoError(t, err)
	assert.Equal(t, result.Manifest, manifest)

	// Values can be read from a server, and may contain characters that have a meaning in --set.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "controllerManager: {image: {version: served}}")
	}))
	defer server.Close()
	manifest, _, err = refractctl(t, onCluster("install", "--dry-run", "--cluster-id=rome", "--registry=registry.example.com/refract", "-f", server.URL+"/values.yaml",
		"--set-literal=controllerManager.pod.annotations.note=a,b=c")...)
	require.NoError(t, err)
	assert.Contains(t, manifest, "controller-manager:served")
	assert.Contains(t, manifest, "note: a,b=c")

	for _, wrong := range []string{"--set-json=a={", "--values=https://127.0.0.1:1/absent", "--set-file=a=" + filepath.Join(folder, "absent"), "--values=" + filepath.Join(folder, "absent"), "--set=a"} {
		_, _, err := refractctl(t, onCluster(append(install, wrong)...)...)
		assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), "%s: %v", wrong, err)
	}
}

// TestInstallUpgradesCRDs checks that a CRD that an earlier release has installed is updated to the current schema even
// if there are objects of its kind, that the objects stay unchanged, and that a dry run names the CRD.
func TestInstallUpgradesCRDs(t *testing.T) {
	c := admin(t)
	const name = "quotas.offloading.liqo.io"
	read := func() *unstructured.Unstructured {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(release.DefinitionKind)
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, crd))
		return crd
	}
	properties := func(crd *unstructured.Unstructured) map[string]any {
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		require.NoError(t, err)
		found, ok, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties")
		require.NoError(t, err)
		require.True(t, ok)
		return found
	}
	former := read()
	require.Contains(t, properties(former), "cordoned")
	versions, _, err := unstructured.NestedSlice(former.Object, "spec", "versions")
	require.NoError(t, err)
	unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "cordoned")
	require.NoError(t, unstructured.SetNestedSlice(former.Object, versions, "spec", "versions"))
	require.NoError(t, c.Update(t.Context(), former))
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "former"}}))
	quota := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: "former", Name: "rome", Labels: map[string]string{"team": "web"}}, Spec: offloading.QuotaSpec{
		User: "rome", LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
	require.NoError(t, c.Create(t.Context(), quota))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.Background(), quota)) })

	generation := read().GetGeneration()
	// Nothing runs in this cluster, so the command waits until the timeout ends. Before that, it must have installed
	// the release.
	install := onCluster("install", "--cluster-id=rome", "--registry=registry.example.com/refract", "--timeout=20s")
	_, said, err := refractctl(t, append(install, "--dry-run")...)
	require.NoError(t, err)
	assert.Contains(t, said, "CRD "+name+" would be updated\n")
	assert.NotContains(t, said, "CRD shadowpods.offloading.liqo.io", "it is as it was")
	assert.Equal(t, generation, read().GetGeneration(), "a dry run changes nothing")
	assert.NotContains(t, properties(read()), "cordoned")

	defer func() { // not in t.Cleanup, because the context of the test has ended by then
		_, _, err := refractctl(t, onCluster("uninstall", "--force")...)
		assert.NoError(t, err)
	}()
	_, said, err = refractctl(t, install...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "nothing runs here: %v", err)
	assert.Contains(t, said, "CRD "+name+" was updated\n")
	assert.Contains(t, properties(read()), "cordoned")
	after := &offloading.Quota{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(quota), after))
	assert.Equal(t, quota, after, "an object of the former schema")
	yes := true
	after.Spec.Cordoned = &yes
	require.NoError(t, c.Update(t.Context(), after))
	require.NotNil(t, after.Spec.Cordoned, "the field is stored now")
}

// TestInstallRefusesNamesThatCannotWork checks that images come from the registry that is set, with or without a
// trailing slash, and that names and addresses that cannot work are rejected as wrong usage. A cluster ID must be short
// enough for the prefixes that are added to it.
func TestInstallRefusesNamesThatCannotWork(t *testing.T) {
	manifest, _, err := refractctl(t, onCluster("install", "--dry-run", "--cluster-id="+strings.Repeat("x", 51), "--registry=registry.example.com/refract/")...)
	require.NoError(t, err)
	assert.Contains(t, manifest, `image: "registry.example.com/refract/controller-manager:`)
	for flag, want := range map[string]string{
		"--registry=https://registry.example.com/refract": "has a scheme",
		"--registry=registry.example.com/refract:1.0":     "is not a registry with a path",
		"--cluster-id=" + strings.Repeat("x", 52):         "must be no more than 51 characters",
		"--namespace=a.b":                      "cannot be the name of a namespace",
		"--release=Rome":                       "--release",
		"--release=" + strings.Repeat("x", 54): "--release",
	} {
		_, _, err := refractctl(t, onCluster("install", "--dry-run", "--cluster-id=rome", "--registry=registry.example.com/refract", flag)...)
		assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), flag)
		assert.ErrorContains(t, err, want)
	}
	for set, want := range map[string]string{
		"discovery.config.clusterLabels.zone=a b": "abels", "apiServer.address=http://milan": "/apiServer/address", "apiServer.address=https://0.0.0.0:6443": "/apiServer/address", "apiServer.address=[::]:6443": "/apiServer/address",
		"apiServer.address=milan:65536": "/apiServer/address", "controllerManager.image.name=registry.example.com/a//b": "/controllerManager/image/name", "virtualKubelet.image.version=a b": "/virtualKubelet/image/version",
	} {
		_, _, err := refractctl(t, onCluster("install", "--dry-run", "--cluster-id=rome", "--set=controllerManager.image.name=refract/controller-manager,virtualKubelet.image.name=refract/virtual-kubelet", "--set="+set)...)
		assert.ErrorContains(t, err, want, set)
		assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err), set)
	}
	_, _, err = refractctl(t, onCluster("install", "--dry-run", "--cluster-id=rome", "--registry=registry.example.com/refract", "--api-server-url=milan.example.com:65535")...)
	assert.NoError(t, err)
}
