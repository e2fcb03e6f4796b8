// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

func specOf(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), spec))
	return spec
}

// Init containers and sidecars count as they do in Kubernetes, where they were rounded before they were compared, or left out.
func TestDemand(t *testing.T) {
	const container = `containers: [{name: a, resources: {requests: {cpu: %}}}]`
	for name, tc := range map[string]struct{ spec, cpu string }{
		"nothing":                  {`containers: [{name: a}]`, "0"},
		"one":                      {strings.ReplaceAll(container, "%", "100m"), "100m"},
		"two":                      {`containers: [{name: a, resources: {requests: {cpu: 100m}}}, {name: b, resources: {requests: {cpu: 250m}}}]`, "350m"},
		"limits stand for nothing": {`containers: [{name: a, resources: {limits: {cpu: "4"}}}]`, "0"},
		"a larger init container":  {strings.ReplaceAll(container, "%", "100m") + "\ninitContainers: [{name: i, resources: {requests: {cpu: 900m}}}]", "900m"},
		"a smaller init container": {strings.ReplaceAll(container, "%", "900m") + "\ninitContainers: [{name: i, resources: {requests: {cpu: 100m}}}]", "900m"},
		"a sidecar":                {strings.ReplaceAll(container, "%", "300m") + "\ninitContainers: [{name: i, restartPolicy: Always, resources: {requests: {cpu: 300m}}}]", "600m"},
		"a sidecar beside an init container": {strings.ReplaceAll(container, "%", "100m") +
			"\ninitContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 300m}}}, {name: i, resources: {requests: {cpu: 500m}}}]", "800m"},
		"overhead":      {strings.ReplaceAll(container, "%", "100m") + "\noverhead: {cpu: 50m}", "150m"},
		"no containers": {`{}`, "0"},
	} {
		demand := demandOf(specOf(t, tc.spec))
		if cpu := demand[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse(tc.cpu)) != 0 {
			t.Errorf("%s: %s, want %s", name, cpu.String(), tc.cpu)
		}
		if pods := demand[corev1.ResourcePods]; pods.Value() != 1 {
			t.Errorf("%s: it counts as %s pods", name, pods.String())
		}
	}
}

func TestExceeds(t *testing.T) {
	list := func(text string) corev1.ResourceList {
		l := corev1.ResourceList{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &l))
		return l
	}
	for name, tc := range map[string]struct{ demand, used, hard, want string }{
		"fits":             {`{cpu: 1, pods: 1}`, `{cpu: 1, pods: 1}`, `{cpu: 2, pods: 2}`, ""},
		"by a millicore":   {`{cpu: 1001m}`, `{cpu: 1}`, `{cpu: 2}`, "cpu: requested 1001m, used 1, limited 2"},
		"by less than one": {`{cpu: 1600m}`, `{cpu: 1}`, `{cpu: 2500m}`, "cpu: requested 1600m, used 1, limited 2500m"},
		"one pod too many": {`{pods: 1}`, `{pods: 2}`, `{pods: 2}`, "pods: requested 1, used 2, limited 2"},
		"pods do not matter when they are not named": {`{pods: 1}`, `{pods: 99}`, `{cpu: 2}`, ""},
		"another resource":                           {`{cpu: 1, nvidia.com/gpu: 1}`, `{}`, `{cpu: 2}`, "nvidia.com/gpu is not among its resources"},
		"none of another":                            {`{cpu: 1, nvidia.com/gpu: 0}`, `{}`, `{cpu: 2}`, ""},
		"a Quota without room":                       {`{cpu: 1m}`, `{}`, `{cpu: 0}`, "cpu: requested 1m, used 0, limited 0"},
		"more than there can be":                     {`{cpu: 1}`, `{cpu: 5}`, `{cpu: 2}`, "cpu: requested 1, used 5, limited 2"},
	} {
		if got := exceeds(list(tc.demand), list(tc.used), list(tc.hard)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestDeclared(t *testing.T) {
	const (
		silent  = `containers: [{name: a}]`
		cpuOnly = `containers: [{name: a, resources: {requests: {cpu: 1}}}]`
		soft    = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]`
		hard    = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]`
		uneven  = `containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]`
		inInit  = hard + "\ninitContainers: [{name: i}]"
	)
	for _, tc := range []struct {
		quota, flag offloading.LimitsEnforcement
		spec, want  string
	}{
		{"", "", silent, ""}, {"None", "Hard", silent, ""},
		{"Soft", "", silent, "containers[a]"}, {"Soft", "", cpuOnly, "memory is mandatory"}, {"Soft", "", soft, ""}, {"", "Soft", silent, "mandatory"},
		{"Hard", "", soft, "limit of"}, {"Hard", "", uneven, "limit of cpu"}, {"Hard", "None", hard, ""}, {"", "Hard", inInit, "initContainers[i]"},
	} {
		l := &Ledger{options: Options{Limits: tc.flag}}
		refusal := l.declared(specOf(t, tc.spec), &offloading.Quota{Spec: offloading.QuotaSpec{LimitsEnforcement: tc.quota}})
		switch {
		case tc.want == "" && refusal != nil:
			t.Errorf("%q, %q: %s is refused: %s", tc.quota, tc.flag, tc.spec, refusal)
		case tc.want != "" && (refusal == nil || !strings.Contains(refusal.Error(), tc.want)):
			t.Errorf("%q, %q: %s: %v, want %q", tc.quota, tc.flag, tc.spec, refusal, tc.want)
		}
	}
}

func TestEscape(t *testing.T) {
	for user, want := range map[string]string{"milan": "milan", "system:serviceaccount:a:b": "system-serviceaccount-a-b", "jane@example.com": "jane-example.com", ":x:": "x", "": ""} {
		if got := Escape(user); got != want {
			t.Errorf("%s is %s, want %s", user, got, want)
		}
	}
	long := strings.Repeat("u", 70)
	if a, b := Escape(long+"1"), Escape(long+"2"); a == b || len(validation.IsValidLabelValue(a)) > 0 {
		t.Errorf("two long names are %s and %s", a, b)
	}
}

// laggingCache has a Quota and a tenant namespace, and no pod yet, however many were created.
type laggingCache struct{ client.Reader }

// List implements client.Reader.
func (laggingCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *offloading.QuotaList:
		l.Items = []offloading.Quota{{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "rome"}, Spec: offloading.QuotaSpec{
			User: "rome", Resources: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")},
		}}}
	case *corev1.NamespaceList:
		l.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}}
	}
	return nil
}

