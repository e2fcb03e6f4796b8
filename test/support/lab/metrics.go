// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics contains the metrics of a process, by name.
type Metrics map[string]*dto.MetricFamily

// KubeletMetrics reads the metrics of the virtual kubelet.
func (l *Lab) KubeletMetrics(ctx context.Context) (Metrics, error) {
	return scrape(ctx, "http://"+address(l.ports.kubeletMetrics)+"/metrics")
}

func scrape(ctx context.Context, url string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading metrics, %w", err)
	}
	defer func() { _, _ = io.Copy(io.Discard, response.Body); _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading metrics, %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics, %w", err)
	}
	return families, nil
}

// Sum returns the sum over all series with the given labels: of the values of a counter or gauge, or of the numbers of
// observations of a histogram.
func (m Metrics) Sum(name string, labels map[string]string) float64 {
	var sum float64
	m.each(name, labels, func(metric *dto.Metric) {
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
	})
	return sum
}

// Quantile returns the upper bound of the histogram bucket that contains the q-th quantile (0 < q ≤ 1) of the
// observations in all series with the given labels. It returns 0 if there are no observations.
func (m Metrics) Quantile(name string, labels map[string]string, q float64) float64 {
	counts, total := map[float64]uint64{}, uint64(0)
	m.each(name, labels, func(metric *dto.Metric) {
		total += metric.GetHistogram().GetSampleCount()
		for _, bucket := range metric.GetHistogram().GetBucket() {
			counts[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	})
	for _, bound := range slices.Sorted(maps.Keys(counts)) {
		if total > 0 && float64(counts[bound]) >= q*float64(total) {
			return bound
		}
	}
	return 0
}

func (m Metrics) each(name string, labels map[string]string, visit func(*dto.Metric)) {
	for _, metric := range m[name].GetMetric() {
		if hasLabels(metric, labels) {
			visit(metric)
		}
	}
}

func hasLabels(metric *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, pair := range metric.GetLabel() {
		if value, asked := labels[pair.GetName()]; asked && value == pair.GetValue() {
			found++
		}
	}
	return found == len(labels)
}
