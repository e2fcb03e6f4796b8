// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package apistub is an HTTP server that implements enough of the Kubernetes API for tests of programs that use an API
// server as a store: discovery, reads, watches, server-side apply with field managers, merge patches, updates,
// deletions with preconditions, access reviews and tokens. It has no admission, no validation and no garbage
// collection. A deleted namespace and its contents are gone immediately. Tests that depend on the decisions of an API
// server need a real one (see package testenv).
//
// A test can make requests fail as they would with a real API server (OnRequest), and can act as admission (Admit)
// and as controllers (AfterWrite).
package apistub

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Server is a stub of an API server. Its methods may be called concurrently.
type Server struct {
	http *httptest.Server

	mu        sync.Mutex
	resources map[schema.GroupVersionResource]resource
	objects   map[key]*unstructured.Unstructured
	version   int
	writes    int
	sent      []Request // writes that clients have requested since the last call of TakeSent
	history   []stored
	changed   chan struct{} // closed when the next change occurs

	onRequest  func(Request) *Failure
	admit      func(*unstructured.Unstructured) *apierrors.StatusError
	afterWrite func(Change)
	refused    func(authorizationv1.ResourceAttributes) bool
}

// resource is a resource that the server serves.
type resource struct {
	kind       string
	namespaced bool
}

// key identifies an object.
type key struct {
	schema.GroupVersionResource
	namespace, name string
}

// Request is a request from a client, before it is served.
type Request struct {
	// Verb is the verb of the request, as in a Role. The verbs of writes are "create", "update", "patch" and "delete".
	// Reviews and token requests have the verb "create".
	Verb                                   string
	Group, Resource, Subresource, NS, Name string
	// Header is the header of the HTTP request.
	Header http.Header
}

// IsWrite reports whether the request changes a stored object. Reviews and token requests do not.
func (r Request) IsWrite() bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && !strings.HasSuffix(r.Resource, "reviews") && r.Subresource != "token"
}

// Failure describes how a request fails. The zero value closes the connection without a response.
type Failure struct {
	// Code and Reason are the code and reason of the Status in the response.
	Code   int32
	Reason metav1.StatusReason
	// Status is the complete Status in the response. If it is nil, the Status contains only Code and Reason.
	Status *metav1.Status
	// IsServed means that the request is executed, but its response is lost, so that the client gets an error.
	IsServed bool
}

// Refuse returns a Failure with the given error as the response.
func Refuse(err *apierrors.StatusError) *Failure {
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &Failure{Code: status.Code, Status: &status}
}

