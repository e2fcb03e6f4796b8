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
)

const (
	// lookTimeout bounds the question whose pod it is.
	lookTimeout = 10 * time.Second
	// maxMetadataBytes of a pod: labels and annotations, and its managed fields.
	maxMetadataBytes = 4 << 20
	// metadataOnly asks the API server for no more than that.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// refusal is an error with an HTTP status.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

// codeOf an error: what is no refusal is trouble with the provider.
func codeOf(err error) int {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.code
	}
	return http.StatusBadGateway
}

// checkOurs checks that the provider's pod is the copy of the
// local pod. A pod that another client has put there under the same name is none
// for our users: permission to create pods here would give a shell in it.
func (s *Server) checkOurs(ctx context.Context, namespace, remoteNamespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	target := s.config.Remote.URL.JoinPath("api", "v1", "namespaces", remoteNamespace, "pods", name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", metadataOnly)
	response, err := giveUp{s.config.Remote}.RoundTrip(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it does not answer within %s", lookTimeout)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost when closing what was read fails
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetadataBytes))
	if err != nil {
		return fmt.Errorf("reading pod %s/%s of the provider, %w", remoteNamespace, name, err)
	}
	switch {
	case response.StatusCode == http.StatusNotFound:
		return &refusal{http.StatusNotFound, fmt.Sprintf("pod %s/%s is not on the provider of node %s yet: see its status and Events", namespace, name, s.config.NodeName)}
	case response.StatusCode != http.StatusOK:
		return &refusal{response.StatusCode, "getting the pod from the provider, " + explained(body)}
	}
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &pod); err != nil {
		return fmt.Errorf("reading pod %s/%s of the provider, %w", remoteNamespace, name, err)
	}
	if pod.Labels[wire.OriginLabel] != s.config.ClusterID || pod.Labels[wire.NodeNameLabel] != s.config.NodeName {
		return &refusal{http.StatusForbidden, fmt.Sprintf("pod %s/%s of the provider of node %s does not belong to pod %s/%s: another client created it, rename one of the two",
			remoteNamespace, name, s.config.NodeName, namespace, name)}
	}
	return nil
}

// explained is the message of a Status object, or else what the provider said.
func explained(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return status.Message
	}
	return string(body)
}
