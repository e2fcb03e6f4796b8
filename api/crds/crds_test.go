// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	authv1beta1 "github.com/refract-project/refract/api/authentication/v1beta1"
	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/test/support/testenv"
)

func TestCRDs(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"."}, NoScheduler: true})[0]
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme(t)})
	require.NoError(t, err)

	t.Run("are served under Liqo's names", func(t *testing.T) { served(t, discovery.NewDiscoveryClientForConfigOrDie(cluster.Config())) })
	t.Run("show Liqo's columns", func(t *testing.T) { printColumns(t, discovery.NewDiscoveryClientForConfigOrDie(cluster.Config())) })
	t.Run("keep every field", func(t *testing.T) { keepEveryField(t, c) })
	t.Run("agree with the Go types", func(t *testing.T) { agreeWithTypes(t, c) })
	t.Run("set defaults", func(t *testing.T) { setDefaults(t, c) })
	t.Run("refuse what is wrong", func(t *testing.T) { refuse(t, c) })
	t.Run("refuse wrong plugins", func(t *testing.T) { refusePlugins(t, c) })
	t.Run("refuse forbidden changes", func(t *testing.T) { refuseChanges(t, c) })
	t.Run("have status subresources", func(t *testing.T) { haveStatus(t, c) })
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{authv1beta1.AddToScheme, corev1beta1.AddToScheme, offloadingv1beta1.AddToScheme, pluginsv1alpha1.AddToScheme} {
		require.NoError(t, add(s))
	}
	return s
}

// resource is a resource in the API server's discovery.
type resource struct {
	Plural, Kind string
	Namespaced   bool
	ShortNames   []string
	Status       bool
}

// served checks that discovery contains the names of resources that users of Liqo know.
func served(t *testing.T, c discovery.DiscoveryInterface) {
	want := map[string][]resource{
		"authentication.liqo.io/v1beta1": {
			{Plural: "identities", Kind: "Identity", Namespaced: true, ShortNames: []string{"id"}, Status: true},
			{Plural: "renews", Kind: "Renew", Namespaced: true, Status: true},
			{Plural: "resourceslices", Kind: "ResourceSlice", Namespaced: true, ShortNames: []string{"rslice"}, Status: true},
			{Plural: "tenants", Kind: "Tenant", Namespaced: true, ShortNames: []string{"tn"}, Status: true},
		},
		"core.liqo.io/v1beta1": {
			{Plural: "foreignclusters", Kind: "ForeignCluster", ShortNames: []string{"fc"}, Status: true},
		},
		"offloading.liqo.io/v1beta1": {
			{Plural: "namespacemaps", Kind: "NamespaceMap", Namespaced: true, ShortNames: []string{"nm", "nsmap"}, Status: true},
			{Plural: "namespaceoffloadings", Kind: "NamespaceOffloading", Namespaced: true, ShortNames: []string{"nso", "nsof", "nsoff", "nsoffloading"}, Status: true},
			{Plural: "quotas", Kind: "Quota", Namespaced: true, ShortNames: []string{"qt"}},
			{Plural: "shadowendpointslices", Kind: "ShadowEndpointSlice", Namespaced: true, ShortNames: []string{"shes", "sheps", "seps"}},
			{Plural: "shadowpods", Kind: "ShadowPod", Namespaced: true, ShortNames: []string{"shp", "shpod"}, Status: true},
			{Plural: "virtualnodes", Kind: "VirtualNode", Namespaced: true, ShortNames: []string{"vn", "vnode", "virno", "vno"}, Status: true},
			{Plural: "vkoptionstemplates", Kind: "VkOptionsTemplate", Namespaced: true, ShortNames: []string{"vkot", "vkopt"}},
		},
		"plugins.refract.io/v1alpha1": {
			{Plural: "peernetworks", Kind: "PeerNetwork", Namespaced: true, ShortNames: []string{"pnet"}, Status: true},
			{Plural: "pluginmodules", Kind: "PluginModule"},
			{Plural: "pluginrevisions", Kind: "PluginRevision", Status: true},
			{Plural: "reflectedresources", Kind: "ReflectedResource", ShortNames: []string{"refl"}, Status: true},
			{Plural: "reflectionplugins", Kind: "ReflectionPlugin", ShortNames: []string{"rp"}, Status: true},
		},
	}
	for group, resources := range want {
		list, err := c.ServerResourcesForGroupVersion(group)
		require.NoError(t, err)
		if diff := cmp.Diff(resources, discovered(t, list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", group, diff)
		}
	}
}

// discovered returns the resources in a list, sorted by their plurals, and checks their categories.
func discovered(t *testing.T, list *metav1.APIResourceList) []resource {
	t.Helper()
	status := map[string]bool{}
	for _, r := range list.APIResources {
		status[r.Name] = true
	}
	var found []resource
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		category := "liqo"
		if list.GroupVersion == pluginsv1alpha1.GroupVersion.String() {
			category = "refract"
		}
		if diff := cmp.Diff([]string{category}, r.Categories); diff != "" {
			t.Errorf("categories of %s (-want +got):\n%s", r.Name, diff)
		}
		found = append(found, resource{r.Name, r.Kind, r.Namespaced, r.ShortNames, status[r.Name+"/status"]})
	}
	slices.SortFunc(found, func(a, b resource) int { return strings.Compare(a.Plural, b.Plural) })
	return found
}

// samples returns the objects in testdata/valid.yaml.
func samples(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile("testdata/valid.yaml")
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, parse(t, string(document)))
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &object.Object))
	return object
}

// keepEveryField stores the samples and reads them back. All fields must be preserved, including fields below a field
// without a schema.
func keepEveryField(t *testing.T, c client.Client) {
	for _, sample := range samples(t) {
		sent := sample.DeepCopy()
		if err := c.Create(t.Context(), sample, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s: %v", sent.GetKind(), err)
			continue
		}
		got := &unstructured.Unstructured{}
		got.SetGroupVersionKind(sent.GroupVersionKind())
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(sent), got))
		if diff := cmp.Diff(normal(t, sent.Object["spec"]), normal(t, got.Object["spec"])); diff != "" {
			t.Errorf("%s comes back changed (-sent +got):\n%s", sent.GetKind(), diff)
		}
	}
}

// normal converts a value to text, so that numbers from YAML and from the API server can be compared.
func normal(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// agreeWithTypes converts the stored samples to their Go types and back. Only fields whose names begin with "future"
// may get lost.
func agreeWithTypes(t *testing.T, c client.Client) {
	for _, sample := range samples(t) {
		typed, err := scheme(t).New(sample.GroupVersionKind())
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(sample), typed.(client.Object)))
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		require.NoError(t, err)
		withoutFuture(sample.Object)
		missing(t, sample.GetKind()+".spec", sample.Object["spec"], content["spec"])
	}
}
