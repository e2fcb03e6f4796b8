// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/printable"
)

const (
	// ownershipTimeout limits the request that reads the owner of the provider's pod.
	ownershipTimeout = 10 * time.Second
	// maxMetadataBytes is the maximum size of a pod's metadata, including labels, annotations and managed fields.
	maxMetadataBytes = 4 << 20
	// metadataOnly is an Accept header that requests only the metadata of an object.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// httpError is an error with an HTTP status.
type httpError struct {
	code    int
	message string
}

func (r *httpError) Error() string { return r.message }

// codeOf returns the HTTP status of an error. An error that is not an httpError is the result of a problem with the
// provider.
func codeOf(err error) int {
	var refused *httpError
	if errors.As(err, &refused) {
		return refused.code
	}
	return http.StatusBadGateway
}

// checkOurs checks that the provider's pod was created for the local pod. If another client has created a pod with this
// name, users must not access it: otherwise everybody who may create pods in this cluster could get a shell in any pod
// of the remote namespace.
func (s *Server) checkOurs(ctx context.Context, namespace, remoteNamespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, ownershipTimeout)
	defer cancel()
	target := s.config.Remote.URL.JoinPath("api", "v1", "namespaces", remoteNamespace, "pods", name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", metadataOnly)
	response, err := unreachableTransport{s.config.Remote}.RoundTrip(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it does not answer within %s", ownershipTimeout)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // an error when closing is harmless, because the body was read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetadataBytes))
	if err != nil {
		return fmt.Errorf("reading pod %s/%s of the provider, %w", remoteNamespace, name, err)
	}
	switch {
	case response.StatusCode == http.StatusNotFound:
		return &httpError{http.StatusNotFound, fmt.Sprintf("pod %s/%s is not on the provider of node %s yet: see its status and Events", namespace, name, s.config.NodeName)}
	case response.StatusCode != http.StatusOK:
		return &httpError{response.StatusCode, "getting the pod from the provider, " + explainBody(body)}
	}
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &pod); err != nil {
		return fmt.Errorf("reading pod %s/%s of the provider, %w", remoteNamespace, name, err)
	}
	if pod.Labels[wire.OriginLabel] != s.config.ClusterID || pod.Labels[wire.NodeNameLabel] != s.config.NodeName {
		return &httpError{http.StatusForbidden, fmt.Sprintf("pod %s/%s of the provider of node %s does not belong to pod %s/%s: another client created it, rename one of the two",
			remoteNamespace, name, s.config.NodeName, namespace, name)}
	}
	return nil
}

// explainBody returns the message of the Status object in the response. If there is no Status object, it returns the
// text of the response. The text is escaped, because it is shown on the terminals of users.
func explainBody(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return printable.Text(status.Message)
	}
	return printable.Text(string(body))
}
