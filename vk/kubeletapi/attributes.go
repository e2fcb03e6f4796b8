// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// requiredAccess returns the permissions on the Node that allow the request. One of the permissions is sufficient. A
// kubelet with fine-grained authorization (Kubernetes 1.33 and later) requires the same permissions: nodes/stats,
// nodes/metrics, nodes/log and nodes/checkpoint for /stats, /metrics, /logs and /checkpoint; nodes/pods, nodes/healthz
// and nodes/configz for the paths with these names, with nodes/proxy as the alternative; and nodes/proxy for all other
// paths.
//
// requiredAccess is stricter than a kubelet in one point: requests that run commands in a container or connect to it
// need the verb create. WebSocket upgrades are GET requests, and a permission like "get nodes" should not allow running
// commands.
func requiredAccess(nodeName string, caller user.Info, r *http.Request) []authorizationv1.SubjectAccessReviewSpec {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range caller.GetExtra() {
		extra[key] = values
	}
	var found []authorizationv1.SubjectAccessReviewSpec
	for _, subresource := range subresourcesOf(r.URL.Path) {
		found = append(found, authorizationv1.SubjectAccessReviewSpec{
			User: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups(), Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verbOf(r), Version: "v1", Resource: "nodes", Subresource: subresource, Name: nodeName},
		})
	}
	return found
}

// subresourcesOf returns the subresources of the Node that allow access to a path. The subresource that allows the
// least comes first.
func subresourcesOf(path string) []string {
	switch {
	case isWithin(path, "/stats"):
		return []string{"stats"}
	case isWithin(path, "/metrics"):
		return []string{"metrics"}
	case isWithin(path, "/logs"):
		return []string{"log"}
	case isWithin(path, "/checkpoint"):
		return []string{"checkpoint"}
	case isWithin(path, "/statusz"):
		return []string{"statusz"}
	case isWithin(path, "/flagz"):
		return []string{"configz"}
	case isWithin(path, "/pods"), isWithin(path, "/runningpods"):
		return []string{"pods", "proxy"}
	case isWithin(path, "/healthz"):
		return []string{"healthz", "proxy"}
	case isWithin(path, "/configz"):
		return []string{"configz", "proxy"}
	default:
		return []string{"proxy"}
	}
}

// isWithin reports whether path is equal to root or below it.
func isWithin(path, root string) bool {
	rest, found := strings.CutPrefix(path, root)
	return found && (rest == "" || rest[0] == '/')
}

// verbOf returns the verb of the Kubernetes API for a request. Unknown methods have no verb and are never allowed.
func verbOf(r *http.Request) string {
	switch {
	case isWithin(r.URL.Path, "/exec"), isWithin(r.URL.Path, "/attach"), isWithin(r.URL.Path, "/portForward"):
		return "create"
	case r.Method == http.MethodGet:
		return "get"
	case r.Method == http.MethodPost:
		return "create"
	default:
		return ""
	}
}
