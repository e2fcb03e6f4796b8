// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/testenv"
)

// side is one of the two clusters as its administrator sees it.
type side struct {
	cluster *testenv.Cluster
	dynamic dynamic.Interface
	core    kubernetes.Interface
	user    string // as whom the manager under test comes
}

var resources = map[string]schema.GroupVersionResource{
	"Namespace": corev1.SchemeGroupVersion.WithResource("namespaces"), "Node": nodesResource, "Pod": podsResource, "Service": servicesResource,
	"Event": corev1.SchemeGroupVersion.WithResource("events"), "ConfigMap": corev1.SchemeGroupVersion.WithResource("configmaps"),
	"Secret": secretsResource, "Ingress": ingressesResource, "EndpointSlice": endpointSlicesResource, "ShadowPod": offloadingv1beta1.ShadowPodGVR, "ShadowEndpointSlice": offloadingv1beta1.ShadowEndpointSliceGVR,
	"Lease":          {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"ServiceAccount": corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "VirtualNode": offloadingv1beta1.VirtualNodeGVR, "NamespaceMap": offloadingv1beta1.NamespaceMapGVR,
	ClaimKind: claimsResource, "PersistentVolume": volumesResource, "StorageClass": storageClassesResource,
	"ResourceQuota": corev1.SchemeGroupVersion.WithResource("resourcequotas"),
}

func (s *side) of(kind, namespace string) dynamic.ResourceInterface {
	return s.dynamic.Resource(resources[kind]).Namespace(namespace)
}

func (s *side) createNamespace(t *testing.T, name string) {
	t.Helper()
	s.create(t, "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
}

// create creates an object from YAML, and sets its status when there is one.
func (s *side) create(t *testing.T, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	if namespace == "" {
		namespace = object.GetNamespace()
	}
	status, hasStatus := object.Object["status"]
	created := must(s.of(object.GetKind(), namespace).Create(t.Context(), object, metav1.CreateOptions{}))(t)
	if hasStatus {
		created = s.patch(t, object.GetKind(), namespace, object.GetName(), map[string]any{"status": status}, "status")
	}
	return created
}

func (s *side) patch(t *testing.T, kind, namespace, name string, change map[string]any, subresource ...string) *unstructured.Unstructured {
	t.Helper()
	body := must(json.Marshal(change))(t)
	return must(s.of(kind, namespace).Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, subresource...))(t)
}

// patchYAML is patch with the change as text.
func (s *side) patchYAML(t *testing.T, kind, namespace, name, text string, subresource ...string) {
	t.Helper()
	change := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &change); err != nil {
		t.Fatal(err)
	}
	s.patch(t, kind, namespace, name, change, subresource...)
}

func (s *side) get(t *testing.T, kind, namespace, name string) *unstructured.Unstructured {
	object, err := s.of(kind, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return object
}

func (s *side) delete(t *testing.T, kind, namespace, name string) {
	t.Helper()
	if err := s.of(kind, namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// request is what an API server noted of one that it has answered; of a watch, when it ended.
type request struct {
	Verb       string
	RequestURI string
	User       struct{ Username string }
	ObjectRef  struct{ Resource, Subresource, Namespace, Name string }
}

// requests lists those of the manager under test, from the audit log.
func (s *side) requests(t *testing.T) (found []request) {
	t.Helper()
	file := must(os.Open(s.cluster.AuditLogPath()))(t)
	defer func() { _ = file.Close() }()
	lines, user := bufio.NewScanner(file), []byte(strconv.Quote(s.user))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var entry request
		if bytes.Contains(lines.Bytes(), user) && json.Unmarshal(lines.Bytes(), &entry) == nil && entry.User.Username == s.user {
			found = append(found, entry)
		}
	}
	return found
}

// writes lists what the manager wrote to a cluster.
func (s *side) writes(t *testing.T) (found []string) {
	t.Helper()
	for _, entry := range s.requests(t) {
		if slices.Contains([]string{"create", "update", "patch", "delete"}, entry.Verb) && entry.ObjectRef.Resource != "selfsubjectaccessreviews" {
			found = append(found, strings.TrimSuffix(entry.Verb+" "+entry.ObjectRef.Resource+"/"+entry.ObjectRef.Subresource, "/")+" "+entry.ObjectRef.Name)
		}
	}
	return found
}
