// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/reflection"
)

// Side is one of the two clusters, accessed with an administrator's permissions.
type Side struct {
	Cluster *testenv.Cluster
	Dynamic dynamic.Interface
	Core    kubernetes.Interface
	user    string // user name of the tested manager
}

// Resources contains the resources of the kinds that tests use. The keys are the kinds without their group. For the
// default kinds, the names of the kinds are also keys.
var Resources = resources()

func resources() map[string]schema.GroupVersionResource {
	core, storage, admission := corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, admissionv1.SchemeGroupVersion
	all := map[string]schema.GroupVersionResource{
		"Namespace": core.WithResource("namespaces"), "Node": core.WithResource("nodes"), "ResourceQuota": core.WithResource("resourcequotas"), "PersistentVolume": core.WithResource("persistentvolumes"),
		reflection.ServiceAccountKind: core.WithResource("serviceaccounts"), // objects of this kind are created for pods
		"StorageClass":                storage.WithResource("storageclasses"), "Lease": {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		"ShadowPod": offloadingv1beta1.ShadowPodGVR, "ShadowEndpointSlice": offloadingv1beta1.ShadowEndpointSliceGVR,
		"VirtualNode": offloadingv1beta1.VirtualNodeGVR, "NamespaceMap": offloadingv1beta1.NamespaceMapGVR,
		"ValidatingAdmissionPolicy": admission.WithResource("validatingadmissionpolicies"), "ValidatingAdmissionPolicyBinding": admission.WithResource("validatingadmissionpolicybindings"),
		"MutatingAdmissionPolicy": admission.WithResource("mutatingadmissionpolicies"), "MutatingAdmissionPolicyBinding": admission.WithResource("mutatingadmissionpolicybindings"),
	}
	for _, kind := range reflection.DefaultKinds() {
		if _, known := all[kind.Liqo()]; !known {
			all[kind.Liqo()], all[kind.Name] = kind.Source, kind.Source
		}
	}
	return all
}

func (s *Side) Of(kind, namespace string) dynamic.ResourceInterface {
	return s.Dynamic.Resource(Resources[kind]).Namespace(namespace)
}

func (s *Side) CreateNamespace(t *testing.T, name string) {
	t.Helper()
	s.Create(t, "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
}

// Create creates an object from YAML. If the YAML contains a status, Create also sets the status.
func (s *Side) Create(t *testing.T, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	if namespace == "" {
		namespace = object.GetNamespace()
	}
	status, hasStatus := object.Object["status"]
	created := Must(s.Of(object.GetKind(), namespace).Create(t.Context(), object, metav1.CreateOptions{}))(t)
	if hasStatus {
		created = s.patch(t, object.GetKind(), namespace, object.GetName(), map[string]any{"status": status}, "status")
	}
	return created
}

func (s *Side) patch(t *testing.T, kind, namespace, name string, change map[string]any, subresource ...string) *unstructured.Unstructured {
	t.Helper()
	body := Must(json.Marshal(change))(t)
	return Must(s.Of(kind, namespace).Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, subresource...))(t)
}

// PatchYAML patches an object with a merge patch in YAML.
func (s *Side) PatchYAML(t *testing.T, kind, namespace, name, text string, subresource ...string) {
	t.Helper()
	change := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &change))
	s.patch(t, kind, namespace, name, change, subresource...)
}

func (s *Side) Get(t *testing.T, kind, namespace, name string) *unstructured.Unstructured {
	object, err := s.Of(kind, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return object
}

func (s *Side) Delete(t *testing.T, kind, namespace, name string) {
	t.Helper()
	require.NoError(t, s.Of(kind, namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// Request is the entry for a finished request in the audit log of the API server. The entry for a watch is written when
// the watch ends.
type Request struct {
	Verb       string
	RequestURI string
	User       struct{ Username string }
	ObjectRef  struct{ Resource, Subresource, Namespace, Name string }
	// ResponseStatus contains the HTTP status of the response.
	ResponseStatus struct{ Code int }
	// Received and Ended are the times at which the API server received the request and finished it.
	Received time.Time `json:"requestReceivedTimestamp"`
	Ended    time.Time `json:"stageTimestamp"`
}

// Requests returns the requests of the tested manager, from the audit log.
func (s *Side) Requests(t *testing.T) (found []Request) {
	t.Helper()
	file := Must(os.Open(s.Cluster.AuditLogPath()))(t)
	defer func() { _ = file.Close() }()
	lines, user := bufio.NewScanner(file), []byte(strconv.Quote(s.user))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var entry Request
		if bytes.Contains(lines.Bytes(), user) && json.Unmarshal(lines.Bytes(), &entry) == nil && entry.User.Username == s.user {
			found = append(found, entry)
		}
	}
	return found
}

// Writes returns the manager's writes to the cluster.
func (s *Side) Writes(t *testing.T) (found []string) {
	t.Helper()
	for _, entry := range s.Requests(t) {
		if slices.Contains([]string{"create", "update", "patch", "delete"}, entry.Verb) && entry.ObjectRef.Resource != "selfsubjectaccessreviews" {
			found = append(found, strings.TrimSuffix(entry.Verb+" "+entry.ObjectRef.Resource+"/"+entry.ObjectRef.Subresource, "/")+" "+entry.ObjectRef.Name)
		}
	}
	return found
}

// ConfigMaps creates the given number of ConfigMaps, several at a time.
func (s *Side) ConfigMaps(t *testing.T, namespace string, number int) {
	t.Helper()
	var wg sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		wg.Go(func() {
			for n := range numbers {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("good-%d", n)}, Data: map[string]string{"mode": "fast"}}
				if _, err := s.Core.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range number {
		numbers <- n
	}
	close(numbers)
	wg.Wait()
}

// DeleteNow deletes an object without a grace period. The object may not exist any more, because the garbage collector
// deletes the pods of deleted ShadowPods.
func (s *Side) DeleteNow(t *testing.T, kind, namespace, name string) {
	t.Helper()
	now := int64(0)
	err := s.Of(kind, namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	require.True(t, err == nil || apierrors.IsNotFound(err), err)
}
