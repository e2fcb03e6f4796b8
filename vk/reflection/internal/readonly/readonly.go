// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package readonly makes it possible to evaluate objects without changing either cluster. The context of such an
// evaluation is marked. If a request with a marked context is not a read, the transport of the client refuses it. An
// evaluation therefore runs the same code as real reflection, and this code does not have to check the mark.
//
// A refused request gets a response with the status 403 and the reason WouldWrite. The transport does not return an
// error, because the provider would then count as unreachable.
package readonly

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/time/rate"
)

// WouldWriteReason is the reason in the Status of a refused request. API servers do not use this reason.
const WouldWriteReason metav1.StatusReason = "WouldWrite"

type mark struct{}

// With returns a marked context. Requests with this context cannot change anything. Reads with this context wait for
// the limiter.
func With(ctx context.Context, reads *rate.Limiter) context.Context {
	return context.WithValue(ctx, mark{}, reads)
}

// Marked reports whether the context is marked, so that requests with it cannot change anything.
func Marked(ctx context.Context) bool { return limiterOf(ctx) != nil }

func limiterOf(ctx context.Context) *rate.Limiter {
	reads, _ := ctx.Value(mark{}).(*rate.Limiter)
	return reads
}

// Refuse returns an error if the context is marked. Code that remembers its writes must call Refuse first, so that it
// remembers only real writes.
func Refuse(ctx context.Context, verb, kind, namespace, name string) error {
	if !Marked(ctx) {
		return nil
	}
	return newRefusal(fmt.Sprintf("%s %s %s/%s", verb, kind, namespace, name))
}

// Refused reports whether this package refused the request. Such an error is not a response from the API server.
func Refused(err error) bool { return apierrors.ReasonForError(err) == WouldWriteReason }

func newRefusal(request string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: WouldWriteReason, Message: "would " + request + "; the evaluation is read-only",
	}}
}

// reads reports whether a request only reads. A GET request that connects to a pod, a node or a Service does not count
// as a read, because it may change something there.
func reads(request *http.Request) bool {
	if request.Method != http.MethodGet || request.Header.Get("Upgrade") != "" {
		return false
	}
	switch subresource(request.URL.Path) {
	case "exec", "attach", "portforward", "proxy":
		return false
	}
	return true
}

// subresource returns the subresource in the path of a request for an object, or "" if there is none.
func subresource(path string) string {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch prefix := map[string]int{"api": 2, "apis": 3}[segments[0]]; {
	case prefix == 0 || len(segments) <= prefix:
		return ""
	case segments[prefix] == "namespaces" && len(segments) > prefix+4: // namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
		return segments[prefix+4]
	case segments[prefix] != "namespaces" && len(segments) > prefix+2: // RESOURCE/NAME/SUBRESOURCE
		return segments[prefix+2]
	}
	return ""
}
