// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/sdk/plugintest"
	"github.com/refract-project/refract/test/support/testenv"
)

const (
	consumer = "shop"
	provider = "shop-rome"
)

// TestAccepted checks that an API server accepts the results of the default plugins: the reflected objects on the
// provider, and the reflected statuses and Events on the consumer. The plugins get objects that an API server has
// accepted and defaulted. Two namespaces of one cluster represent the two clusters, because validation is the same in
// every cluster.
func TestAccepted(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{Name: "accepted", NoScheduler: true})[0]
	api, err := dynamic.NewForConfig(cluster.Config())
	require.NoError(t, err)
	for _, name := range []string{consumer, provider} {
		create(t, api.Resource(resource("namespaces")), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")
	}
	create(t, api.Resource(schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}),
		"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: local}\nhandler: local\n"+
			"overhead: {podFixed: {cpu: 10m}}\nscheduling: {nodeSelector: {runtime: local}}\n")
	t.Run("services", func(t *testing.T) { testAccepted(t, api, "service", resource("services")) })
	t.Run("configmaps", func(t *testing.T) { testAccepted(t, api, "configmap", resource("configmaps")) })
	t.Run("secrets", func(t *testing.T) {
		t.Run("Legacy", func(t *testing.T) { testAccepted(t, api, "secret", resource("secrets")) })
	})
	t.Run("ingresses", func(t *testing.T) { testAccepted(t, api, "ingress", ingresses) })
	t.Run("persistentvolumeclaims", func(t *testing.T) {
		testAccepted(t, api, "persistentvolumeclaim", resource("persistentvolumeclaims"))
	})
	t.Run("pods", func(t *testing.T) {
		for _, mode := range []string{"Disabled", "Legacy", "TokenAPI", "Remote"} {
			t.Run(mode, func(t *testing.T) { testAccepted(t, api, "pod", resource("pods")) })
		}
	})
	t.Run("status", func(t *testing.T) { testStatusAccepted(t, api) })
	t.Run("ingress status", func(t *testing.T) { testIngressStatusAccepted(t, api) })
	t.Run("claim status", func(t *testing.T) { testClaimStatusAccepted(t, api) })
	t.Run("events", func(t *testing.T) { testEventsAccepted(t, api) })
}

var ingresses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

func testAccepted(t *testing.T, api dynamic.Interface, plugin string, gvr schema.GroupVersionResource) {
	module := plugintest.Open(t, plugin+"/"+plugin+".wasm")
	_, mode, _ := strings.Cut(t.Name(), gvr.Resource+"/")
	for _, object := range documents(t, gvr.Resource) {
		t.Run(object.GetName(), func(t *testing.T) {
			local := take(t, api, gvr, consumer, object)
			out := module.Run(t, plugintest.Case{Hook: host.Outgoing, Object: local.Object, Context: context(mode)})
			if out.Object == nil {
				t.Fatalf("it does not cross: %s%v", out.SkipReason, out.Err)
			}
			take(t, api, gvr, provider, wrap(out.Object))
		})
	}
}

// documents reads the objects of testdata/accepted.
func documents(t *testing.T, resource string) (objects []*unstructured.Unstructured) {
	text, err := os.ReadFile("testdata/accepted/" + resource + ".yaml")
	require.NoError(t, err)
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, parse(t, string(document)))
	}
}

// context returns the context that the reflection engine would pass to the plugin.
func context(mode string) map[string]any {
	return map[string]any{
		"localClusterID": "rome", "remoteClusterID": "milan", "nodeName": "milan", "nodeIP": "10.1.0.200",
		"localNamespace": consumer, "remoteNamespace": provider,
		"apiServerSupport": mode, "serviceAccountSecretName": "token",
		"apiServer":         map[string]any{"host": "kubernetes.default", "port": "6443", "ips": []any{"10.70.0.1"}},
		"loadBalancerClass": "provider.example/lb",
		"ingressClass":      "provider-nginx",
		"storageClass":      "provider-fast",
		"offloadingPatch": map[string]any{
			"nodeSelector": map[string]any{"pool": "guests"},
			"tolerations":  []any{map[string]any{"key": "guests", "operator": "Exists"}},
			"affinity": map[string]any{"nodeAffinity": map[string]any{
				"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{map[string]any{
					"matchExpressions": []any{map[string]any{"key": "tier", "operator": "Exists"}},
				}}},
			}},
		},
	}
}

