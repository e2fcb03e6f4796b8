// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Evaluate evaluates the expressions of alerts with Prometheus' own engine. Standard input is a JSON list of cases, each with
// series in the notation of promtool's unit tests (one sample a minute), an expression, and the field for of the alert.
// Standard output is a JSON list with the labels of the alerts that fire at the end of each case.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	// step is the time between two samples, and between two evaluations.
	step = time.Minute
	// evaluationTimeout limits one query, so that an expression that does not end fails its test.
	evaluationTimeout = time.Minute
	// maxSamples limits the samples of one query. Tests have a few hundred.
	maxSamples = 1_000_000
)

// alertCase is an alert and the series that it is evaluated for.
type alertCase struct {
	Series []string `json:"series"`
	Expr   string   `json:"expr"`
	For    string   `json:"for"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		os.Exit(1)
	}
}

func run() error {
	var cases []alertCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: evaluationTimeout})
	results := make([][]labels.Labels, len(cases))
	for i, c := range cases {
		firing, err := evaluate(engine, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Expr, err)
		}
		results[i] = firing
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// evaluate returns the labels for which the expression has had a value during the whole time before the last sample.
func evaluate(engine *promql.Engine, c alertCase) ([]labels.Labels, error) {
	all, end, err := parseSeries(c.Series)
	if err != nil {
		return nil, err
	}
	pending, err := model.ParseDuration(c.For)
	if err != nil {
		return nil, err
	}
	start := end.Add(-time.Duration(pending))
	if start.Before(time.UnixMilli(0)) {
		return nil, fmt.Errorf("the series end after %s, before the alert can fire", end.Sub(time.UnixMilli(0)))
	}
	query, err := engine.NewRangeQuery(context.Background(), queryable(all), nil, c.Expr, start, end, step)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	matrix, err := query.Exec(context.Background()).Matrix()
	if err != nil {
		return nil, err
	}
	firing := []labels.Labels{}
	for _, result := range matrix {
		if len(result.Floats) == int(end.Sub(start)/step)+1 {
			firing = append(firing, result.Metric.DropMetricName())
		}
	}
	return firing, nil
}

// parseSeries parses series, and returns the time of the last sample.
func parseSeries(texts []string) (all []storage.Series, end time.Time, err error) {
	end = time.UnixMilli(0)
	for _, text := range texts {
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
		if err != nil {
			return nil, end, fmt.Errorf("%s: %w", text, err)
		}
		var samples []chunks.Sample
		for i, value := range values {
			at := time.UnixMilli(0).Add(time.Duration(i) * step)
			if at.After(end) {
				end = at
			}
			if !value.Omitted {
				samples = append(samples, sample{at.UnixMilli(), value.Value})
			}
		}
		all = append(all, storage.NewListSeries(metric, samples))
	}
	return all, end, nil
}

// queryable returns a storage of some series.
func queryable(all []storage.Series) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			var found []storage.Series
			for _, series := range all {
				if matches(series.Labels(), matchers) {
					found = append(found, series)
				}
			}
			return &seriesSet{all: found, index: -1}
		},
	}}
}

func matches(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(metric.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

// seriesSet iterates over series.
type seriesSet struct {
	all   []storage.Series
	index int
}

func (s *seriesSet) Next() bool                        { s.index++; return s.index < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.index] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample is the value of a series at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
