// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/printable"
)

// Remote is the provider's API server.
type Remote struct {
	// URL of the server; a path in it is kept as prefix.
	URL *url.URL
	// Transport adds the credentials. It must speak HTTP/1.1: streams begin
	// with an upgrade of the connection, which HTTP/2 does not have.
	Transport http.RoundTripper
	// Unreachable says why the provider counts as down, nil that it is up. Without
	// it requests wait as long as their callers do.
	Unreachable func() error
}

// maxErrorBytes of an error from the provider that are shown to the user.
const maxErrorBytes = 64 << 10

// translator makes the query of a pod subresource from that of a kubelet path.
type translator func(container string, query url.Values) (url.Values, error)

// serveSubresource hands the request to a subresource of the provider's pod.
func (s *Server) serveSubresource(subresource string, translate translator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("pod")
		remoteNamespace, err := s.locate(r.Context(), namespace, name)
		if err != nil {
			s.refuseError(w, r, err)
			return
		}
		query, err := translate(r.PathValue("container"), r.URL.Query())
		if err != nil {
			refuse(w, r, http.StatusBadRequest, err.Error())
			return
		}
		target := s.config.Remote.URL.JoinPath("api", "v1", "namespaces", remoteNamespace, "pods", name, subresource)
		target.RawQuery = query.Encode()
		s.proxyTo(target).ServeHTTP(w, r)
	})
}

// locate finds the provider's namespace of a local pod of this node.
func (s *Server) locate(ctx context.Context, namespace, name string) (string, error) {
	if _, found := s.config.Pods.Pod(namespace, name); !found {
		return "", &refusal{http.StatusNotFound, fmt.Sprintf("pod %s/%s is not bound to node %s", namespace, name, s.config.NodeName)}
	}
	remote, found := s.config.Namespaces.Remote(namespace)
	if !found {
		return "", &refusal{http.StatusNotFound, fmt.Sprintf("namespace %s is not offloaded to the provider of node %s: see its NamespaceOffloading", namespace, s.config.NodeName)}
	}
	return remote, s.checkOurs(ctx, namespace, remote, name)
}

// proxyTo copies bytes between the caller and target, upgraded connections
// included, until either side leaves.
func (s *Server) proxyTo(target *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = target
			r.Out.Host = target.Host
			r.Out.Header = forwardedHeader(r.Out.Header)
		},
		Transport:      giveUp{s.config.Remote},
		FlushInterval:  -1, // log lines appear when they are written
		ModifyResponse: adaptResponse,
		ErrorHandler:   s.refuseError,
	}
}

// refuseError says why something was not done; trouble with the provider is
// logged, too.
func (s *Server) refuseError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has disconnected
	}
	code, message := codeOf(err), err.Error()
	if code == http.StatusBadGateway {
		log.FromContext(r.Context()).Error(err, "Cannot call the provider's API server", "path", r.URL.Path)
		message = fmt.Sprintf("calling the provider's API server for node %s, %v", s.config.NodeName, err)
	}
	refuse(w, r, code, message)
}

// refuse in the form in which the caller shows it: clients of a stream look for a
// Status object, while the API server shows the body of a failed log request as
// it is.
func refuse(w http.ResponseWriter, r *http.Request, code int, message string) {
	message = printable.Line(message)
	if r.Header.Get("Upgrade") == "" {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&metav1.Status{ // the client may have disconnected
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reasons[code], Message: message, Code: int32(code),
	})
}

// reasons as clients know them.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest,
	http.StatusNotFound:   metav1.StatusReasonNotFound,
	http.StatusBadGateway: metav1.StatusReasonServiceUnavailable,
	http.StatusForbidden:  metav1.StatusReasonForbidden,
}

// forwardedHeader keeps what negotiates the stream and nothing else: the
// caller's credentials are for this cluster, the provider must not see them.
func forwardedHeader(in http.Header) http.Header {
	out := http.Header{}
	for key, values := range in {
		switch {
		case key == "Connection", key == "Upgrade", key == "Accept", key == "Accept-Encoding",
			key == "X-Stream-Protocol-Version":
			out[key] = values
		case strings.HasPrefix(key, "Sec-Websocket-"):
			out[key] = withoutBearer(values)
		}
	}
	out.Set("User-Agent", "refract-virtual-kubelet")
	return out
}

// bearerSubprotocol is how browsers send a token when they open a WebSocket.
const bearerSubprotocol = "base64url.bearer.authorization.k8s.io."

// withoutBearer drops subprotocols that carry a token.
func withoutBearer(values []string) []string {
	kept := make([]string, 0, len(values))
	for _, value := range values {
		var protocols []string
		for protocol := range strings.SplitSeq(value, ",") {
			if !strings.HasPrefix(strings.TrimSpace(protocol), bearerSubprotocol) {
				protocols = append(protocols, protocol)
			}
		}
		kept = append(kept, strings.Join(protocols, ","))
	}
	return kept
}

// adaptResponse lets upgraded connections deliver all of their output, and
// makes errors readable.
func adaptResponse(response *http.Response) error {
	if stream, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		response.Body = &drainingStream{ReadWriteCloser: stream}
		return nil
	}
	return readableError(response)
}

// readableError replaces a Status object by its message, except for refused
// upgrades: clients of a stream parse the object themselves, while the API
// server shows the body of a failed log request as it is.
func readableError(response *http.Response) error {
	if response.StatusCode < http.StatusBadRequest || response.Request.Header.Get("Upgrade") != "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil {
		return fmt.Errorf("reading the provider's error, %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("reading the provider's error, %w", err)
	}
	if message := explained(body); message != string(body) {
		body = []byte(message)
		response.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}
