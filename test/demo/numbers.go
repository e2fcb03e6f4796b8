// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refract-project/refract/test/support/lab"
)

// tallies contains numbers that are counted during the story.
type tallies struct {
	// all contains all writes of Refract's processes to both clusters so far.
	all []lab.Write
	// before contains the metrics of the virtual kubelet that was killed.
	before lab.Metrics
}

// collect reads the new lines of the audit logs. It returns the number of new writes by Refract's processes, without
// heartbeats.
func (s *story) collect() (news int, err error) {
	for _, side := range []*lab.Side{s.lab.Consumer, s.lab.Provider} {
		writes, err := side.Journal.Next()
		if err != nil {
			return 0, err
		}
		for _, write := range lab.Of(writes, lab.Users()...) {
			s.writes.all = append(s.writes.all, write)
			if !write.IsRoutine() {
				news++
			}
		}
	}
	return news, nil
}

// remember saves the metrics of the virtual kubelet before it ends.
func (s *story) remember(ctx context.Context) (err error) {
	s.writes.before, err = s.lab.KubeletMetrics(ctx)
	return err
}

func (s *story) numbers(ctx context.Context) error {
	if _, err := s.collect(); err != nil {
		return err
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "WRITE\tCOUNT\n")
	heartbeats := 0
	tally := lab.Tally(slices.DeleteFunc(slices.Clone(s.writes.all), func(write lab.Write) bool {
		if write.IsRoutine() {
			heartbeats++
		}
		return write.IsRoutine()
	}))
	for _, kind := range slices.Sorted(maps.Keys(tally)) {
		_, _ = fmt.Fprintf(w, "%s\t%d\n", kind, tally[kind])
	}
	_, _ = fmt.Fprintf(w, "all by our processes, in both clusters\t%d\n", len(s.writes.all)-heartbeats)
	_, _ = fmt.Fprintf(w, "heartbeats and elections (leases)\t%d\n", heartbeats)
	if err := w.Flush(); err != nil {
		return err
	}
	s.text(b.String())
	if err := s.latencies(); err != nil {
		return err
	}
	return s.resources()
}

// latencies prints the latencies of plugins that the virtual kubelet has measured.
func (s *story) latencies() error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "PLUGIN\tCALLS\tHALF OF THEM WITHIN\n")
	for _, plugin := range []string{"pod", "service", "endpointslice", "strip-vendor-labels"} {
		labels := map[string]string{"plugin": plugin}
		calls, median := s.writes.before.Sum(chainLatency, labels), s.writes.before.Quantile(chainLatency, labels, 0.5)
		if calls == 0 {
			return fmt.Errorf("the metrics count no call of the plugin %s", plugin)
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%s\n", plugin, calls, time.Duration(median*float64(time.Second)).Round(time.Microsecond))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.text(b.String())
	return nil
}

func (s *story) resources() error {
	usage, err := s.lab.Usage()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		s.note("%-24s %3d MiB, %.1f s of CPU", name, usage[name].RSS>>20, usage[name].CPU.Seconds())
	}
	return nil
}

// chainLatency is the name of the histogram where the virtual kubelet records how long a plugin takes for an object.
const chainLatency = "refract_plugin_duration_seconds"
