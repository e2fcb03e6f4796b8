// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package apistub

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

func statusOf(code int32, reason metav1.StatusReason, k key) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: fmt.Sprintf("%s %q: %s", k.GroupResource(), k.name, reason), Details: &metav1.StatusDetails{Group: k.Group, Kind: k.Resource, Name: k.name}}
}

func answer(w http.ResponseWriter, code int, value any) {
	if status, ok := value.(*metav1.Status); ok && status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// serve responds to a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case path == "readyz":
		s.serveReadiness(w, r)
		return
	case path == "version":
		answer(w, http.StatusOK, map[string]string{"gitVersion": "v1.36.0", "major": "1", "minor": "36"})
		return
	case path == "api":
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case path == "apis":
		answer(w, http.StatusOK, s.listGroups())
		return
	}
	parts := strings.Split(path, "/")
	version := schema.GroupVersion{Version: "v1"}
	rest := parts[min(len(parts), 2):]
	if parts[0] == "apis" && len(parts) > 2 {
		version, rest = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	}
	if len(rest) == 0 {
		s.serveResources(w, version)
		return
	}
	s.serveObjects(w, r, version, rest)
}

// serveReadiness responds to a readiness probe. The probe fails if OnRequest returns a Failure for it.
func (s *Server) serveReadiness(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	failure := (*Failure)(nil)
	if s.onRequest != nil {
		failure = s.onRequest(Request{Verb: "get", Resource: "readyz", Header: r.Header})
	}
	s.mu.Unlock()
	if failure != nil {
		fail(w, failure, key{})
		return
	}
	answer(w, http.StatusOK, "ok")
}

func (s *Server) listGroups() *metav1.APIGroupList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for gvr := range s.resources {
		if gvr.Group == "" || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == gvr.Group }) {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: gvr.GroupVersion().String(), Version: gvr.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gvr.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return list
}

func (s *Server) serveResources(w http.ResponseWriter, version schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: version.String()}
	for gvr, found := range s.resources {
		if gvr.GroupVersion() == version {
			served := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
			if strings.HasSuffix(gvr.Resource, "reviews") {
				served = metav1.Verbs{"create"}
			}
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: gvr.Resource, Kind: found.kind, Namespaced: found.namespaced, Verbs: served})
		}
	}
	if len(list.APIResources) == 0 {
		answer(w, http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound, key{}))
		return
	}
	answer(w, http.StatusOK, list)
}

// verbs contains the verbs of requests for a single object, by HTTP method.
var verbs = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// parse returns the Request for an HTTP request. rest contains the segments of the path after the version.
func parse(r *http.Request, rest []string) Request {
	request := Request{Verb: verbs[r.Method], Header: r.Header}
	if rest[0] == "namespaces" && len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
		request.NS, rest = rest[1], rest[2:]
	}
	request.Resource = rest[0]
	if len(rest) > 1 {
		request.Name = rest[1]
	} else if r.Method == http.MethodGet {
		request.Verb = "list"
		if r.URL.Query().Get("watch") != "" {
			request.Verb = "watch"
		}
	}
	if len(rest) > 2 {
		request.Subresource = rest[2]
	}
	return request
}

// serveObjects responds to a request for objects.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request, version schema.GroupVersion, rest []string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has closed the connection
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		if body, err = jsonOf(body); err != nil {
			answer(w, http.StatusUnsupportedMediaType, statusOf(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, key{}))
			return
		}
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	request := parse(r, rest)
	request.Group = version.Group
	s.mu.Lock()
	if request.IsWrite() {
		s.sent = append(s.sent, request)
	}
	failure := (*Failure)(nil)
	if s.onRequest != nil {
		failure = s.onRequest(request)
	}
	gvr := version.WithResource(request.Resource)
	k := key{gvr, request.NS, request.Name}
	if failure != nil && !failure.IsServed {
		s.mu.Unlock()
		fail(w, failure, k)
		return
	}
	if _, ok := s.resources[gvr]; ok && request.Verb == "watch" {
		s.mu.Unlock()
		s.watch(w, r, k)
		return
	}
	code, value, change := s.respond(r, request, k, body)
	react := s.afterWrite
	s.mu.Unlock()
	if change != nil && react != nil {
		react(*change)
	}
	if failure != nil {
		fail(w, failure, k)
		return
	}
	answer(w, code, value)
}

// jsonOf converts an object from protobuf to JSON. Clients of built-in kinds use protobuf unless they are configured
// otherwise.
func jsonOf(body []byte) ([]byte, error) {
	object, kind, err := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme).Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(object)
}

// fail responds with a failure, or closes the connection without a response.
func fail(w http.ResponseWriter, failure *Failure, k key) {
	if failure.Code == 0 {
		panic(http.ErrAbortHandler)
	}
	status := failure.Status
	if status == nil {
		status = statusOf(failure.Code, failure.Reason, k)
	}
	if failure.Status == nil && failure.Reason == metav1.StatusReasonInvalid {
		// For an invalid object, the response lists the invalid fields. If a test in a patch fails, the response lists
		// no fields.
		status.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "Invalid value"}}
	}
	answer(w, int(failure.Code), status)
}