// take creates an object as a dry run, and returns the object as the API server would store it.
func take(t *testing.T, api dynamic.Interface, gvr schema.GroupVersionResource, namespace string, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	taken, err := api.Resource(gvr).Namespace(namespace).Create(t.Context(), o, options)
	if err != nil {
		text, _ := yaml.Marshal(o.Object)
		t.Fatalf("the API server refuses it in %s: %v\n%s", namespace, err, text)
	}
	return taken
}

// wrap returns the object with only the parts of the plugin's result that the reflection engine uses.
func wrap(object map[string]any) *unstructured.Unstructured {
	in := &unstructured.Unstructured{Object: object}
	out := &unstructured.Unstructured{Object: maps.Clone(object)}
	delete(out.Object, "metadata")
	delete(out.Object, "status")
	out.SetAPIVersion(in.GetAPIVersion())
	out.SetKind(in.GetKind())
	out.SetName(in.GetName())
	out.SetLabels(in.GetLabels())
	out.SetAnnotations(in.GetAnnotations())
	return out
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	return object
}

func create(t *testing.T, client dynamic.ResourceInterface, text string) *unstructured.Unstructured {
	t.Helper()
	created, err := client.Create(t.Context(), parse(t, text), metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// testStatusAccepted checks that the consumer's API server accepts the reflected status of the provider's pod. API
// servers reject some changes of a pod's status.
func testStatusAccepted(t *testing.T, api dynamic.Interface) {
	module := plugintest.Open(t, "pod/pod.wasm")
	pods := api.Resource(resource("pods")).Namespace(consumer)
	for pod, test := range map[string]struct {
		policy, before, theirs string
		verbatim               bool // whether the provider's status is accepted even without the plugin
	}{
		"other-class": {"Always", "{phase: Pending}",
			`{phase: Running, qosClass: Guaranteed, nominatedNodeName: milan-1, hostIP: 192.0.2.1, hostIPs: [{ip: 192.0.2.1}],
			podIP: 10.3.0.7, podIPs: [{ip: 10.3.0.7}, {ip: "fd00::7"}], observedGeneration: 9}`, false},
		"after-failure": {"OnFailure",
			"{phase: Running, containerStatuses: [" + container("web", "terminated: {exitCode: 1}") + "]}",
			"{phase: Running, qosClass: BestEffort, containerStatuses: [" + container("web", "running: {}") + "]}", true},
	} {
		t.Run(pod, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + pod + "}\nspec:\n  nodeName: milan\n  restartPolicy: " + test.policy +
				"\n  initContainers: [{name: init, image: i}]\n  containers: [{name: web, image: w}]\n"
			local := create(t, pods, text)
			before := parse(t, test.before).Object
			before["qosClass"] = "BestEffort"
			local = update(t, pods, local, before)
			theirs := parse(t, text+"status: "+test.theirs)
			if _, err := tryUpdate(t, pods, local, theirs.Object["status"]); (err == nil) != test.verbatim {
				t.Errorf("the status as it is: %v", err)
			}
			env := context("Disabled")
			env["local"], env["remoteUnavailable"] = local.Object, true
			out := module.Run(t, plugintest.Case{Hook: host.Incoming, Object: theirs.Object, Context: env})
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			after := update(t, pods, local, out.Object["status"])
			if ip, _, _ := unstructured.NestedString(after.Object, "status", "hostIP"); ip != "10.1.0.200" {
				t.Errorf("the host IP is %q, want that of the virtual node", ip)
			}
		})
	}
}

// container returns the status of a container in the given state.
func container(name, state string) string {
	return `{name: ` + name + `, image: w, imageID: "", ready: false, restartCount: 0, state: {` + state + `}}`
}

func update(t *testing.T, pods dynamic.ResourceInterface, pod *unstructured.Unstructured, status any) *unstructured.Unstructured {
	t.Helper()
	updated, err := tryUpdate(t, pods, pod, status)
	if err != nil {
		text, _ := yaml.Marshal(status)
		t.Fatalf("the API server refuses the status: %v\n%s", err, text)
	}
	return updated
}

func tryUpdate(t *testing.T, pods dynamic.ResourceInterface, pod *unstructured.Unstructured, status any) (*unstructured.Unstructured, error) {
	pod = pod.DeepCopy()
	pod.Object["status"] = status
	pod.SetResourceVersion("") // an update without a resourceVersion is unconditional
	return pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
}
