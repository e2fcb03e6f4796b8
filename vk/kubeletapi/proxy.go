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

// Remote describes how this server connects to the API server of the provider.
type Remote struct {
	// URL is the URL of the API server. Its path is prepended to the path of every request.
	URL *url.URL
	// Transport sends requests with the credentials for the provider. It must use HTTP/1.1, because a stream begins
	// with an upgrade of the connection, which HTTP/2 does not support.
	Transport http.RoundTripper
	// Unreachable returns the reason why the provider counts as unreachable, or nil if it is reachable. If the field is
	// nil, requests wait until the caller gives up.
	Unreachable func() error
}

// maxErrorBytes is the maximum length of the provider's error message that is shown to the user.
const maxErrorBytes = 64 << 10

// translator converts the query of a kubelet request to the query of a request to a pod subresource.
type translator func(container string, query url.Values) (url.Values, error)

// serveSubresource proxies the request to a subresource of the provider's pod.
func (s *Server) serveSubresource(subresource string, translate translator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("pod")
		remoteNamespace, err := s.locatePod(r.Context(), namespace, name)
		if err != nil {
			s.refuseError(w, r, err)
			return
		}
		query, err := translate(r.PathValue("container"), r.URL.Query())
		if err != nil {
			writeRefusal(w, r, http.StatusBadRequest, err.Error())
			return
		}
		target := s.config.Remote.URL.JoinPath("api", "v1", "namespaces", remoteNamespace, "pods", name, subresource)
		target.RawQuery = query.Encode()
		s.proxyTo(target).ServeHTTP(w, r)
	})
}

// locatePod returns the provider's namespace of a local pod that is bound to this node.
func (s *Server) locatePod(ctx context.Context, namespace, name string) (string, error) {
	if _, found := s.config.Pods.Pod(namespace, name); !found {
		return "", &httpError{http.StatusNotFound, fmt.Sprintf("pod %s/%s is not bound to node %s", namespace, name, s.config.NodeName)}
	}
	remote, found := s.config.Namespaces.Remote(namespace)
	if !found {
		return "", &httpError{http.StatusNotFound, fmt.Sprintf("namespace %s is not offloaded to the provider of node %s: see its NamespaceOffloading", namespace, s.config.NodeName)}
	}
	return remote, s.checkOurs(ctx, namespace, remote, name)
}

// proxyTo returns a proxy that copies bytes between the caller and target until either side disconnects. Upgraded
// connections are also proxied.
func (s *Server) proxyTo(target *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = target
			r.Out.Host = target.Host
			r.Out.Header = forwardedHeader(r.Out.Header)
		},
		Transport:      unreachableTransport{s.config.Remote},
		FlushInterval:  -1, // -1 means that log lines are sent as soon as they are written
		ModifyResponse: adaptResponse,
		ErrorHandler:   s.refuseError,
	}
}

// refuseError responds with the error. Problems with the provider are also logged.
func (s *Server) refuseError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // no response can be sent, because the client has disconnected
	}
	code, message := codeOf(err), err.Error()
	if code == http.StatusBadGateway {
		log.FromContext(r.Context()).Error(err, "Cannot call the provider's API server", "path", r.URL.Path)
		message = fmt.Sprintf("calling the provider's API server for node %s, %v", s.config.NodeName, err)
	}
	writeRefusal(w, r, code, message)
}

// writeRefusal responds with an error in the format that the caller expects. Clients of a stream expect a Status
// object. All other clients get plain text, because the API server shows the body of a failed log request unchanged.
func writeRefusal(w http.ResponseWriter, r *http.Request, code int, message string) {
	message = printable.Line(message)
	if r.Header.Get("Upgrade") == "" {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The error is ignored, because the client may have disconnected.
	_ = json.NewEncoder(w).Encode(newStatus(code, reasons[code], message))
}

// newStatus returns a Status object that describes a failure.
func newStatus(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Message: message, Code: int32(code),
	}
}

// reasons maps HTTP status codes to the reasons of Status objects.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest,
	http.StatusNotFound:   metav1.StatusReasonNotFound,
	http.StatusBadGateway: metav1.StatusReasonServiceUnavailable,
	http.StatusForbidden:  metav1.StatusReasonForbidden,
}

// forwardedHeader returns the headers to forward, which are only the headers that negotiate the stream. The caller's
// credentials must not be sent to the provider, because they are valid in this cluster.
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

// bearerSubprotocol is the prefix of the subprotocol in which a browser sends its token when it opens a WebSocket.
const bearerSubprotocol = "base64url.bearer.authorization.k8s.io."

// withoutBearer removes subprotocols that contain a token.
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

// adaptResponse changes a response so that upgraded connections deliver all of their output, and errors are readable.
func adaptResponse(response *http.Response) error {
	if stream, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		response.Body = &drainingStream{ReadWriteCloser: stream}
		return nil
	}
	return readableError(response)
}

// readableError replaces a Status object in the body with its message, because the API server shows the body of a
// failed log request unchanged. If an upgrade was refused, the Status object is kept, because clients of a stream parse
// it. In both cases the provider's text is escaped, because clients show it on a terminal.
func readableError(response *http.Response) error {
	isStream := response.Request.Header.Get("Upgrade") != ""
	if response.StatusCode < http.StatusBadRequest && !isStream {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil {
		return fmt.Errorf("reading the provider's error, %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("reading the provider's error, %w", err)
	}
	kind, text := "text/plain; charset=utf-8", []byte(explainBody(body))
	if status := (metav1.Status{}); isStream && json.Unmarshal(body, &status) == nil && status.Message != "" {
		kind = "application/json"
		text, err = json.Marshal(newStatus(response.StatusCode, metav1.StatusReason(printable.Line(string(status.Reason))), string(text)))
		if err != nil {
			return fmt.Errorf("encoding the provider's error, %w", err)
		}
	}
	response.Header.Set("Content-Type", kind)
	// The new body is not compressed. A client that decompressed it would remove the escaping.
	response.Header.Del("Content-Encoding")
	response.Body = io.NopCloser(bytes.NewReader(text))
	response.ContentLength = int64(len(text))
	response.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}