// Failures of an API server, or of the network between the client and the API server.
var (
	Lost           = &Failure{}
	LostAfterwards = &Failure{IsServed: true}
	Forbidden      = &Failure{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	Conflict       = &Failure{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}
	NotFound       = &Failure{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
	Invalid        = &Failure{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}
	Overloaded     = &Failure{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests}
	Unavailable    = &Failure{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable}
	Broken         = &Failure{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}
)

// Change is a write that the server has executed.
type Change struct {
	Verb string
	// Object is a copy of the object after the write. If the object was deleted, it is a copy of the object before the
	// deletion.
	Object *unstructured.Unstructured
}

// clusterScoped contains the kinds that are not namespaced.
var clusterScoped = sets.New("Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CertificateSigningRequest", "ForeignCluster",
	"ServiceCIDR", "StorageClass", "IngressClass", "PriorityClass", "RuntimeClass", "ReflectionPlugin", "PluginRevision", "PluginModule", "ReflectedResource")

// New starts a server for the kinds in a scheme. It stops at the end of the test. Clients authenticate with AdminToken,
// with the token of a ServiceAccount, or with any client certificate. The common name of a certificate is the user
// name.
func New(tb testing.TB, scheme *runtime.Scheme) *Server {
	tb.Helper()
	s := &Server{resources: map[schema.GroupVersionResource]resource{}, objects: map[key]*unstructured.Unstructured{}, changed: make(chan struct{})}
	for kind := range scheme.AllKnownTypes() {
		object, err := scheme.New(kind)
		if err != nil {
			continue
		}
		isStable := kind.Version == "v1" || strings.HasSuffix(kind.Group, ".io") && !strings.HasSuffix(kind.Group, "k8s.io")
		if _, ok := object.(client.Object); !ok || !isStable || kind.Version == runtime.APIVersionInternal {
			continue
		}
		plural, _ := apimeta.UnsafeGuessKindToResource(kind)
		s.resources[plural] = resource{kind: kind.Kind, namespaced: !clusterScoped.Has(kind.Kind)}
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	//nolint:gosec // a client's certificate is not verified
	s.http.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{certificate()}}
	s.http.StartTLS()
	tb.Cleanup(func() {
		s.http.CloseClientConnections() // close the connections of watches
		s.http.Close()
	})
	for _, name := range []string{"default", "kube-system", "kube-node-lease"} {
		s.Put(tb, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})
	}
	return s
}

// AdminToken is the token of a user with all permissions.
const AdminToken = "administrator"

// Config returns the client configuration of an administrator.
func (s *Server) Config() *rest.Config {
	config := &rest.Config{Host: s.http.URL, BearerToken: AdminToken, QPS: -1}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return config
}

// OnRequest sets a function that is called before each request for objects, and before each readiness probe ("get",
// "readyz"). If it returns a Failure, the request fails. The function must not call methods of the server.
func (s *Server) OnRequest(decide func(Request) *Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = decide
}

// Once makes the next request with this verb fail. It replaces the function that was set with OnRequest.
func (s *Server) Once(verb string, failure *Failure) {
	isDone := false
	s.OnRequest(func(r Request) *Failure {
		if isDone || r.Verb != verb {
			return nil
		}
		isDone = true
		return failure
	})
}

// Admit sets a function that is called for each object that a client writes, before the object is stored. The function
// may change the object, or refuse it by returning an error. It must not call methods of the server.
func (s *Server) Admit(admit func(*unstructured.Unstructured) *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit = admit
}

// AfterWrite sets a function that is called after each write of a client, before the client gets the response. The
// function may write with Put and Remove. For these writes it is not called again.
func (s *Server) AfterWrite(react func(Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afterWrite = react
}

// RefuseRights sets a function that determines which permissions are denied in access reviews. All other permissions
// are granted.
func (s *Server) RefuseRights(refused func(authorizationv1.ResourceAttributes) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = refused
}

// Serve adds a namespaced resource, as if its CRD had been created.
func (s *Server) Serve(resourceName string, kind schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[kind.GroupVersion().WithResource(resourceName)] = resource{kind: kind.Kind, namespaced: true}
}

// Unserve removes a resource and its objects, as if its CRD had been deleted.
func (s *Server) Unserve(group, plural string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gvr := range s.resources {
		if gvr.Group == group && gvr.Resource == plural {
			delete(s.resources, gvr)
			for k := range s.objects {
				if k.GroupVersionResource == gvr {
					delete(s.objects, k)
				}
			}
		}
	}
}

// Put stores objects, including their status, without any checks.
func (s *Server) Put(tb testing.TB, objects ...client.Object) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			tb.Fatalf("storing %T: %v", object, err)
		}
		stored := &unstructured.Unstructured{Object: fields}
		gvr, ok := s.resourceOf(stored.GroupVersionKind())
		if !ok {
			tb.Fatalf("storing %s %s: set its apiVersion and kind to those of a served resource", stored.GroupVersionKind(), object.GetName())
		}
		k := key{gvr, object.GetNamespace(), object.GetName()}
		if before := s.objects[k]; before != nil && stored.GetUID() == "" {
			stored.SetUID(before.GetUID())
			stored.SetCreationTimestamp(before.GetCreationTimestamp())
		}
		s.store(k, stored)
	}
}

// Remove deletes an object. If it is a namespace, its contents are deleted, too.
func (s *Server) Remove(kind schema.GroupVersionKind, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gvr, ok := s.resourceOf(kind); ok {
		s.erase(key{gvr, namespace, name})
	}
}

// Get returns a copy of an object, or nil if it does not exist.
func (s *Server) Get(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	gvr, _ := s.resourceOf(kind)
	return s.objects[key{gvr, namespace, name}].DeepCopy()
}

// All returns copies of the objects of a kind in a namespace.
func (s *Server) All(kind schema.GroupVersionKind, namespace string) (all []*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gvr, _ := s.resourceOf(kind)
	for k, object := range s.objects {
		if k.GroupVersionResource == gvr && k.namespace == namespace {
			all = append(all, object.DeepCopy())
		}
	}
	return all
}

// TakeSent returns the writes that clients have requested since its last call. It includes writes that have failed.
func (s *Server) TakeSent() (sent []Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, s.sent = s.sent, nil
	return sent
}

// Writes returns the number of writes that were executed.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Inventory returns all objects as JSON, as one line per object, in sorted order. It omits everything that differs
// between two runs with the same result: resourceVersions, UIDs, times, managed fields, and the values in Secrets.
func (s *Server) Inventory() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for k, object := range s.objects {
		object = object.DeepCopy()
		for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		if len(object.GetAnnotations()) == 0 { // the annotations are missing or empty
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
		}
		owners, _, _ := unstructured.NestedSlice(object.Object, "metadata", "ownerReferences")
		for _, owner := range owners {
			delete(owner.(map[string]any), "uid")
		}
		if owners != nil {
			_ = unstructured.SetNestedSlice(object.Object, owners, "metadata", "ownerReferences")
		}
		if k.Resource == "secrets" {
			unstructured.RemoveNestedField(object.Object, "data")
		}
		text, err := json.Marshal(object.Object)
		if err != nil {
			text = fmt.Appendf(nil, "%v", err)
		}
		lines = append(lines, string(text))
	}
	slices.Sort(lines)
	return lines
}

func (s *Server) resourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	for gvr, found := range s.resources {
		if gvr.GroupVersion() == kind.GroupVersion() && found.kind == kind.Kind {
			return gvr, true
		}
	}
	return schema.GroupVersionResource{}, false
}
