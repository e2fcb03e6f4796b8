// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

const (
	// readHeaderTimeout limits how long a client may take to send the header of its request. With a longer timeout,
	// idle connections hold memory for longer.
	readHeaderTimeout = 10 * time.Second
	// drainTimeout limits the wait for running scrapes at the end of the process.
	drainTimeout = 2 * time.Second
)

// MetricsHandler returns a handler that serves the metrics of the registries at /metrics.
func MetricsHandler(registries ...prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers(registries), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

// ProcessMetrics returns the metrics of the Go runtime and of the process.
func ProcessMetrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	// These metrics show the cost of garbage collection, which should be checked first in a process with caches.
	collection := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/cpu/classes/(gc/total|total|idle):cpu-seconds$")}
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collection)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// HealthHandler returns a handler for /healthz and /readyz. /healthz fails if the process should be restarted. /readyz
// fails while the process is not ready. With the parameter ?verbose, both list their checks.
func HealthHandler(alive, ready map[string]healthz.Checker) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": alive, "/readyz": ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

// ProfilingHandler returns a handler for /debug/pprof/.
func ProfilingHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// Closed returns a check that succeeds when the channel is closed. reason says what is missing until then.
func Closed(channel <-chan struct{}, reason string) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-channel:
			return nil
		default:
			return errors.New(reason)
		}
	}
}

// Listen listens on address, the value of the flag with the given name.
func Listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s=%s: listening there, %w", flag, address, err)
	}
	return listener, nil
}

// Serve serves HTTP without TLS on listener until ctx is done. It then closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout}
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving on %s, %w", listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-serving.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(drain) != nil {
			return server.Close()
		}
		return nil
	})
	return group.Wait()
}
