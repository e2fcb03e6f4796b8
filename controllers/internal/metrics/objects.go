// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// countTimeout limits the counting of one kind, which waits for its cache to be filled. A longer limit delays the whole
// scrape.
const countTimeout = time.Second

// Enforced describes the objects that a controller enforces.
type Enforced struct {
	Controller string
	// List is an empty list of the kind.
	List client.ObjectList
	// Meant reports whether the controller enforces an object of the kind.
	Meant func(client.Object) bool
}

// objects is a collector that counts the cached objects whenever it is scraped.
type objects struct {
	reader   client.Reader
	active   <-chan struct{}
	enforced []Enforced
	kinds    []string
	gauge    *prometheus.Desc
}

// RegisterObjects exports the numbers of enforced objects. reader must read from a cache. Until active is closed, no
// numbers are exported, because another replica may be the leader and enforce the objects.
func RegisterObjects(registerer prometheus.Registerer, reader client.Client, active <-chan struct{}, enforced []Enforced) error {
	o := &objects{
		reader: reader, active: active, enforced: enforced,
		gauge: prometheus.NewDesc("refract_controller_objects", "Objects that the controller enforces.", []string{"controller", "kind"}, nil),
	}
	for i := range enforced {
		gvk, err := reader.GroupVersionKindFor(enforced[i].List)
		if err != nil {
			return fmt.Errorf("naming the kind that %s enforces, %w", enforced[i].Controller, err)
		}
		o.kinds = append(o.kinds, strings.TrimSuffix(gvk.Kind, "List"))
	}
	return register(registerer, o)
}

// Describe sends the description of the only metric.
func (o *objects) Describe(to chan<- *prometheus.Desc) { to <- o.gauge }

// Collect counts the objects. If the cache of a kind cannot be read yet, its number is unknown and omitted, so that the
// other metrics are still exported.
func (o *objects) Collect(to chan<- prometheus.Metric) {
	select {
	case <-o.active:
	default:
		return
	}
	for i := range o.enforced {
		if n, err := o.count(&o.enforced[i]); err == nil {
			to <- prometheus.MustNewConstMetric(o.gauge, prometheus.GaugeValue, float64(n), o.enforced[i].Controller, o.kinds[i])
		}
	}
}

func (o *objects) count(e *Enforced) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	list := e.List.DeepCopyObject().(client.ObjectList)
	if err := o.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	n := 0
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok && e.Meant(object) {
			n++
		}
		return nil
	})
	return n, err
}