// noQuotas is a cache without any, in which rome has joined with a Tenant.
type noQuotas struct{ client.Reader }

// List implements client.Reader.
func (noQuotas) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if tenants, ok := list.(*auth.TenantList); ok {
		tenants.Items = []auth.Tenant{{Spec: auth.TenantSpec{ClusterID: "rome"}}}
	}
	return nil
}

// Whether a consumer without any Quota is limited is an option; what runs already goes on.
func TestWithoutQuota(t *testing.T) {
	pod := Pod{Spec: &corev1.PodSpec{}, Labels: map[string]string{wire.OriginLabel: "rome", wire.CreatorUserLabel: "rome"}}
	again := pod
	again.Again = true
	other := pod // which has joined otherwise
	other.Labels = map[string]string{wire.OriginLabel: "paris", wire.CreatorUserLabel: "paris"}
	for _, tc := range []struct {
		options Options
		pod     Pod
		refused bool
	}{
		{Options{}, pod, false}, {Options{Required: true}, pod, true}, {Options{Required: true}, again, false}, {Options{Required: true, Off: true}, pod, false},
		{Options{OfTenants: true}, pod, true}, {Options{OfTenants: true}, again, false}, {Options{OfTenants: true}, other, false},
	} {
		refusal, err := NewLedger(noQuotas{}, tc.options).Take(t.Context(), tc.pod)
		if err != nil || (refusal != nil) != tc.refused {
			t.Errorf("%+v, again %t: %v, %v, want a refusal: %t", tc.options, tc.pod.Again, refusal, err, tc.refused)
		}
	}
}

// A pod that was created a moment ago counts although the cache does not show it yet.
func TestPendingPodsCount(t *testing.T) {
	l := NewLedger(laggingCache{}, Options{})
	pod := func(name string) Pod {
		return Pod{Key: types.NamespacedName{Namespace: "shop", Name: name}, Spec: &corev1.PodSpec{},
			Labels: map[string]string{wire.OriginLabel: "rome", wire.CreatorUserLabel: "rome"}}
	}
	take := func(name string, fits bool) {
		t.Helper()
		if refusal, err := l.Take(t.Context(), pod(name)); err != nil || (refusal == nil) != fits {
			t.Errorf("pod %s: %v, %v, want it to fit: %t", name, refusal, err, fits)
		}
	}
	take("first", true)
	take("first", true) // the same one, tried again
	take("second", false)
	l.Release(pod("first").Key)
	take("second", true)
}
