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

// ProfilingAddress is where profiles are served. It is a loopback address, because profiles contain secrets and other pods
// must not read them.
const ProfilingAddress = "127.0.0.1:6060"

// ProfilingEndpoint returns the endpoint for /debug/pprof/, or none if profiling is not enabled.
func ProfilingEndpoint(enabled bool) Endpoint {
	if !enabled {
		return Endpoint{Address: NoAddress}
	}
	return Endpoint{Flag: "enable-profiling", Address: ProfilingAddress, Handler: profilingHandler()}
}

func profilingHandler() http.Handler {
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

// NoAddress is the address of an endpoint that is not served.
const NoAddress = "0"

// Endpoint is an address of a process that serves HTTP to those who operate it.
type Endpoint struct {
	// Flag is the name of the flag with the address, for errors.
	Flag string
	// Address is where to listen, or NoAddress.
	Address string
	Handler http.Handler
}

// ServeEndpoints starts to serve the endpoints in group until ctx is done. The error names the flag of an address where
// this is not possible.
func ServeEndpoints(ctx context.Context, group *errgroup.Group, endpoints ...Endpoint) error {
	for _, endpoint := range endpoints {
		if endpoint.Address == NoAddress {
			continue
		}
		listener, err := Listen(endpoint.Flag, endpoint.Address)
		if err != nil {
			return err
		}
		group.Go(func() error { return Serve(ctx, listener, endpoint.Handler) })
	}
	return nil
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
