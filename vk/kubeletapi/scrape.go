// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/printable"
)

const (
	// maxScrapeBytes is the maximum size of a response from the provider. It is sufficient for tens of thousands of
	// containers.
	maxScrapeBytes = 256 << 20
	// maxSampleBytes is the maximum length of a line in the response. Reading stops at a longer line.
	maxSampleBytes = 64 << 10
	// exposition is the content type of the text format of Prometheus.
	exposition = "text/plain; version=0.0.4; charset=utf-8"
)

// errNotScraped is returned if the provider does not serve the metrics of its kubelets to other clusters, or denies
// this cluster access to them.
var errNotScraped = errors.New("the provider does not scrape its kubelets for other clusters")

// serveScrape responds to a path below /metrics with the metrics of the provider's kubelets about the pods of this
// node. The provider must have the API metrics.liqo.io, which Liqo's metric agent serves, because the kubelets
// themselves would return the metrics of all pods on their nodes. families is the prefix of the metric families to
// serve. If these metrics cannot be read, the handler in the argument otherwise responds instead.
func (s *Server) serveScrape(path, families string, otherwise http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), metricsTimeout)
		defer cancel()
		answer, err := s.scrapeProvider(ctx, path)
		if err != nil {
			if !errors.Is(err, errNotScraped) {
				log.FromContext(ctx).V(1).Info("Cannot read kubelet metrics from the provider", "path", path, "err", err)
			}
			otherwise(w, r)
			return
		}
		defer answer.Close() //nolint:errcheck // nothing is lost when closing what was read fails
		w.Header().Set("Content-Type", exposition)
		if err := s.filterSamples(w, io.LimitReader(answer, maxScrapeBytes), families); err != nil {
			log.FromContext(ctx).V(1).Info("Kubelet metrics of the provider are incomplete", "path", path, "err", err)
		}
	}
}

// scrapeProvider requests the metrics of this cluster's pods from the provider. The response contains the local names
// of the namespaces.
func (s *Server) scrapeProvider(ctx context.Context, path string) (io.ReadCloser, error) {
	target := s.config.Remote.URL.JoinPath("apis", "metrics.liqo.io", "v1beta1", "scrape", s.config.ClusterID, path)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain, */*;q=0.1")
	response, err := unreachableTransport{s.config.Remote}.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	_ = response.Body.Close()
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusForbidden {
		return nil, errNotScraped
	}
	return nil, fmt.Errorf("%s answered %s", target.Path, response.Status)
}

// filterSamples copies the samples about pods of this node unchanged, with the comments of their metric families, and
// drops all other samples. The provider controls the response. Without the filter, samples about other pods or about no
// pod would be attributed to this cluster, and samples of other families or with target labels would be attributed to
// another scrape job.
func (s *Server) filterSamples(to io.Writer, from io.Reader, families string) error {
	out := bufio.NewWriter(to)
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 4<<10), maxSampleBytes)
	var comments []byte // comments of the current family that were not copied yet
	// sampled is true if the current family had a sample. The next comment then begins another family.
	sampled := false
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte("# HELP ")), bytes.HasPrefix(line, []byte("# TYPE ")):
			if sampled {
				comments, sampled = comments[:0], false
			}
			if isCommentOf(line, families) {
				comments = append(append(comments, line...), '\n')
			}
		case s.isOurs(line, families):
			_, _ = out.Write(comments) // Flush returns this error, too
			_, _ = out.Write(line)
			_ = out.WriteByte('\n')
			comments, sampled = comments[:0], true
		default:
			sampled = true
		}
		if len(comments) > maxSampleBytes {
			return errors.New("comments without samples")
		}
	}
	return errors.Join(lines.Err(), out.Flush())
}

// isCommentOf reports whether a comment is printable and belongs to a metric family with this prefix. line must begin
// with "# HELP " or "# TYPE ".
func isCommentOf(line []byte, families string) bool {
	return bytes.HasPrefix(line[len("# HELP "):], []byte(families)) && printable.IsLine(string(line))
}

// isOurs reports whether a line of the text format is a sample about a pod of this node, in a metric family with this
// prefix.
func (s *Server) isOurs(line []byte, families string) bool {
	// This check comes first, because it is cheap and excludes most lines that are not samples about pods.
	if !bytes.HasPrefix(line, []byte(families)) || !bytes.Contains(line, []byte("pod=")) {
		return false
	}
	if !printable.IsLine(string(line)) {
		return false
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(io.MultiReader(bytes.NewReader(line), bytes.NewReader([]byte{'\n'})))
	if err != nil || len(parsed) != 1 {
		return false
	}
	for name, family := range parsed {
		for _, metric := range family.GetMetric() {
			return strings.HasPrefix(name, families) && s.isPlausible(metric)
		}
	}
	return false
}

// isPlausible reports whether a sample belongs to a pod that is bound to this node, was not measured in the future, and
// has no target label of Prometheus. If Prometheus scrapes with honor_labels, a target label would assign the sample to
// another target.
func (s *Server) isPlausible(metric *dto.Metric) bool {
	if time.UnixMilli(metric.GetTimestampMs()).After(s.counters.clock.Now().Add(maxClockSkew)) {
		return false
	}
	for _, pair := range metric.GetLabel() {
		if isTargetLabel(pair.GetName()) || !printable.IsLine(pair.GetName()) || !printable.IsLine(pair.GetValue()) {
			return false
		}
	}
	_, bound := s.config.Pods.Pod(labelValue(metric, "namespace"), labelValue(metric, "pod"))
	return bound
}

// isTargetLabel reports whether a label identifies the target of a scrape. Kubelets never set such labels.
func isTargetLabel(name string) bool {
	return name == "job" || name == "instance" || name == "node" || strings.HasPrefix(name, "__")
}

// labelValue returns the value of a metric's label, or an empty string if the metric does not have the label.
func labelValue(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
