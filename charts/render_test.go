// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers/virtualnode"
)

const (
	chartDir         = "refract"
	releaseName      = "refract"
	releaseNamespace = "liqo"
)

// values returns the values in testdata/NAME.yaml.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	defer file.Close()
	read, err := loader.LoadValues(file)
	require.NoError(t, err)
	return read
}

// render returns the rendered text of every template by its file name, as helm template would print it.
func render(t *testing.T, vals map[string]any) (map[string]string, error) {
	t.Helper()
	return renderAs(t, vals, releaseName, releaseNamespace)
}

// loadChart reads the chart once. Rendering does not change it.
var loadChart = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load(chartDir) })

// renderAs renders the chart as a release of the given name.
func renderAs(t *testing.T, vals map[string]any, name, namespace string) (map[string]string, error) {
	t.Helper()
	vals = util.CoalesceTables(maps.Clone(vals), images())
	return renderFor(t, vals, common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}, "v1.36.0")
}

// renderFor renders the chart for a cluster with the given version of Kubernetes and additional APIs.
func renderFor(
	t *testing.T, vals map[string]any, release common.ReleaseOptions, version string, apis ...string,
) (map[string]string, error) {
	t.Helper()
	loaded, err := loadChart()
	require.NoError(t, err)
	capabilities := common.DefaultCapabilities.Copy()
	kubernetes, err := common.ParseKubeVersion(version)
	require.NoError(t, err)
	capabilities.KubeVersion = *kubernetes
	capabilities.APIVersions = append(capabilities.APIVersions, apis...)
	all, err := util.ToRenderValues(loaded, vals, release, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// images returns the values with the names of the images, which are required and have no default.
func images() map[string]any {
	of := func(name string) map[string]any { return map[string]any{"image": map[string]any{"name": name}} }
	return map[string]any{"virtualKubelet": of("registry.example/virtual-kubelet"), "controllerManager": of("registry.example/controller-manager")}
}

// objects renders the chart and decodes every object strictly, so that an unknown field is an error.
func objects(t *testing.T, vals map[string]any) []client.Object {
	t.Helper()
	rendered, err := render(t, vals)
	require.NoError(t, err)
	var found []client.Object
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if filepath.Ext(name) == ".yaml" {
			found = append(found, decode(t, name, rendered[name])...)
		}
	}
	return found
}

// deployed returns the objects of the chart and the Deployments that the controller manager creates from them.
func deployed(t *testing.T, vals map[string]any) []client.Object {
	t.Helper()
	all := objects(t, vals)
	var kubelets []client.Object
	for _, object := range all {
		vn, ok := object.(*offloadingv1beta1.VirtualNode)
		if !ok {
			continue
		}
		template := get[*offloadingv1beta1.VkOptionsTemplate](t, all, vn.Spec.VkOptionsTemplateRef.Name)
		require.Equal(t, vn.Spec.VkOptionsTemplateRef.Namespace, template.Namespace)
		kubelet, err := virtualnode.Forge(vn, template, virtualnode.Installation{ClusterID: "home", Namespace: releaseNamespace})
		require.NoError(t, err)
		kubelets = append(kubelets, kubelet)
	}
	return append(all, kubelets...)
}

func decode(t *testing.T, name, text string) []client.Object {
	t.Helper()
	decoder := strictDecoder(t)
	var found []client.Object
	for _, document := range documents(t, text) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, document)
		}
		found = append(found, object.(client.Object))
	}
	return found
}

// documents returns the non-empty documents of a YAML stream.
func documents(t *testing.T, text string) (found [][]byte) {
	t.Helper()
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		if len(bytes.TrimSpace(document)) > 0 {
			found = append(found, document)
		}
	}
}

// makeScheme builds the scheme once, because that takes as long as several renderings of the chart.
var makeScheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		offloadingv1beta1.AddToScheme, corev1beta1.AddToScheme, plugins.AddToScheme, networking.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
})

// scheme returns the kinds of the chart's objects. All tests share it.
func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := makeScheme()
	require.NoError(t, err)
	return s
}

// makeDecoder builds the strict decoder once.
var makeDecoder = sync.OnceValues(func() (runtime.Decoder, error) {
	s, err := makeScheme()
	if err != nil {
		return nil, err
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer(), nil
})

// strictDecoder returns the decoder of the chart's objects. It rejects unknown fields.
func strictDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	decoder, err := makeDecoder()
	require.NoError(t, err)
	return decoder
}

// get returns the object of type T with the given name, in any namespace. The test fails unless there is exactly one.
func get[T client.Object](t *testing.T, all []client.Object, name string) T {
	t.Helper()
	var found []T
	for _, object := range all {
		if typed, ok := object.(T); ok && object.GetName() == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%T %s: rendered %d times, want once", *new(T), name, len(found))
	}
	return found[0]
}

// mustFail checks that the chart rejects the values with a message that contains the given text.
func mustFail(t *testing.T, vals map[string]any, says string) {
	t.Helper()
	_, err := render(t, vals)
	if err == nil {
		t.Fatalf("rendered, want an error with %q", says)
	}
	if !strings.Contains(err.Error(), says) {
		t.Fatalf("error does not say %q:\n%v", says, err)
	}
}