// respond executes a request and returns the response. change is nil unless a write was executed.
func (s *Server) respond(r *http.Request, request Request, k key, body []byte) (code int, value any, change *Change) {
	user := s.authenticate(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		user = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	if user == "" {
		return http.StatusUnauthorized, statusOf(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, k), nil
	}
	if review := s.review(request, user, body); review != nil {
		return http.StatusCreated, review, nil
	}
	if _, ok := s.resources[k.GroupVersionResource]; !ok || request.Subresource == "token" {
		return http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound, k), nil
	}
	asMetadata := isMetadataOnly(r)
	switch request.Verb {
	case "list":
		return http.StatusOK, s.list(r, k, asMetadata), nil
	case "get":
		if s.objects[k] == nil {
			return http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound, k), nil
		}
		return http.StatusOK, present(s.objects[k], asMetadata), nil
	case "create":
		k.name = nameOf(body)
	}
	query := r.URL.Query()
	manager := query.Get("fieldManager")
	if manager == "" {
		manager = strings.Split(r.UserAgent(), "/")[0]
	}
	object, status := s.write(request, k, r.Header.Get("Content-Type"), manager, query.Get("force") == "true", body)
	if status != nil {
		return int(status.Code), status, nil
	}
	s.writes++
	code = http.StatusOK
	if request.Verb == "create" {
		code = http.StatusCreated
	}
	return code, present(object, asMetadata), &Change{Verb: request.Verb, Object: object.DeepCopy()}
}

// nameOf returns the name of a new object. If the object only has a generateName, nameOf generates a name.
func nameOf(body []byte) string {
	object := &metav1.PartialObjectMetadata{}
	if json.Unmarshal(body, object) != nil || object.Name != "" {
		return object.Name
	}
	return object.GenerateName + rand.String(5)
}

// isMetadataOnly reports whether the client requests only the metadata of objects.
func isMetadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func present(object *unstructured.Unstructured, asMetadata bool) map[string]any {
	if !asMetadata {
		return object.DeepCopy().Object
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object.DeepCopy().Object["metadata"]}
}

// selectorOf returns a function that reports whether the list or watch selects an object.
func selectorOf(r *http.Request) (func(*unstructured.Unstructured) bool, error) {
	query := r.URL.Query()
	byLabel, labelErr := labels.Parse(query.Get("labelSelector"))
	byField, fieldErr := fields.ParseSelector(query.Get("fieldSelector"))
	return func(object *unstructured.Unstructured) bool {
		kind, _, _ := unstructured.NestedString(object.Object, "type")
		node, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
		reason, _, _ := unstructured.NestedString(object.Object, "reason")
		about, _, _ := unstructured.NestedStringMap(object.Object, "involvedObject")
		return byLabel.Matches(labels.Set(object.GetLabels())) &&
			byField.Matches(fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace(),
				"type": kind, "spec.nodeName": node, "reason": reason, "involvedObject.kind": about["kind"], "involvedObject.name": about["name"]})
	}, errors.Join(labelErr, fieldErr)
}

// list returns the response to a list request, with the selected objects sorted by name.
func (s *Server) list(r *http.Request, k key, asMetadata bool) map[string]any {
	isSelected, err := selectorOf(r)
	items := []any{}
	for _, other := range slices.SortedFunc(maps.Keys(s.objects), func(a, b key) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) }) {
		object := s.objects[other]
		if other.GroupVersionResource != k.GroupVersionResource || k.namespace != "" && other.namespace != k.namespace || err != nil {
			continue
		}
		if isSelected(object) {
			items = append(items, present(object, asMetadata))
		}
	}
	list := map[string]any{"apiVersion": k.GroupVersion().String(), "kind": s.resources[k.GroupVersionResource].kind + "List", "metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)}, "items": items}
	if asMetadata {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return list
}

// review responds to access reviews, token reviews and token requests. It returns nil for other requests.
func (s *Server) review(r Request, user string, body []byte) any {
	switch {
	case r.Resource == "selfsubjectaccessreviews":
		review := &authorizationv1.SelfSubjectAccessReview{}
		_ = json.Unmarshal(body, review)
		attributes := review.Spec.ResourceAttributes
		review.Status.Allowed = attributes != nil && (s.refused == nil || !s.refused(*attributes))
		return review
	case r.Resource == "selfsubjectreviews":
		review := &authenticationv1.SelfSubjectReview{}
		review.Status.UserInfo.Username = user
		return review
	case r.Resource == "tokenreviews":
		review := &authenticationv1.TokenReview{}
		_ = json.Unmarshal(body, review)
		review.Status.User.Username = s.authenticate(review.Spec.Token)
		review.Status.Authenticated = review.Status.User.Username != ""
		return review
	case r.Subresource == "token":
		account := s.objects[key{schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, r.NS, r.Name}]
		if account == nil {
			return nil // the object of the subresource does not exist
		}
		request := &authenticationv1.TokenRequest{}
		_ = json.Unmarshal(body, request)
		life := time.Hour
		if request.Spec.ExpirationSeconds != nil {
			life = time.Duration(*request.Spec.ExpirationSeconds) * time.Second
		}
		request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(life))
		request.Status.Token = tokenFor(serviceaccount.MakeUsername(r.NS, r.Name), account.GetUID(), life)
		return request
	}
	return nil
}

// claims contains the claims in the token of a ServiceAccount. The token is not signed.
type claims struct {
	Subject string    `json:"sub"`
	Issued  int64     `json:"iat"`
	Expires int64     `json:"exp"`
	UID     types.UID `json:"uid"`
}

func tokenFor(user string, uid types.UID, life time.Duration) string {
	text, _ := json.Marshal(claims{user, time.Now().Unix(), time.Now().Add(life).Unix(), uid})
	return "e30." + base64.RawURLEncoding.EncodeToString(text) + ".e30"
}

// authenticate returns the user of a token, or "" if the token is not valid. A token becomes invalid when its
// ServiceAccount is deleted.
func (s *Server) authenticate(token string) string {
	if token == AdminToken {
		return "admin"
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	found := claims{}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &found) != nil || time.Now().Unix() >= found.Expires {
		return ""
	}
	namespace, name, err := serviceaccount.SplitUsername(found.Subject)
	account := s.objects[key{schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, namespace, name}]
	if err != nil || account == nil || account.GetUID() != found.UID {
		return ""
	}
	return found.Subject
}
