// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/internal/ipmap"
)

// configurations is the resource where Liqo's network module stores the ranges of another cluster and the local ranges
// that they are remapped to.
var configurations = schema.GroupVersionResource{Group: "networking.liqo.io", Version: "v1beta1", Resource: "configurations"}

// cidrsConfigured is the type of the condition that reports that all ranges of a Configuration are remapped.
const cidrsConfigured = "NetworkCIDRsConfigured"

// configuration contains the fields of a Configuration that this package reads.
type configuration struct {
	Spec struct {
		Remote side `json:"remote"`
	} `json:"spec"`
	Status struct {
		// Remote contains the local ranges, in the order of the corresponding ranges in the spec.
		Remote     side               `json:"remote"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type side struct {
	CIDR struct {
		Pod      []string `json:"pod"`
		External []string `json:"external"`
	} `json:"cidr"`
}

// network is the address mapping of another cluster.
type network struct {
	pods, all *ipmap.Table
	// fault is the reason why the mapping is unknown, or nil if it is known.
	fault error
}

// read derives the network from a Configuration.
func read(object *unstructured.Unstructured) network {
	name := object.GetNamespace() + "/" + object.GetName()
	c := &configuration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, c); err != nil {
		return network{fault: fmt.Errorf("reading Configuration %s, %w", name, err)}
	}
	if err := c.incomplete(object.GetGeneration()); err != nil {
		return network{fault: fmt.Errorf("waiting for Configuration %s to be remapped: %w", name, err)}
	}
	from, to := c.Spec.Remote.CIDR, c.Status.Remote.CIDR
	podList := ipmap.List{From: from.Pod, To: to.Pod, FromName: "spec.remote.cidr.pod", ToName: "status.remote.cidr.pod"}
	pods, err := ipmap.NewTable(podList)
	if err != nil {
		return network{fault: fmt.Errorf("reading Configuration %s, %w", name, err)}
	}
	all, err := ipmap.NewTable(podList,
		ipmap.List{From: from.External, To: to.External, FromName: "spec.remote.cidr.external", ToName: "status.remote.cidr.external"})
	if err != nil {
		return network{fault: fmt.Errorf("reading Configuration %s, %w", name, err)}
	}
	return network{pods: pods, all: all}
}

// incomplete returns an error that describes the missing parts, or nil if nothing is missing. Releases of Liqo that do
// not set the condition set only the ranges.
func (c *configuration) incomplete(generation int64) error {
	from, to := c.Spec.Remote.CIDR, c.Status.Remote.CIDR
	condition := meta.FindStatusCondition(c.Status.Conditions, cidrsConfigured)
	switch {
	case len(to.Pod) < len(from.Pod):
		return fmt.Errorf("status.remote.cidr.pod has %d of %d ranges", len(to.Pod), len(from.Pod))
	case len(to.External) < len(from.External):
		return fmt.Errorf("status.remote.cidr.external has %d of %d ranges", len(to.External), len(from.External))
	case condition == nil:
		return nil
	case condition.ObservedGeneration != generation:
		return errors.New("its status is that of an earlier spec")
	case condition.Status != metav1.ConditionTrue:
		return fmt.Errorf("its condition %s is %s (%s)", cidrsConfigured, condition.Status, condition.Reason)
	}
	return nil
}

// isConfigured reports whether the condition of a Configuration says that it was accepted. Liqo 1.2 also sets this
// condition.
func isConfigured(object any) bool {
	c := &configuration{}
	u, ok := object.(*unstructured.Unstructured)
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c) != nil {
		return false
	}
	condition := meta.FindStatusCondition(c.Status.Conditions, cidrsConfigured)
	return condition != nil && condition.Status == metav1.ConditionTrue
}
