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
	// maxScrapeBytes is the maximum size of a response of the provider: some ten thousand containers.
	maxScrapeBytes = 256 << 20
	// maxSampleBytes is the maximum length of one of its lines. A longer line ends the response.
	maxSampleBytes = 64 << 10
	// exposition is the content type of the text format of Prometheus.
	exposition = "text/plain; version=0.0.4; charset=utf-8"
)

// errNotScraped is returned if the provider does not scrape its kubelets for other clusters, or does not allow this
// cluster to request it.
var errNotScraped = errors.New("the provider does not scrape its kubelets for other clusters")

// serveScrape responds to a path below /metrics with the metrics of the provider's kubelets about the pods of this node.
// It needs the API metrics.liqo.io on the provider, which Liqo's metric agent serves, because the kubelets themselves
// would show every pod of their node. families is the prefix of the metric families. Without this API, the handler
// otherwise responds.
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

// scrapeProvider requests the metrics of this cluster's pods from the provider. Their namespaces have the names in this cluster.
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

// filterSamples copies the samples of pods of this node unchanged, with the comments of their families. The provider
// controls the response. A sample of another pod, or of no pod, would pass for a sample of this cluster. A sample of
// another family, or with the labels of a target, would pass for a sample of another job.
func (s *Server) filterSamples(to io.Writer, from io.Reader, families string) error {
	out := bufio.NewWriter(to)
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 4<<10), maxSampleBytes)
	var comments []byte // comments of the family, until one of its samples is copied
	sampled := false    // there were samples since the comments
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
			_, _ = out.Write(comments) // an error is returned by the flush
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

// isCommentOf reports whether a comment, after its first word, belongs to a family with this prefix and is printable.
func isCommentOf(line []byte, families string) bool {
	return bytes.HasPrefix(line[len("# HELP "):], []byte(families)) && printable.IsLine(string(line))
}

// isOurs reports whether a line of the text format is a sample of a pod that is bound to this node, in a family with
// this prefix.
func (s *Server) isOurs(line []byte, families string) bool {
	// This check excludes most other lines, and is cheaper than parsing them.
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
// has no target label of Prometheus. With honor_labels, such a label would assign it to another target.
func (s *Server) isPlausible(metric *dto.Metric) bool {
	if time.UnixMilli(metric.GetTimestampMs()).After(s.counters.clock.Now().Add(mostSkew)) {
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

// isTargetLabel reports whether a label identifies the target of a scrape. Kubelets set none of them.
func isTargetLabel(name string) bool {
	return name == "job" || name == "instance" || name == "node" || strings.HasPrefix(name, "__")
}

// labelValue returns the value of a metric's label, or an empty string if it has none with that name.
func labelValue(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
