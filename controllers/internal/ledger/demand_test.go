// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// TestIsSized checks for which pods a LimitRange or a runtime class can increase a resource that a Quota limits.
func TestIsSized(t *testing.T) {
	const storage = corev1.ResourceEphemeralStorage
	amounts := func(names ...corev1.ResourceName) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range names {
			list[name] = resource.MustParse("1")
		}
		return list
	}
	usual := corev1.ResourceRequirements{Requests: amounts("cpu"), Limits: amounts("memory")}
	with := func(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
		for name, amount := range usual.Requests {
			requests[name] = amount
		}
		for name, amount := range usual.Limits {
			limits[name] = amount
		}
		return corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
	for what, tc := range map[string]struct {
		resources corev1.ResourceRequirements
		names     []corev1.ResourceName
		runtime   *string
		want      bool
	}{
		"cpu and memory":               {usual, []corev1.ResourceName{"cpu", "memory"}, nil, true},
		"nothing":                      {corev1.ResourceRequirements{}, nil, nil, false},
		"a Quota of ephemeral storage": {usual, []corev1.ResourceName{storage}, nil, false},
		"a request for it":             {with(amounts(storage), amounts()), []corev1.ResourceName{storage}, nil, true},
		"a limit for it":               {with(amounts(), amounts(storage)), []corev1.ResourceName{storage}, nil, true},
		"no limit for a Quota of them": {usual, []corev1.ResourceName{"limits.cpu"}, nil, false},
		"a limit for a Quota of them":  {usual, []corev1.ResourceName{"limits.memory"}, nil, true},
		"a Quota of devices":           {usual, []corev1.ResourceName{"nvidia.com/gpu"}, nil, false},
		"a Quota of huge pages":        {usual, []corev1.ResourceName{"hugepages-2Mi"}, nil, false},
		"numbers and claims": {usual, []corev1.ResourceName{"pods", "services.nodeports", "count/jobs.batch", "requests.storage",
			"fast.storageclass.storage.k8s.io/requests.storage"}, nil, true},
		"a runtime class":        {usual, []corev1.ResourceName{"cpu"}, ptr.To("kata"), false},
		"an empty runtime class": {usual, []corev1.ResourceName{"cpu"}, ptr.To(""), true},
	} {
		spec := &corev1.PodSpec{RuntimeClassName: tc.runtime,
			Containers: []corev1.Container{{Resources: usual}}, InitContainers: []corev1.Container{{Resources: tc.resources}}}
		if tc.want || tc.runtime != nil {
			spec.Containers[0].Resources = tc.resources
		}
		assert.Equal(t, tc.want, IsSized(spec, tc.names), what)
	}
}
