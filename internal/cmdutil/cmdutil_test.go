// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/printable"
)

func TestAllLoggersWriteTheSameFormat(t *testing.T) {
	var out bytes.Buffer
	logs := cmdutil.Logs{Format: "json", Verbosity: 1}
	require.NoError(t, logs.Install(&out))
	log.Log.Info("runtime", "node", "milan")
	log.Log.V(1).Info("detail")
	log.Log.V(2).Info("too much detail")
	klog.InfoS("klog", "node", "milan")
	slog.Info("slog", "node", "milan")
	var messages []string
	for line := range strings.Lines(out.String()) {
		var entry map[string]any
		require.NoErrorf(t, json.Unmarshal([]byte(line), &entry), "%q is no JSON", line)
		messages = append(messages, entry["msg"].(string))
	}
	if got, want := strings.Join(messages, ","), "runtime,detail,klog,slog"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	if err := (&cmdutil.Logs{Format: "xml"}).Install(io.Discard); err == nil || !strings.Contains(err.Error(), `--log-format is "xml": use text or json`) {
		t.Errorf("a wrong format gives %v", err)
	}
	if err := (&cmdutil.Logs{Format: "text", Verbosity: -1}).Install(io.Discard); err == nil || !strings.Contains(err.Error(), `--v=-1: use 0 or more`) {
		t.Errorf("a negative verbosity gives %v", err)
	}
}

// TestLogsAreEscapedAndBounded checks that text from another cluster in a log line cannot harm a terminal, whichever
// library logs it. In JSON, the text must be complete.
func TestLogsAreEscapedAndBounded(t *testing.T) {
	attack := "x\x1b]0;pwned\a\u009b31m\u202e\x7f\nmsg=forged"
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		require.NoError(t, (&cmdutil.Logs{Format: format}).Install(&out))
		runtime := logr.FromSlogHandler(slog.Default().Handler()) // the logger of package log can be set only once per process
		runtime.Info("runtime "+attack, "err", attack)
		runtime.Error(errors.New(attack+strings.Repeat("long", 1<<20)), "failed", "k"+attack, attack)
		klog.ErrorS(errors.New(attack), "klog")
		klog.Warning(attack)
		slog.Warn("slog", "err", errors.New(strings.Repeat("long", 1<<20)), "text", attack)
		if lines := strings.Count(out.String(), "\n"); lines != 5 {
			t.Errorf("%s: %d lines, want 5", format, lines)
		}
		if out.Len() > 100<<10 {
			t.Errorf("%s: %d bytes", format, out.Len())
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); !printable.IsLine(line) {
				t.Errorf("%s: logged %.200q", format, line)
			}
			var entry map[string]any
			if format != "json" {
				continue
			}
			require.NoError(t, json.Unmarshal([]byte(line), &entry))
			if entry["msg"] == "slog" && entry["text"] != attack {
				t.Errorf("the content is %q", entry["text"])
			}
		}
	}
}

// serve runs handler until the test ends and returns its address.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := cmdutil.Listen("metrics-address", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cmdutil.Serve(ctx, listener, handler) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended, "ending the server")
	})
	return listener.Addr().String()
}

func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestMetricsAndHealth(t *testing.T) {
	metrics := serve(t, cmdutil.MetricsHandler(cmdutil.ProcessMetrics()))
	if code, body := get(t, metrics, "/metrics"); code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
		t.Errorf("metrics: %d %s", code, body)
	}
	started := make(chan struct{})
	broken := errors.New("broken")
	health := serve(t, cmdutil.HealthHandler(
		map[string]healthz.Checker{"disk": func(*http.Request) error { return broken }},
		map[string]healthz.Checker{"start": cmdutil.Closed(started, "not started yet")}))
	for path, want := range map[string]int{"/healthz": http.StatusInternalServerError, "/readyz": http.StatusInternalServerError, "/other": http.StatusNotFound} {
		if code, body := get(t, health, path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	close(started)
	if code, body := get(t, health, "/readyz?verbose"); code != http.StatusOK || !strings.Contains(body, "[+]start ok") {
		t.Errorf("ready: %d %s", code, body)
	}
}

func TestTakenAddressNamesTheFlag(t *testing.T) {
	address := serve(t, http.NotFoundHandler())
	group, ctx := errgroup.WithContext(t.Context())
	err := cmdutil.ServeEndpoints(ctx, group,
		cmdutil.Endpoint{Flag: "health-probe-address", Address: cmdutil.NoAddress}, cmdutil.ProfilingEndpoint(false),
		cmdutil.Endpoint{Flag: "metrics-address", Address: address, Handler: http.NotFoundHandler()})
	require.ErrorContains(t, err, "--metrics-address="+address)
	assert.NoError(t, group.Wait(), "nothing is served at the other addresses")
}

func TestVersionNamesTheGoRelease(t *testing.T) {
	if got := cmdutil.Version(); !strings.Contains(got, "go1.") {
		t.Errorf("got %q", got)
	}
}
