// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// tokenSource is a projected service account token of a pod.
type tokenSource struct {
	key      string // key in the Secret
	audience string // audience of the token; "" means this cluster's API server
	seconds  int64  // requested lifetime
}

// token is an issued token.
type token struct {
	value   string // empty if the token is on the provider and was not read
	sum     string // see tokenSum
	expires time.Time
	life    time.Duration
}

// renewalTime returns the time at which the token must be renewed: the beginning of the last fifth of its lifetime, as
// for kubelets.
func (t token) renewalTime() time.Time { return t.expires.Add(-t.life / 5) }

// defaultTokenSeconds is the lifetime in seconds that the API server uses if a source does not specify one.
const defaultTokenSeconds = 3600

// tokenSources returns the projected service account tokens of a pod. They never change, because a pod's volumes are
// immutable.
func tokenSources(pod *unstructured.Unstructured) (found []tokenSource) {
	for volume, source := range access.Projections(raw.Nested(pod.Object, "spec", "volumes")) {
		if projected := raw.Map(source["serviceAccountToken"]); projected != nil {
			found = append(found, newTokenSource(volume, projected))
		}
	}
	return found
}

// newTokenSource returns the tokenSource for a serviceAccountToken in a projected volume.
func newTokenSource(volume string, projected map[string]any) tokenSource {
	path, _ := projected["path"].(string)
	s := tokenSource{key: tokenKey(volume, path), seconds: defaultTokenSeconds}
	s.audience, _ = projected["audience"].(string)
	if seconds, ok := projected["expirationSeconds"].(int64); ok {
		s.seconds = seconds
	}
	return s
}

// tokenKey returns the key of a token in the Secret. The plugin for pods computes the same key. This corresponds to
// Liqo's ServiceAccount reflection.
func tokenKey(volume, path string) string {
	sum := sha256.Sum256([]byte(path))
	return volume + "-" + hex.EncodeToString(sum[:3])
}

// requestToken requests a token from this cluster. The token is bound to the pod, i.e. valid only while the pod exists.
func (h *Handler) requestToken(ctx context.Context, pod *unstructured.Unstructured, source tokenSource) (token, error) {
	account := access.ServiceAccount(pod)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &source.seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.GetName(), UID: pod.GetUID()},
	}}
	if source.audience != "" {
		request.Spec.Audiences = []string{source.audience}
	}
	var answer *authenticationv1.TokenRequest
	err := h.Clients.CallLocal(ctx, func(ctx context.Context) (err error) {
		answer, err = h.Clients.Core.ServiceAccounts(pod.GetNamespace()).CreateToken(ctx, account, request, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return token{}, deniedToken(account, pod, err)
	}
	h.Writes.Count("create", "local")
	issued := token{value: answer.Status.Token, sum: tokenSum(answer.Status.Token), expires: answer.Status.ExpirationTimestamp.Time, life: time.Duration(source.seconds) * time.Second}
	if granted := answer.Spec.ExpirationSeconds; granted != nil {
		// The lifetime in the response is used, because the API server may limit the requested lifetime.
		issued.life = time.Duration(*granted) * time.Second
	}
	return issued, nil
}

// tokenError means that a token could not be requested.
type tokenError struct {
	account, remedy string
	err             error
}

func (e *tokenError) Error() string {
	return fmt.Sprintf("requesting a token of service account %s: %v: %s", e.account, e.err, e.remedy)
}

func (e *tokenError) Unwrap() error { return e.err }

// Remedied implements failure.Remedied.
func (e *tokenError) Remedied() {}

// deniedToken adds the remedy to the error of a token request. If the pod no longer exists, it returns a conflict.
func deniedToken(account string, pod *unstructured.Unstructured, err error) error {
	switch {
	case isMissing(err, "pods"), apierrors.IsConflict(err):
		// The pod no longer exists, or another pod has taken its name. No Event is needed, because the watch will
		// report this.
		return apierrors.NewConflict(podsResource.GroupResource(), pod.GetName(), err)
	case isMissing(err, "serviceaccounts"):
		return &tokenError{account, "create it, " + access.WithoutRemedy, err}
	case admission.DenyingPolicy(err) != "":
		return &tokenError{account, "change the policy, or the token volumes of the pod, " + access.WithoutRemedy, err}
	case apierrors.IsForbidden(err):
		return &tokenError{account, "allow the virtual kubelet to create serviceaccounts/token in namespace " + pod.GetNamespace() +
			" (its role for offloaded namespaces does), " + access.WithoutRemedy, err}
	}
	return &tokenError{account, "correct the token volumes of the pod, " + access.WithoutRemedy, err}
}

// isMissing reports whether err means that an object of the resource was not found.
func isMissing(err error, resource string) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource
}
