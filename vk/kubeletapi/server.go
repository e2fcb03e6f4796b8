// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// readHeaderTimeout limits how long a caller may take to send the request headers.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout limits how long an idle connection stays open.
	idleTimeout = 90 * time.Second
	// drainTimeout limits how long short requests may take to complete at shutdown. Streams are cut, as in a kubelet.
	drainTimeout = 3 * time.Second
)

// Config is the configuration of a Server. All fields are required.
type Config struct {
	// NodeName is the name of the Node that this server serves, and ClusterID the ID of the local cluster.
	NodeName, ClusterID string
	// Pods is the source of the Node's pods.
	Pods PodSource
	// Namespaces maps local namespaces to namespaces of the provider.
	Namespaces NamespaceMapper
	// Remote is the API server that requests are proxied to.
	Remote Remote
	// Access authenticates and authorizes callers.
	Access *Access
	// Certificate returns the serving certificate.
	Certificate CertificateSource
	// Metrics serves the metrics of the process.
	Metrics http.Handler
}

// Server serves the kubelet API of one virtual node.
type Server struct {
	config   Config
	counters counters
}

// New returns a server for the configuration. Serve starts the server.
func New(config Config) *Server {
	if config.Remote.URL.Path == "" {
		// The trailing slash is needed because paths are appended to the URL.
		config.Remote.URL = config.Remote.URL.JoinPath("/")
	}
	return &Server{config: config, counters: counters{clock: clock.RealClock{}, containers: map[containerKey]*counter{}}}
}

// Handler returns the handler of all paths. It authenticates and authorizes every request.
func (s *Server) Handler() http.Handler { return s.config.Access.guardHandler(s.newMux()) }

func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	health := http.StripPrefix("/healthz", &healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping}})
	mux.Handle("GET /healthz", health)
	mux.Handle("GET /healthz/", health)
	// The server accepts the path with and without the final slash and without a redirect, as a kubelet does.
	for _, end := range []string{"", "/{$}"} {
		mux.HandleFunc("GET /pods"+end, s.servePods)
		mux.HandleFunc("GET /runningpods"+end, s.serveRunningPods)
	}
	mux.Handle("GET /metrics", s.config.Metrics)
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /metrics/resource", s.serveResource)
	mux.HandleFunc("GET /metrics/cadvisor", s.serveScrape("metrics/cadvisor", "container_", s.serveCAdvisor))
	mux.HandleFunc("GET /metrics/probes", s.serveScrape("metrics/probes", "prober_probe_", serveNone))
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", s.serveSubresource("log", logQuery))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.Handle(method+" /exec/{namespace}/{pod}/{container}", s.serveSubresource("exec", execQuery))
		mux.Handle(method+" /attach/{namespace}/{pod}/{container}", s.serveSubresource("attach", streamQuery))
		mux.Handle(method+" /portForward/{namespace}/{pod}", s.serveSubresource("portforward", portForwardQuery))
	}
	mux.HandleFunc("/", s.serveRefusal)
	return mux
}

// Serve serves on listener until ctx is done, and then closes listener. At the end, open streams are cut, and other
// requests get a few seconds to complete.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	streams, cut := context.WithCancel(ctx)
	defer cut()
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return streams },
		// Errors of connections are logged only at verbosity 1, because port scanners cause failed handshakes.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log.FromContext(ctx).V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			ClientAuth:     tls.RequestClientCert, // Access verifies the client certificate
			GetCertificate: s.config.Certificate,
			NextProtos:     []string{"h2", "http/1.1"},
		},
	}
	var group errgroup.Group
	group.Go(func() error {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			cut()
			return fmt.Errorf("serving the kubelet API on %s, %w", listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-streams.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if err := server.Shutdown(drain); err != nil {
			return server.Close()
		}
		return nil
	})
	return group.Wait()
}
